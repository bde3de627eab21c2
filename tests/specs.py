"""Ready-made kernel descriptions for tests, built by hand: no YAML, no source file needed.

    gemm_spec()                                   # C = A·B, float32, tile 8, 16 or 32
    gemm_spec(dtype="int8", output="int32")       # C of its own precision class
    saxpy_spec(tolerance=10.0)                    # any field of KernelSpec can be replaced by name

A test that compiles passes `source=` a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper.dtypes import dtype as precision
from sweeper.expressions import Value, parse
from sweeper.model import (
    ArraySpec,
    Direction,
    KernelSpec,
    LaunchSpec,
    ParamSpec,
    ReferenceSpec,
    Requires,
    ScalarSpec,
    WorkModel,
    digest,
)

Size = int | str

HERE = Path(__file__).parent


def array(
    name: str,
    shape: Sequence[Size],
    direction: str = "in",
    *,
    dtype: str | None = None,
    fill: str = "uniform",
) -> ArraySpec:
    """An array argument; `dtype` None is the kernel's own class."""
    sizes = tuple(parse(size) for size in shape)
    return ArraySpec(name, None if dtype is None else precision(dtype), sizes, Direction(direction), fill)


def scalar(name: str, value: Value, dtype: str | None = "int32") -> ScalarSpec:
    """A scalar argument; `dtype` None is the kernel's own class."""
    return ScalarSpec(name, None if dtype is None else precision(dtype), parse(value))


def launch(
    block: Sequence[Size],
    grid: Sequence[Size],
    *,
    shared_bytes: Size = 0,
    static_shared_bytes: Size = 0,
) -> LaunchSpec:
    """Launch geometry; missing trailing sizes are 1."""
    x, y, z = (parse(size) for size in [*block, 1, 1][:3])
    gx, gy, gz = (parse(size) for size in [*grid, 1, 1][:3])
    return LaunchSpec((x, y, z), (gx, gy, gz), parse(shared_bytes), parse(static_shared_bytes))


def param_specs(levels: Mapping[str, Sequence[Value]]) -> tuple[ParamSpec, ...]:
    """Parameters with their levels; the first level is the default."""
    return tuple(ParamSpec(name, tuple(values), next(iter(values))) for name, values in levels.items())


def contraction(text: str) -> ReferenceSpec:
    return ReferenceSpec("contraction", text)


def python_reference(path: Path, function: str = "reference") -> ReferenceSpec:
    return ReferenceSpec("python", function, path=path)


def spec(
    name: str,
    args: Sequence[ArraySpec | ScalarSpec],
    *,
    reference: ReferenceSpec,
    dims: Mapping[str, int | None] | Sequence[str],
    dtype: str = "float32",
    **changes: Any,
) -> KernelSpec:
    """Any description: what is not given is the plainest choice that is valid."""
    made = KernelSpec(
        name=name,
        path=HERE / f"{name}.yaml",
        source=HERE / f"{name}.cu",
        entry=name,
        template=(),
        dtype=precision(dtype),
        dtypes=(precision(dtype),),
        dims=dict(dims) if isinstance(dims, Mapping) else dict.fromkeys(dims),
        params=(),
        constraints=(),
        launch=launch([1], [1]),
        args=tuple(args),
        requires=Requires(),
        reference=reference,
        defines={},
        options=(),
        tolerance=6.0,
        model=WorkModel(),
        work_flops=None,
        digest=digest(name),
    )
    return replace(made, **changes)


def gemm_spec(
    name: str = "tiled",
    dtype: str = "float32",
    params: Mapping[str, Sequence[Value]] | None = None,
    template: bool = True,
    *,
    output: str | None = None,
    text: str = "mk,kn->mn",
    fill: str = "uniform",
    leading: bool = False,
    **changes: Any,
) -> KernelSpec:
    """C[M,N] = A[M,K]·B[K,N] by square shared-memory tiles, one element of C a thread.

    `output` is C's own precision class; with `leading` the kernel takes lda, ldb and ldc too. With `template`
    the entry is `matmul<T, tile, …>`, else the parameters are macros. Parameters other than `tile` take part
    in nothing but the template.
    """
    levels = dict(params) if params is not None else {"tile": (8, 16, 32)}
    square = "tile" in levels
    edge: Size = "tile" if square else 16
    made = spec(
        name,
        (
            array("A", ["M", "K"], fill=fill),
            array("B", ["K", "N"], fill=fill),
            array("C", ["M", "N"], "out", dtype=output),
            *(scalar(d, d) for d in "MNK"),
            *(scalar(name, rows) for name, rows in zip(("lda", "ldb", "ldc"), "KNN", strict=True) if leading),
        ),
        reference=contraction(text),
        dims=("M", "N", "K"),
        dtype=dtype,
        entry="matmul",
        template=("T", *(parse(p) for p in levels)) if template else (),
        params=param_specs(levels),
        constraints=(parse("tile * tile <= max_threads"),) if square else (),
        launch=launch(
            [edge, edge],
            [f"ceil(N / {edge})", f"ceil(M / {edge})"],
            static_shared_bytes=f"2 * {edge} * {edge} * elem_bytes",
        ),
        model=WorkModel(
            flops=parse(f"2 * {edge} * {edge} * K"),
            global_bytes=parse(f"2 * {edge} * K * elem_bytes"),
            steps=parse(f"ceil(K / {edge})"),
        ),
    )
    return replace(made, **changes)


def saxpy_spec(
    path: Path = HERE / "references" / "saxpy.py", dtype: str = "float32", **changes: Any
) -> KernelSpec:
    """y = a·x + y in place, its reference the function `reference(a, x, y)` of a Python file."""
    made = spec(
        "saxpy",
        (
            scalar("n", "N"),
            scalar("a", 2.5, None),
            array("x", ["N"]),
            array("y", ["N"], "inout"),
        ),
        reference=python_reference(path),
        dims={"N": 1024},
        dtype=dtype,
        params=param_specs({"block": (64, 128, 256)}),
        launch=launch(["block"], ["ceil(N / block)"]),
        work_flops=parse("2 * N"),
    )
    return replace(made, **changes)
