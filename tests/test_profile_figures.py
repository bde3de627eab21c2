"""Figures from counters that an H200 gave for five kernels at 1024³ (tests/recorded/ncu), and what they must be.

Where arithmetic gives a figure, that is what is asked of it: FLOP, bytes, sectors, lanes, resident warps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_ncu import RECORDED

from sweeper.device import target
from sweeper.expressions import Value
from sweeper.model import Build
from sweeper.profile import job_of
from sweeper.profile.expected import Expected, expect
from sweeper.profile.figures import FIGURES, Counted, figures_of, stalls_of
from sweeper.profile.job import Job
from sweeper.profile.profile import Profile, profile_of
from sweeper.profile.raw_csv import Launched, read_raw

N = 1024
CUBE = {"M": N, "N": N, "K": N}

JOBS: dict[str, tuple[str, dict[str, Value], str, int | None, int]] = {
    # By recorded table: kernel, parameters, library, registers a thread and bytes of shared memory a block.
    "register_tile": ("register_tile", {"bm": 64, "bn": 64, "bk": 8, "tm": 4, "tn": 4}, "", 64, 4096),
    "tiled": ("tiled", {"tile": 32}, "", 32, 8192),
    "naive": ("naive", {"block_x": 32, "block_y": 8}, "", 32, 0),
    "uncoalesced": ("uncoalesced", {"block_x": 16, "block_y": 16}, "", 32, 0),
    "cublas": ("tiled", {}, "cublas", None, 0),
    "cublas_bf16": ("tiled", {}, "cublas", None, 0),
}


def recorded(name: str) -> list[Launched]:
    return read_raw((RECORDED / f"{name}.csv").read_text(encoding="utf-8"))


def job(name: str) -> Job:
    kernel, params, library, _, _ = JOBS[name]
    return job_of(kernel, params, CUBE, library=library)


@pytest.fixture(scope="module")
def profile() -> Callable[[str], Profile]:
    made: dict[str, Profile] = {}

    def of(name: str) -> Profile:
        if name not in made:
            _, _, library, registers, shared = JOBS[name]
            build = Build(
                "key", "nvcc", Path("k.cubin"), "k", "nvcc", registers=registers, static_shared_bytes=shared
            )
            it = job(name)
            expected = expect(it, target("h200"), None if library else build)
            made[name] = profile_of(it, "NVIDIA H200", expected, None if library else build, recorded(name))
        return made[name]

    return of


Of = Callable[[str], Profile]


def figure(profile: Profile, name: str) -> float:
    value = profile[name]
    assert value is not None, name
    return value


def test_every_figure_of_a_kernel_is_known(profile: Of) -> None:
    assert list(profile("tiled").figures) == [f.name for f in FIGURES]


def test_a_figure_without_its_counter_is_absent_and_the_others_stay(profile: Of) -> None:
    whole = Counted(profile("tiled").metrics, profile("tiled").expected)
    without = Counted(
        {n: v for n, v in whole.metrics.items() if not n.startswith("dram__bytes")}, whole.expected
    )
    lost = set(figures_of(whole)) - set(figures_of(without))
    assert lost == {
        "dram_read_bytes",
        "dram_write_bytes",
        "dram_per_compulsory",
        "dram_per_model",
        "flop_per_byte",
    }
    assert figures_of(Counted({}, Expected(None, 1, None, 132))) == {}


@pytest.mark.parametrize("name", ["register_tile", "tiled", "naive", "uncoalesced"])
def test_dram_reads_both_inputs_once_and_the_output_stays_in_l2(profile: Of, name: str) -> None:
    found = profile(name)
    assert figure(found, "dram_read_bytes") == pytest.approx(2 * N * N * 4, rel=0.01)
    assert figure(found, "dram_per_compulsory") == pytest.approx(2 / 3, rel=0.01)
    assert figure(found, "flop_per_byte") == pytest.approx(2 * N**3 / (2 * N * N * 4), rel=0.01)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("register_tile", 0.95, 1.0), ("tiled", 0.99, 1.0), ("naive", 0.9, 1.0), ("uncoalesced", 0.95, 1.0)],
)
def test_what_sms_fetch_from_l2_is_what_the_model_says_less_what_l1_held(
    profile: Of, name: str, low: float, high: float
) -> None:
    assert low < figure(profile(name), "l2_per_model") <= high


def test_a_tile_of_side_t_divides_l2_traffic_by_t(profile: Of) -> None:
    tiled = profile("tiled")
    assert tiled.expected.model_l2_bytes == 2 * N**3 * 4 / 32
    assert figure(tiled, "l2_bytes") == pytest.approx(2 * N**3 * 4 / 32 + N * N * 4, rel=0.01)


def test_sectors_a_request_tell_coalesced_from_scattered_and_broadcast(profile: Of) -> None:
    """One load of two is a broadcast of naive's: (1 + 4) / 2. A block of 16×16 scatters a warp over 16 rows."""
    assert figure(profile("tiled"), "load_sectors") == 4
    assert figure(profile("naive"), "load_sectors") == 2.5
    assert figure(profile("uncoalesced"), "load_sectors") == (16 + 1) / 2
    assert figure(profile("uncoalesced"), "store_sectors") == 16


