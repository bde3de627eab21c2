"""The builder that a backend needs, with the cache that the configuration allows."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

from sweeper.build.cache import BuildCache
from sweeper.build.pool import CachedBuilder
from sweeper.errors import ConfigError, did_you_mean

__all__ = ["make_builder"]

_BY_BACKEND = {"cuda": ("nvcc", "nvrtc"), "emulator": ("host",)}


def make_builder(backend: str, compiler: str, *, cache: bool) -> CachedBuilder:
    """A builder for `backend`; `compiler` is `auto` or one of those that can build for it.

    Without `cache`, builds are kept for the life of this process only. Raises ConfigError for a compiler
    that cannot build for the backend, SetupError where it is not there.
    """
    possible = _BY_BACKEND[backend]
    name = possible[0] if compiler == "auto" else compiler
    if name not in possible:
        raise ConfigError(
            f"build.compiler = {compiler!r} cannot build for backend {backend}{did_you_mean(name, possible)}",
            hint="use auto or " + " or ".join(possible),
        )
    store = BuildCache() if cache else BuildCache(Path(mkdtemp(prefix="sweeper-builds-")))
    if name == "nvcc":
        from sweeper.build.nvcc import NvccBuilder

        return NvccBuilder(store)
    if name == "nvrtc":
        from sweeper.build.nvrtc import NvrtcBuilder

        return NvrtcBuilder(store)
    from sweeper.build.host import HostBuilder

    return HostBuilder(store)
