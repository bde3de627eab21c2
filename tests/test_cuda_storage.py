"""Rows that lie apart, and scratch, on a pretended GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_rig import QUICK, Rig, make_rig
from fake_pycuda import Behaviour, Memory
from specs import gemm_spec, scalar

from sweeper.backend.base import Entrant, Finalist, Rounds
from sweeper.backend.cuda import arrays
from sweeper.backend.cuda.arguments import Arguments, ArgumentSets, allocated_bytes
from sweeper.backend.cuda.cublas_gemm import gemm_of
from sweeper.backend.cuda.product import product_of
from sweeper.dtypes import dtype
from sweeper.expressions import parse
from sweeper.model import ArraySpec, Direction, KernelSpec, Point, Status
from sweeper.problem import resolve
from sweeper.problem.verify import is_poison
from sweeper.resources.geometry import launch_of

SPACED = {"M": 12, "N": 10, "K": 8, "LDA": 11, "LDB": 13, "LDC": 16}


def pitched(**changes: Any) -> KernelSpec:
    made = gemm_spec(leading=True, **changes)
    args = [
        replace(a, pitch=parse(f"LD{a.name}")) if isinstance(a, ArraySpec) else scalar(a.name, a.name.upper())
        for a in made.args
    ]
    optional = {"LDA": parse("K"), "LDB": parse("N"), "LDC": parse("N")}
    return replace(made, args=tuple(args), optional_dims=optional)


def scratched(*fills: str) -> KernelSpec:
    """A product with a scratch array of tile counters for each of `fills`."""
    made = gemm_spec()
    counters = [
        ArraySpec(f"S{i}", dtype("uint32"), (parse("tile - 8"),), Direction.SCRATCH, fill)
        for i, fill in enumerate(fills)
    ]
    return replace(made, args=(*made.args[:3], *counters, *made.args[3:]))


def rows(memory: Memory, address: int, shape: tuple[int, int], pitch: int) -> np.ndarray:
    flat = memory.array(address, ((shape[0] - 1) * pitch + shape[1],), np.float32)
    return np.lib.stride_tricks.as_strided(flat, shape, (4 * pitch, 4))


def product(memory: Memory, a: int, b: int, c: int, *numbers: int) -> None:
    """The right one, wherever rows lie."""
    m, n, k, lda, ldb, ldc = numbers
    left, right = (rows(memory, *each).astype(float) for each in ((a, (m, k), lda), (b, (k, n), ldb)))
    rows(memory, c, (m, n), ldc)[...] = left @ right


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return make_rig(tmp_path, monkeypatch)


def and_also(act: Callable[[Memory, int, int, int], None]) -> Callable[..., None]:
    def run(memory: Memory, a: int, b: int, c: int, *numbers: int) -> None:
        product(memory, a, b, c, *numbers)
        act(memory, a, b, c)

    return run


def test_rows_that_lie_apart_are_compared_element_by_element(rig: Rig) -> None:
    check = rig.prepared(pitched(), SPACED).measure(product).check
    assert (check.passed, check.checked) == (True, 120)


def test_a_row_that_begins_at_the_wrong_place_is_found(rig: Rig) -> None:
    def run(memory: Memory, a: int, b: int, c: int, m: int, n: int, k: int, *leading: int) -> None:
        product(memory, a, b, c, m, n, k, k, *leading[1:])

    failure = rig.prepared(pitched(), SPACED).failure(run)
    assert failure.status is Status.WRONG_RESULT
    assert "not finite" in failure.reason, "between the rows of A lies NaN"


def test_a_write_between_rows_of_the_output_is_told_with_its_place(rig: Rig) -> None:
    def spill(memory: Memory, a: int, b: int, c: int) -> None:
        memory.array(c + 4 * (3 * 16 + 11), (2,), np.float32)[:] = 1

    failure = rig.prepared(pitched(), SPACED).failure(and_also(spill))
    assert failure.status is Status.WRONG_RESULT
    assert failure.reason == (
        "wrote between the rows of C: 2 elements, the first C[3, 11] (rows of 10 elements, 16 apart)"
    )
    assert rig.measure(product).check.passed


def test_a_write_between_rows_while_timed_is_found_afterwards(rig: Rig) -> None:
    launches: list[int] = []

    def late(memory: Memory, a: int, b: int, c: int) -> None:
        launches.append(1)
        if len(launches) > QUICK.verify_launches:
            memory.array(c + 4 * 10, (1,), np.float32)[:] = 1

    failure = rig.prepared(pitched(), SPACED).failure(and_also(late))
    assert "wrote between the rows of C: 1 elements, the first C[0, 10]" in failure.reason


def test_a_write_between_rows_of_an_input_is_told_and_undone(rig: Rig) -> None:
    def spill(memory: Memory, a: int, b: int, c: int) -> None:
        memory.array(a + 4 * 8, (1,), np.float32)[:] = 1

    failure = rig.prepared(pitched(), SPACED).failure(and_also(spill))
    assert failure.reason == "wrote into its input A"
    assert rig.measure(product).check.passed


@pytest.mark.parametrize("where", ["device", "host"])
def test_device_and_host_tell_the_same_of_gaps(rig: Rig, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "host":
        monkeypatch.setattr("sweeper.backend.cuda.judge._SHARE", 0.0)

    def spill(memory: Memory, a: int, b: int, c: int) -> None:
        memory.array(c + 4 * (10 * 16 + 15), (1,), np.float32)[:] = 1

    failure = rig.prepared(pitched(), SPACED).failure(and_also(spill))
    assert "wrote between the rows of C: 1 elements, the first C[10, 15]" in failure.reason


def test_a_large_product_is_computed_from_where_its_rows_lie(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.backend.cuda.product._LEAST_MULTIPLICATIONS", 1)
    rig.prepared(pitched(), SPACED)
    made = product_of(rig.problem, rig.problem.inputs())
    assert made is not None
    assert made.strides == (11, 1, 1, 13)
    assert made.scratch_bytes == 8 * ((11 * 11 + 8) + (7 * 13 + 10))
    assert rig.measure(product).check.passed


def test_the_library_is_given_the_leading_dimensions(rig: Rig) -> None:
    gemm = gemm_of(rig.prepared(pitched(), SPACED).problem)
    assert (gemm.lda, gemm.ldb, gemm.ldc) == (11, 13, 16)


def test_copies_larger_than_pycuda_counts_are_made_in_parts(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "_MOST_COPIED", 100)
    sizes: list[int] = []
    plain = rig.driver.memcpy_dtod_async

    def counted(to: int, source: int, nbytes: int, stream: Any) -> None:
        sizes.append(nbytes)
        plain(to, source, nbytes, stream)

    monkeypatch.setattr(rig.driver, "memcpy_dtod_async", counted)
    assert rig.prepared(pitched(), SPACED).measure(product).check.passed
    assert sizes[:5] == [100, 100, 100, 100, 80], "480 bytes of results are kept"


# --- Scratch ------------------------------------------------------------------------------------------


class Counting:
    """A product that counts its launches in the first word of its scratch, if it has one."""

    def __init__(self, *, restores: bool = True, spills: bool = False) -> None:
        self.seen: list[int] = []
        self.addresses: list[int] = []
        self._restores, self._spills = restores, spills

    def __call__(self, memory: Memory, a: int, b: int, c: int, s: int, m: int, n: int, k: int) -> None:
        product(memory, a, b, c, m, n, k, k, n, n)
        self.addresses.append(s)
        counter = memory.array(s, (1,), np.uint32)
        self.seen.append(int(counter[0]))
        if counter[0]:
            memory.array(c, (1,), np.float32)[:] = 1e9
        if not self._restores:
            counter += np.uint32(1)
        if self._spills:
            memory.array(s - 4, (1,), np.uint32)[:] = 1


def test_scratch_is_given_to_the_kernel_and_is_zero_at_first(rig: Rig) -> None:
    run = Counting()
    assert rig.prepared(scratched("zeros")).measure(run, point=Point.of({"tile": 16})).check.passed
    assert set(run.seen) == {0}


def test_a_kernel_that_does_not_leave_scratch_as_it_needs_it_is_found(rig: Rig) -> None:
    run = Counting(restores=False)
    failure = rig.prepared(scratched("zeros")).failure(
        run, replace(QUICK, verify_launches=1), Point.of({"tile": 16})
    )
    assert failure.status is Status.WRONG_RESULT
    assert failure.reason.endswith("(in a later launch: the first was right, so see what it left in S0)")
    assert run.seen == [0, 1], "cleared before the first launch alone"


def test_scratch_is_another_one_for_every_configuration_and_the_problem_stays(rig: Rig) -> None:
    rig.prepared(scratched("zeros"))
    used = rig.driver.memory.used
    uploads = len(rig.driver.host_copies)
    for tile in (16, 32, 16):
        run = Counting(restores=False)
        rig.failure(run, point=Point.of({"tile": tile}))
        assert run.seen[0] == 0
    gc.collect()
    assert rig.driver.memory.used == used, "what a configuration had is given back"
    large = [n for n in rig.driver.host_copies[uploads:] if n >= 12 * 8 * 4]
    assert all(n == arrays._GUARD_BYTES for n in large), "no array was brought again"


def test_scratch_of_no_size_is_an_address_all_the_same(rig: Rig) -> None:
    addresses: list[int] = []

    def run(memory: Memory, a: int, b: int, c: int, s: int, m: int, n: int, k: int) -> None:
        product(memory, a, b, c, m, n, k, k, n, n)
        addresses.append(s)

    assert rig.prepared(scratched("zeros")).measure(run, point=Point.of({"tile": 8})).check.passed
    assert all(addresses)


def test_a_write_beside_scratch_is_told(rig: Rig) -> None:
    failure = rig.prepared(scratched("zeros")).failure(Counting(spills=True), point=Point.of({"tile": 16}))
    assert failure.reason == "wrote outside S0: 4 bytes before its start, the nearest 0 bytes away"


def test_scratch_that_nobody_fills_is_poison_before_every_checked_launch(rig: Rig) -> None:
    held: list[bool] = []

    def run(memory: Memory, a: int, b: int, c: int, s: int, m: int, n: int, k: int) -> None:
        product(memory, a, b, c, m, n, k, k, n, n)
        words = memory.array(s, (8,), np.uint32)
        held.append(bool(is_poison(words).all()))
        words[:] = 0

    protocol = replace(QUICK, verify_launches=3)
    assert rig.prepared(scratched("none")).measure(run, protocol, Point.of({"tile": 16})).check.passed
    assert held[:3] == [True] * 3
    assert held[-1], "after the timing, too"


def test_each_copy_of_the_arguments_has_a_scratch_of_its_own(rig: Rig) -> None:
    """A launch on a copy must find its scratch in memory, not in the cache, and as a launch leaves it."""
    device = rig.prepared(scratched("zeros")).cuda._device
    problem = rig.problem
    first = Arguments(device, problem, problem.inputs())
    sets = ArgumentSets(device, first).at(resolve(rig.spec, problem.dims, Point.of({"tile": 32}), seed=3))
    words = rig.driver.memory.array(sets.first.scratch["S0"].pointer, (24,), np.uint32)
    words[:] = 7
    assert sets.provide(3) == 3
    held = [sets[n].scratch["S0"] for n in range(3)]
    assert len({array.pointer for array in held}) == 3
    assert all((array.download() == 7).all() for array in held)
    assert len({sets[n].arrays["A"].pointer for n in range(3)}) == 3
    assert [sets[n].numbers[3] for n in range(3)] == [array.pointer for array in held]


def test_two_configurations_share_the_arrays_and_not_the_scratch(rig: Rig) -> None:
    device = rig.prepared(scratched("zeros", "none")).cuda._device
    base = ArgumentSets(device, Arguments(device, rig.problem, rig.problem.inputs()))
    small, large = (
        base.at(resolve(rig.spec, rig.problem.dims, Point.of({"tile": tile}), seed=3)) for tile in (16, 32)
    )
    assert small.first.arrays is large.first.arrays
    assert small.first.scratch["S0"].pointer != large.first.scratch["S0"].pointer
    assert (small.provide(2), large.provide(2)) == (2, 2)
    assert small[1].arrays is large[1].arrays


def test_configurations_timed_in_turns_keep_their_scratch_apart(rig: Rig) -> None:
    """Each counts its own launches, on the arrays that all of them share."""
    rig.prepared(scratched("zeros"))
    entrants, used = [], []
    for name, tile in (("a", 16), ("b", 32)):
        point, addresses = Point.of({"tile": tile}), set()

        def run(
            memory: Memory, *numbers: int, addresses: set[tuple[int, int]] = addresses, tile: int = tile
        ) -> None:
            a, b, c, s, m, n, k = numbers
            product(memory, a, b, c, m, n, k, k, n, n)
            counters = memory.array(s, (tile - 8,), np.uint32)
            assert (counters == counters[0]).all(), "somebody else wrote here"
            counters += np.uint32(1)
            addresses.add((a, s))

        rig.driver.behaviours[name] = Behaviour(run, time_ms=0.5)
        problem = resolve(rig.spec, rig.problem.dims, point, seed=rig.problem.seed)
        launch = launch_of(rig.spec, point, rig.problem.dims, rig.target)
        entrants.append(Entrant(Finalist(point, rig.build(name)), problem, launch))
        used.append(addresses)
    turns = rig.cuda.confirm(entrants, QUICK, Rounds(8, seed=1))
    assert [len(each.times_ms) for each in turns] == [8, 8]
    assert [each.reason for each in turns] == ["", ""]
    (first,), (second,) = used
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_scratch_that_does_not_fit_fails_its_configuration_alone(rig: Rig) -> None:
    kernel = scratched("zeros")
    huge = replace(kernel.args[3], shape=(parse("(tile - 8) * (tile - 8) * (tile - 8) * 10 ** 4"),))
    rig.prepared(replace(kernel, args=(*kernel.args[:3], huge, *kernel.args[4:])))
    failure = rig.failure(Counting(), point=Point.of({"tile": 32}))
    assert failure.status is Status.OUT_OF_MEMORY
    assert rig.measure(Counting(), point=Point.of({"tile": 16})).check.passed


def test_counters_of_an_unsigned_type_do_not_keep_inputs_from_being_negated(rig: Rig) -> None:
    """Fresh inputs after the timing find a kernel that answers from memory, scratch or not."""
    known: dict[str, np.ndarray] = {}

    def remembering(memory: Memory, a: int, b: int, c: int, s: int, m: int, n: int, k: int) -> None:
        product(memory, a, b, c, m, n, k, k, n, n)
        memory.array(c, (m, n), np.float32)[...] = known.setdefault(
            "c", memory.array(c, (m, n), np.float32).copy()
        )

    failure = rig.prepared(scratched("zeros")).failure(remembering, point=Point.of({"tile": 16}))
    assert "with A negated, after the timing" in failure.reason


def test_what_is_allocated_for_a_problem_does_not_count_scratch(rig: Rig) -> None:
    problem = rig.prepared(scratched("zeros")).problem
    guards = 3 * 2 * arrays._GUARD_BYTES
    assert allocated_bytes(problem) == guards + 4 * (12 * 8 + 8 * 10 + 12 * 10)
