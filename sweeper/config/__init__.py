"""The typed schema of `conf/` and the strict check of a composed configuration against it."""

from __future__ import annotations

from sweeper.config.schema import (
    NEIGHBOURS,
    BackendConfig,
    BuildConfig,
    Config,
    EngineConfig,
    MeasureConfig,
    PlanConfig,
    SearchConfig,
    ShapeConfig,
)
from sweeper.config.validation import validate

__all__ = [
    "NEIGHBOURS",
    "BackendConfig",
    "BuildConfig",
    "Config",
    "EngineConfig",
    "MeasureConfig",
    "PlanConfig",
    "SearchConfig",
    "ShapeConfig",
    "validate",
]
