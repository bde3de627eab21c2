"""`load_kernel`: a row of a table as a kernel to call."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.api.choosing import Choice
from sweeper.api.composing import own_hydra
from sweeper.api.described import Kernel, composer_for, named
from sweeper.errors import ConfigError, KernelError, TrialFailed
from sweeper.expressions import Value
from sweeper.model import Build, KernelSpec, Point, Role, Status, Trial

if TYPE_CHECKING:
    import pandas as pd

    from sweeper.api.result import TuneResult
    from sweeper.backend.cuda.callable_kernel import CallableKernel

__all__ = ["load_kernel"]

_DEADLINE_S = 600.0
_USUAL_LAYOUT = "nn"


def load_kernel(
    choice: TuneResult | Choice | Trial | pd.Series[Any] | Mapping[str, Any],
    *,
    device: int = 0,
    kernel: Kernel | None = None,
    config_dir: Path | str | Sequence[Path | str] = (),
    compiler: str = "auto",
) -> CallableKernel:
    """The configuration of `choice`, compiled and loaded on GPU number `device`: `kernel(a, b, c, stream=None)`.

    `choice` is what `tune` gave (its winner), what `best` gave, a row of a results table, or anything with the keys
    kernel, params and dims (dtype float32, unless given). Its kernel is looked for among the shipped ones and in
    `config_dir`; `kernel`, a YAML file or a description, takes its place. `compiler` is auto, nvcc or nvrtc.

    The GPU is the one of that number in this process, through its primary context, which torch, CuPy and Numba use as
    well. Raises SetupError where there is no PyCUDA, GPU or compiler, ConfigError where the row and the kernel do not
    agree, NoValidConfiguration where it cannot run on this GPU, TrialFailed where it does not compile or load. Warns
    where the kernel's source is not the one that was measured.
    """
    wanted = _wanted(choice)
    from sweeper.backend.cuda.callable_kernel import CallableKernel, launch_at
    from sweeper.backend.cuda.shared_device import SharedDevice

    opened = SharedDevice(device)
    spec = _described(wanted, kernel, config_dir)
    point = _point(spec, wanted.params)
    if wanted.digest and wanted.digest != spec.digest:
        warnings.warn(
            f"the source of {spec.name} is not the one that was measured: its time may be another",
            stacklevel=2,
        )
    dims = _dims(spec, point, wanted)
    limits = opened.target()
    # Told before anything is compiled.
    launch_at(spec, point, dims, limits)
    build, text = _built(spec, point, limits.arch, compiler)
    return CallableKernel(opened, spec, point, build, dims, text, wanted.row)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be loaded. `node` and `path` are the kernel's description where it is at hand."""

    kernel: str
    dtype: str
    layout: str
    dims: Mapping[str, int]
    params: Mapping[str, Value]
    row: Mapping[str, Any]
    digest: str = ""
    config_dirs: tuple[Path, ...] = ()
    node: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None


def _wanted(choice: Any) -> _Wanted:
    if hasattr(choice, "kernel_node"):
        found = _of_row({str(name): value for name, value in choice.best.items()})
        return replace(found, node=choice.kernel_node, path=choice.kernel_path)
    if isinstance(choice, Choice):
        return replace(_of_row(choice.record()), config_dirs=choice.config_dirs)
    if isinstance(choice, Trial):
        names = ("kernel", "dtype", "shape", "dims", "params", "status", "role", "kernel_digest")
        return _of_row({name: getattr(choice, name) for name in names})
    if hasattr(choice, "to_dict"):
        choice = choice.to_dict()
    elif hasattr(choice, "record"):
        choice = choice.record()
    if not isinstance(choice, Mapping):
        raise ConfigError(
            f"load_kernel cannot load a {type(choice).__name__}",
            hint="give what tune() or best() gave, or a row of a results table",
        )
    return _of_row(choice)


def _of_row(row: Mapping[str, Any]) -> _Wanted:
    """What a row says. Raises ConfigError where it is not a configuration that was proved right."""
    from sweeper.kernel.layout import layout_of
    from sweeper.kernel.sizes import parse_shape

    missing = [name for name in ("kernel", "params") if not row.get(name)]
    if missing:
        raise ConfigError(
            f"the row has no {' and no '.join(missing)}", hint="give a row of trials.csv or best.csv"
        )
    if row.get("role", Role.CANDIDATE) == Role.BASELINE:
        raise ConfigError(f"the row is of the library {row['kernel']}, which is not ours to load")
    status = row.get("status", Status.OK)
    if status != Status.OK:
        raise ConfigError(f"the row's configuration is not to be run: its status is {status}")
    dims, layout = row.get("dims"), str(row.get("layout") or "")
    if not isinstance(dims, str | Mapping):
        dims, named_layout = parse_shape(str(row.get("shape", "")))
        layout = layout or named_layout
    return _Wanted(
        kernel=str(row["kernel"]),
        dtype=str(row.get("dtype") or "float32"),
        layout=layout or layout_of(str(row.get("shape") or "")) or _USUAL_LAYOUT,
        dims=_mapping(dims, "dims"),
        params=_mapping(row["params"], "params"),
        row=row,
        digest=str(row.get("kernel_digest") or ""),
    )


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"{name} = {value!r} is no JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} = {value!r} is not a mapping")
    return dict(value)


def _described(
    wanted: _Wanted, kernel: Kernel | None, config_dir: Path | str | Sequence[Path | str]
) -> KernelSpec:
    """The kernel in the class and layout of the row. Raises ConfigError, KernelError."""
    from sweeper.kernel import load

    if kernel is None and wanted.path is not None:
        return load(wanted.node, wanted.path)
    listed = [config_dir] if isinstance(config_dir, str | Path) else config_dir
    folders = [*(Path(one).expanduser().absolute() for one in listed), *wanted.config_dirs]
    chosen = named(wanted.kernel if kernel is None else kernel)
    words = [f"kernel={chosen.choice}", f"++kernel.dtype={wanted.dtype}"]
    words += [f"++kernel.layout={wanted.layout}"] if "t" in wanted.layout else []
    with own_hydra(), composer_for(chosen, folders) as composer:
        spec = composer.compose(words)[0]
    if kernel is not None and spec.name != wanted.kernel:
        raise ConfigError(f"the row is of kernel {wanted.kernel}, and the one given is {spec.name}")
    return spec


def _point(spec: KernelSpec, params: Mapping[str, Value]) -> Point:
    try:
        return spec.point_of(params)
    except ValueError as error:
        raise KernelError(f"{error}, and the row has it") from None


def _dims(spec: KernelSpec, point: Point, wanted: _Wanted) -> dict[str, int]:
    from sweeper.problem import resolve

    return dict(resolve(spec, wanted.dims, point, seed=0).dims)


def _built(spec: KernelSpec, point: Point, arch: str, compiler: str) -> tuple[Build, str]:
    """The build for `arch`, from the cache where it is there, and the text that was compiled."""
    from sweeper.build.make import make_builder
    from sweeper.build.source import cuda_text, translation_unit

    unit = translation_unit(spec, point)
    builder = make_builder("cuda", compiler, cache=True)
    try:
        builder.check(arch)
        return builder.build(unit, arch=arch, deadline_s=_DEADLINE_S), cuda_text(unit)
    except TrialFailed as failure:
        if failure.details.get("log"):
            failure.add_note(f"all that the compiler said: {failure.details['log']}")
        raise
    finally:
        builder.close()
