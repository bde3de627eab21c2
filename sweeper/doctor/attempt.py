"""The main job in small: a shipped kernel is built, launched, proved right and timed."""

from __future__ import annotations

from contextlib import closing

from sweeper.check.compose import Composer
from sweeper.config import BackendConfig, BuildConfig, Config, MeasureConfig, ShapeConfig
from sweeper.doctor.finding import Finding, State
from sweeper.evaluate import LiveEvaluator
from sweeper.model import TimeSource

__all__ = ["attempt"]

_SIZE = 64
_MEASURE = MeasureConfig(warmup_ms=1.0, min_samples=3, max_samples=5, max_seconds=0.2)


def attempt(backend: str, compiler: str) -> Finding:
    """What comes of `naive` at 64³ on `backend`. Raises SweeperError."""
    what = "gpu run" if backend == "cuda" else "emulator run"
    config = Config(
        kernel={},
        shape=ShapeConfig(None, {}),
        measure=_MEASURE,
        backend=BackendConfig(name=backend),
        build=BuildConfig(compiler=compiler),
    )
    with Composer() as composer:
        spec, _ = composer.compose(["kernel=naive"])
    dims = dict.fromkeys(("M", "N", "K"), _SIZE)
    with closing(LiveEvaluator(backend, config, lambda _: None, problem=(spec, dims, 0))) as world:
        ticket = world.submit(spec.default_point)
        world.ready()
        outcome = world.finish(ticket)
        name, by = world.identity.name, world.compiler
    timed = (
        f", timed ({min(outcome.timing.samples_ms) * 1e3:.1f} µs)"
        if outcome.timing is not None and world.time_source is TimeSource.MEASURED
        else ""
    )
    return Finding(what, State.OK, f"{name}: a kernel was built by {by}, launched, proved right{timed}")
