"""One problem: a kernel at one size, with inputs from a seed, right results, and what they cost.

    problem = resolve(spec, {"M": 512, "N": 512, "K": 512}, None, seed=0)
    inputs = problem.inputs()
    reference = problem.reference(inputs)
    problem.check({"C": fetched}, reference).passed

Nothing is allocated before `inputs`: sizes, FLOPs and bytes are exact Python integers, at any size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeper.errors import ConfigError, KernelError
from sweeper.expressions import Value
from sweeper.kernel.sizes import completed, differing
from sweeper.model import ArraySpec, Check, KernelSpec, Point, digest
from sweeper.problem.ahead import InputsAhead
from sweeper.problem.arguments import (
    ResolvedArray,
    ResolvedScalar,
    resolve_array,
    resolve_dims,
    resolve_scalar,
)
from sweeper.problem.contraction import Contraction
from sweeper.problem.inputs import generate, scaled
from sweeper.problem.python_reference import PythonReference
from sweeper.problem.reference import ReferenceValues, contract, contraction_of, from_function
from sweeper.problem.tensor_maps import ResolvedTensorMap, resolve_tensor_maps
from sweeper.problem.verify import check, fetched, is_poison, poison

__all__ = [
    "Problem",
    "ReferenceValues",
    "ResolvedArray",
    "ResolvedScalar",
    "is_poison",
    "poison",
    "resolve",
]

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def resolve(spec: KernelSpec, dims: Mapping[str, int], point: Point | None, *, seed: int) -> Problem:
    """The problem of `spec` at `dims` (missing ones take the description's defaults).

    `point` is needed only where a shape or scalar depends on a parameter. Raises ConfigError for a bad
    or unknown size and for a scalar that its type cannot hold, ExpressionError for a shape that has no
    whole value, KernelError for a contraction that does not fit the arrays.
    """
    sizes = resolve_dims(spec.dims, dims, kernel=spec.name, optional=spec.optional_dims)
    plain = {name: sizes[name] for name in spec.dims}
    sizes = plain | differing(spec, plain, sizes)
    params = point.params if point else {}
    scope: dict[str, Value] = {**completed(spec, sizes), "elem_bytes": spec.dtype.bytes, **params}
    args = tuple(
        resolve_array(a, spec.dtype, scope)
        if isinstance(a, ArraySpec)
        else resolve_scalar(a, spec.dtype, scope)
        for a in spec.args
    )
    contraction = contraction_of(spec, args)
    if contraction is not None:
        args = scaled(args, contraction.terms)
    flops = None if contraction is None else contraction.flops
    if spec.work_flops is not None:
        flops = spec.work_flops.evaluate_int(scope, what=f"flops of {spec.name}")
    maps = () if point is None else resolve_tensor_maps(spec.tensor_maps, args, scope)
    return Problem(spec, sizes, args, flops, seed, contraction, tensor_maps=maps)


@dataclass(frozen=True, slots=True)
class Problem:
    """A kernel's arguments, inputs and right results at one size.

    `args` keeps the order of the kernel's arguments; `flops` is None where nobody knows. `arrays` are those
    that the problem is about; what a kernel takes as `scratch` is no part of it. `tensor_maps` are those at
    the point that the problem was resolved for.
    """

    spec: KernelSpec
    dims: Mapping[str, int]
    args: tuple[ResolvedArray | ResolvedScalar, ...]
    flops: int | None
    seed: int
    contraction: Contraction | None = field(default=None, repr=False)
    ahead: InputsAhead | None = field(default=None, repr=False, compare=False)
    tensor_maps: tuple[ResolvedTensorMap, ...] = ()

    @property
    def arrays(self) -> tuple[ResolvedArray, ...]:
        """Arrays that are read or written, in the kernel's order; no scratch."""
        return tuple(a for a in self.args if isinstance(a, ResolvedArray) and not a.is_scratch)

    @property
    def scratch(self) -> tuple[ResolvedArray, ...]:
        """Workspaces, whose sizes may depend on the point; one may be empty."""
        return tuple(a for a in self.args if isinstance(a, ResolvedArray) and a.is_scratch)

    @property
    def scalars(self) -> tuple[ResolvedScalar, ...]:
        return tuple(a for a in self.args if isinstance(a, ResolvedScalar))

    @property
    def outputs(self) -> tuple[ResolvedArray, ...]:
        """Arrays that are written, `inout` included."""
        return tuple(a for a in self.arrays if a.is_output)

    @property
    def bytes(self) -> int:
        """Compulsory traffic: every input once and every output once, `inout` counted twice."""
        return sum(a.traffic_bytes for a in self.arrays)

    @property
    def total_bytes(self) -> int:
        """What one set of all arrays allocates, scratch included."""
        return sum(a.stored_bytes for a in (*self.arrays, *self.scratch))

    @property
    def key(self) -> str:
        """Equal where the inputs and right results are: sizes, arrays (classes, shapes, fills), layout and seed.

        Scalars count where a reference reads them: a contraction does not, so a kernel may be told of a
        parameter by one. Scratch never does.
        """
        arrays = [
            [
                *(a.name, a.dtype.name, list(a.shape), a.direction.value, a.fill, a.amplitude),
                *([] if a.row_pitch is None else [a.row_pitch]),
            ]
            for a in self.arrays
        ]
        read = self.scalars if self.contraction is None else ()
        scalars = [[s.name, s.dtype.name, repr(s.value.item())] for s in read]
        turned = [self.spec.layout] if "t" in self.spec.layout else []
        return digest([self.spec.dtype.name, dict(self.dims), arrays, scalars, self.seed, *turned])

    def inputs(self) -> dict[str, Array]:
        """The data of every array that is read, by name: see `sweeper.problem.inputs`."""
        ready = self.ahead.take(self.key) if self.ahead is not None else None
        if ready is not None:
            return ready
        return self.conform({a.name: generate(a, self.seed) for a in self.arrays if a.is_input})

    def conform(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """`inputs` as the kernel must get them: every one there, of its type and shape, C-contiguous.

        A transposed or Fortran-ordered array is copied into C order: a kernel would ignore its strides
        and read other elements. Raises ConfigError for a missing, surplus, misshapen or mistyped one.
        """
        expected = {a.name: a for a in self.arrays if a.is_input}
        if set(inputs) != set(expected):
            raise ConfigError(f"inputs of {self.spec.name} are {_list(expected)}, given are {_list(inputs)}")
        conformed = {}
        for name, array in expected.items():
            data = inputs[name]
            if data.dtype != array.dtype.storage or data.shape != array.shape:
                raise ConfigError(f"input {array} was given as {data.dtype} {data.shape}")
            conformed[name] = np.ascontiguousarray(data)
        return conformed

    def reference(self, inputs: Mapping[str, Array]) -> dict[str, ReferenceValues]:
        """What every output should hold after a launch on `inputs`, with its bounds.

        Raises ConfigError (`input range`) where an output's type cannot hold it, and KernelError for a
        Python reference that fails or a reference that only the kernel's backend can compute.
        """
        return self._reference(inputs, None)

    def reference_where(
        self, inputs: Mapping[str, Array], written: Mapping[str, Mask]
    ) -> dict[str, ReferenceValues]:
        """`reference`, of a contraction only for the elements that `written` marks.

        The values are then one-dimensional and hold their indices; see ReferenceValues.
        """
        return self._reference(inputs, written)

    def reference_from(self, results: Mapping[str, Array]) -> dict[str, ReferenceValues]:
        """The reference made of a plain kernel's own `results`, by output name.

        They carry errors of the same size as those of the kernel under test: the bounds allow for both.
        """
        return {a.name: self._judged(a, fetched(a, results), sides=2) for a in self.outputs}

    def check(
        self,
        got: Mapping[str, Array],
        reference: Mapping[str, ReferenceValues],
        written: Mapping[str, Mask] | None = None,
    ) -> Check:
        """Compare every output; see `sweeper.problem.verify.check`."""
        return check(self.outputs, got, reference, written)

    def poison(self, array: ResolvedArray) -> Array:
        """What `array` holds before a checked launch; see `sweeper.problem.verify.poison`."""
        return poison(array)

    def is_poison(self, values: Array) -> Mask:
        """Which elements nobody has written; see `sweeper.problem.verify.is_poison`."""
        return is_poison(values)

    def _reference(
        self, inputs: Mapping[str, Array], written: Mapping[str, Mask] | None
    ) -> dict[str, ReferenceValues]:
        data = self.conform(inputs)
        if self.contraction is not None:
            (output,) = self.outputs
            mask = None if written is None else written.get(output.name)
            values = contract(
                self.contraction,
                list(data.values()),
                output,
                kernel=self.spec.dtype,
                tolerance=self.spec.tolerance,
                mask=mask,
            )
            return {output.name: values}
        if self.spec.reference.path is None:
            raise KernelError(
                f"the reference of {self.spec.name} is the kernel {self.spec.reference.text}",
                hint="run it, and pass its outputs to reference_from",
            )
        function = PythonReference(self.spec.reference.path, self.spec.reference.text)
        scalars = {s.name: s.value.item() for s in self.scalars}
        results = function(data, scalars, self.outputs)
        magnitudes = function.magnitudes(data, scalars, self.outputs)
        return {a.name: self._judged(a, results[a.name], magnitudes[a.name]) for a in self.outputs}

    def _judged(
        self, array: ResolvedArray, values: Array, magnitudes: Array | None = None, *, sides: int = 1
    ) -> ReferenceValues:
        return from_function(
            array,
            values,
            magnitudes,
            terms=self._terms(array),
            kernel=self.spec.dtype,
            tolerance=self.spec.tolerance,
            sides=sides,
        )

    def _terms(self, output: ResolvedArray) -> int:
        """How many terms a sum may have, where only sizes are known.

        For one output element: the input elements, the points of the index space, or half the FLOPs.
        """
        work = (
            sum(a.size for a in self.arrays if a.is_input),
            math.prod(self.dims[name] for name in self.spec.dims),
            (self.flops or 0) // 2,
        )
        return max(1, *(-(-total // output.size) for total in work))


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
