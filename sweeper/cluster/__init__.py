"""Devices and builds of a Ray cluster behind the seams of one host: an actor for each GPU, a task for each build.

    driver                                        a node with a GPU               a node with processors
    DeviceGroup ── ClusterWorker ── Ray ──▶ DeviceActor ── DeviceWorker ── child
    BuildPool ──── ClusterBuilder ─ Ray ────────────────────────────────────────▶ build_on_node ── compiler

The driver asks, stores and tells as ever. An actor holds the same worker as one host does, whose child process owns
the device: a fault of a configuration costs that child. What Ray loses, a process or a node, Ray starts again, and the
call that was under way is made again. Sources and builds travel as bytes and are kept by their content.

Nothing here imports Ray before a cluster is asked for.
"""

from __future__ import annotations
