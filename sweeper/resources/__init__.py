"""What a configuration needs of a GPU and how long it should take, in closed form."""

from __future__ import annotations

from sweeper.resources.resources import (
    Residency,
    Resources,
    evaluate_launch,
    gflops,
    implicit_constraints,
    launch_derived,
    launch_of,
    percent_of_peak,
    percent_of_roofline,
    register_cap,
    residency,
    resources,
    roofline_ms,
    scope_constants,
    suspect,
    why_not_launchable,
    why_unsupported,
)

__all__ = [
    "Residency",
    "Resources",
    "evaluate_launch",
    "gflops",
    "implicit_constraints",
    "launch_derived",
    "launch_of",
    "percent_of_peak",
    "percent_of_roofline",
    "register_cap",
    "residency",
    "resources",
    "roofline_ms",
    "scope_constants",
    "suspect",
    "why_not_launchable",
    "why_unsupported",
]