def test_bytes_used_of_a_sector_count_each_byte_once(profile: Of) -> None:
    assert figure(profile("tiled"), "load_bytes_per_sector") == 32
    assert figure(profile("naive"), "load_bytes_per_sector") == pytest.approx((128 + 4) / 5)
    assert figure(profile("uncoalesced"), "load_bytes_per_sector") == pytest.approx(
        (16 * 4 + 8) / 17, rel=0.01
    )
    assert figure(profile("uncoalesced"), "store_bytes_per_sector") == 8


def test_no_load_through_registers_is_no_average_of_nothing(profile: Of) -> None:
    """cuBLAS copies to shared memory past the registers: by cp.async here, by TMA in bfloat16."""
    assert profile("cublas")["load_bytes_per_sector"] is None
    assert profile("cublas_bf16")["load_sectors"] is None


def test_arbitration_for_the_banks_is_no_bank_conflict(profile: Of) -> None:
    """ncu's own counter says 403,700 of a tile that has none; all of them are type_arbitration."""
    tiled = profile("tiled")
    assert tiled.metrics["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"] == 403700
    assert figure(tiled, "bank_conflicts") == 0
    assert figure(profile("cublas"), "bank_conflict_percent") == pytest.approx(14, abs=0.1)


def test_a_hit_rate_above_100_from_counters_of_different_passes_is_100() -> None:
    """An H200 has said 102.79 % of a small product."""
    found = figures_of(Counted({"lts__t_sector_hit_rate.pct": 102.79}, Expected(None, 1, None, 132)))
    assert found == {"l2_hit_percent": 100.0}


def test_multiply_adds_are_the_problem_s(profile: Of) -> None:
    for name in ("register_tile", "tiled", "naive", "uncoalesced"):
        assert profile(name).metrics["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == N**3
        share = figure(profile(name), "fma_percent") / 100
        assert share == pytest.approx(N**3 / profile(name).metrics["smsp__thread_inst_executed.sum"])


@pytest.mark.parametrize("name", ["register_tile", "tiled", "naive", "uncoalesced"])
def test_the_theoretical_occupancy_is_that_of_our_calculator(profile: Of, name: str) -> None:
    expected = profile(name).expected
    assert expected.occupancy is not None
    assert figure(profile(name), "occupancy_limit_percent") == 100 * expected.occupancy
    assert figure(profile(name), "occupancy_percent") <= figure(profile(name), "occupancy_limit_percent")


def test_blocks_an_sm_are_the_grid_s(profile: Of) -> None:
    assert figure(profile("register_tile"), "blocks_per_sm") == 16 * 16 / 132
    assert figure(profile("tiled"), "blocks_per_sm") == 32 * 32 / 132


def test_tensor_cores_work_in_the_library_s_bfloat16_kernel_alone(profile: Of) -> None:
    assert figure(profile("cublas_bf16"), "tensor_pipe_percent") > 40
    for name in ("register_tile", "naive", "cublas"):
        assert figure(profile(name), "tensor_pipe_percent") < 1


@pytest.mark.parametrize(
    ("name", "first", "cycles"),
    [
        ("register_tile", "long_scoreboard", 12.09),
        ("tiled", "mio_throttle", 36.72),
        ("naive", "long_scoreboard", 26.39),
        ("uncoalesced", "lg_throttle", 172.83),
    ],
)
def test_stalls_are_shares_of_the_cycles_between_a_warp_s_instructions_the_commonest_first(
    profile: Of, name: str, first: str, cycles: float
) -> None:
    """What is left of 100 % is the cycle in which the warp issues; `cycles` is ncu's own average."""
    stalls = profile(name).stalls
    assert next(iter(stalls)) == first
    assert list(stalls.values()) == sorted(stalls.values(), reverse=True)
    assert "selected" not in stalls
    assert 100 / (100 - sum(stalls.values())) == pytest.approx(cycles, rel=0.01)


def test_without_counters_of_stalls_there_is_nothing_to_say() -> None:
    assert stalls_of(Counted({}, Expected(None, 1, None, 132))) == {}


@pytest.mark.parametrize(
    ("name", "bound", "first"),
    [
        ("register_tile", "latency", "warps spend 48 % of their time waiting for global memory"),
        ("tiled", "L1/shared 86 %", "the L1 and shared-memory path is 86 % busy"),
        ("naive", "L1/shared 77 %", "17 % of the instructions are multiply-adds"),
        ("uncoalesced", "L1/shared 99 %", "4.2 of 32 bytes of each sector that loads touch are used"),
    ],
)
def test_what_bounds_each_rung_and_the_first_line_of_advice(
    profile: Of, name: str, bound: str, first: str
) -> None:
    assert profile(name).bound == bound
    assert profile(name).advice[0].text.startswith(first)


def test_only_the_uncoalesced_rung_is_told_to_coalesce(profile: Of) -> None:
    told = [name for name in JOBS if any("neighbouring threads" in a.text for a in profile(name).advice)]
    assert told == ["uncoalesced"]


def test_a_library_s_kernel_has_a_name_and_no_model(profile: Of) -> None:
    library = profile("cublas_bf16")
    assert library.kernels == ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT",)
    assert library.expected.model_l2_bytes is None
    assert library["l2_per_model"] is None
    assert library.job.params == {}
