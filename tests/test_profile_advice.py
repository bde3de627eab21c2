"""Advice: each rule speaks at its threshold and is silent below it; what has most at stake comes first."""

from __future__ import annotations

import pytest

from sweeper.profile.advice import RULES, advise
from sweeper.profile.evidence import Evidence, busiest

# Figures of a kernel of which no rule has anything to say.
SOUND = {
    "dram_per_compulsory": 1.1,
    "dram_percent": 20.0,
    "l2_percent": 20.0,
    "l1_percent": 40.0,
    "load_sectors": 4.0,
    "load_bytes_per_sector": 32.0,
    "store_sectors": 4.0,
    "store_bytes_per_sector": 32.0,
    "shared_load_ways": 1.0,
    "shared_store_ways": 1.0,
    "bank_conflict_percent": 0.5,
    "local_requests": 0.0,
    "threads_per_instruction": 32.0,
    "occupancy_percent": 48.0,
    "occupancy_limit_percent": 50.0,
    "waves": 4.0,
    "blocks_per_sm": 16.0,
    "issue_percent": 79.0,
    "fma_percent": 80.0,
    "fma_pipe_percent": 70.0,
    "tensor_pipe_percent": 0.0,
}


def said(stalls: dict[str, float] | None = None, tensor_class: str = "", **changes: float) -> list[str]:
    evidence = Evidence(
        {**SOUND, **changes}, stalls or {}, occupancy_limit="registers", tensor_class=tensor_class
    )
    return [advice.text for advice in advise(evidence)]


def test_a_sound_kernel_gets_no_advice() -> None:
    assert said() == []


def test_figures_that_could_not_be_had_are_no_reason_for_advice() -> None:
    assert advise(Evidence({}, {})) == ()
    for name in SOUND:
        rest = {n: v for n, v in SOUND.items() if n != name}
        assert advise(Evidence(rest, {})) == (), name


CASES = [
    (
        {"load_sectors": 16.5, "load_bytes_per_sector": 8.0},
        (
            "8.0 of 32 bytes of each sector that loads touch are used, 16.5 sectors a request:"
            " neighbouring threads should read neighbouring words"
        ),
    ),
    (
        {"store_sectors": 32.0, "store_bytes_per_sector": 4.0},
        (
            "4.0 of 32 bytes of each sector that stores touch are used, 32.0 sectors a request:"
            " neighbouring threads should write neighbouring words"
        ),
    ),
    (
        {"bank_conflict_percent": 75.0, "shared_load_ways": 32.0},
        "bank conflicts add 75 % of shared memory's wavefronts, 32.0 wavefronts a request: pad rows",
    ),
    ({"dram_per_compulsory": 2.4, "dram_percent": 50.0}, "DRAM moves 2.4 times the compulsory bytes"),
    ({"dram_percent": 85.0}, "only less data helps"),
    ({"l2_percent": 70.0}, "L2 is 70 % busy"),
    ({"l1_percent": 90.0}, "keep more operands in registers"),
    ({"threads_per_instruction": 16.0}, "16.0 of 32 lanes are active"),
    ({"blocks_per_sm": 0.25, "waves": 0.1}, "75 % of the SMs get no block"),
    ({"blocks_per_sm": 1.1}, "1.10 blocks an SM take the time of 2"),
    (
        {
            "occupancy_percent": 12.0,
            "occupancy_limit_percent": 12.5,
            "issue_percent": 30.0,
            "fma_pipe_percent": 20.0,
        },
        "occupancy is 12 % (12 % at most, limited by registers) and 70 % of the issue slots are idle",
    ),
    (
        {"occupancy_percent": 24.0, "waves": 0.48, "issue_percent": 30.0, "fma_pipe_percent": 20.0},
        "occupancy is 24 % (the grid fills 48 % of the places for blocks)",
    ),
    ({"occupancy_percent": 20.0}, "20 % of the warps are resident where 50 % could be"),
    ({"local_requests": 1e6}, "1,000,000 loads and stores of local memory"),
    ({"fma_percent": 30.0}, "30 % of the instructions are multiply-adds"),
    ({"fma_pipe_percent": 92.0}, "an arithmetic pipe is 92 % busy"),
]


@pytest.mark.parametrize(("changes", "words"), CASES, ids=[words[:32] for _, words in CASES])
def test_each_mistake_has_its_line_and_no_other(changes: dict[str, float], words: str) -> None:
    lines = said(**changes)
    assert len(lines) == 1, lines
    assert words in lines[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"load_sectors": 16.0, "load_bytes_per_sector": 32.0},
        {"load_sectors": 1.0, "load_bytes_per_sector": 4.0},
        {"bank_conflict_percent": 9.0},
        {"dram_per_compulsory": 3.0, "dram_percent": 10.0},
        {"dram_percent": 55.0},
        {"threads_per_instruction": 25.0},
        {"blocks_per_sm": 10.1},
        {"occupancy_percent": 40.0},
    ],
    ids=["four words a lane", "broadcast", "few conflicts", "idle DRAM", "half busy DRAM", "few idle lanes",
         "many blocks an SM", "a little below the theoretical"],
)  # fmt: skip
def test_what_is_no_mistake_gets_no_line(changes: dict[str, float]) -> None:
    assert said(**changes) == []


def test_idle_tensor_cores_count_where_they_could_do_the_work() -> None:
    assert "use mma or wgmma" in said(tensor_class="bfloat16")[0]
    assert said(tensor_class="bfloat16", tensor_pipe_percent=40.0) == []


def test_the_commonest_wait_is_named_where_issue_slots_are_idle() -> None:
    stalls = {"not_selected": 50.0, "long_scoreboard": 30.0, "barrier": 20.0}
    (line,) = said(stalls, issue_percent=40.0)
    assert "30 % of their time waiting for global memory" in line
    assert said(stalls) == []


def test_most_at_stake_comes_first() -> None:
    lines = said(dram_percent=50.0, dram_per_compulsory=1.6, blocks_per_sm=0.1)
    assert [line.split()[0] for line in lines] == ["90", "DRAM"]


def test_every_rule_speaks_in_some_case() -> None:
    """No rule is dead."""
    evidence = [Evidence({**SOUND, **changes}, {}) for changes, _ in CASES]
    evidence.append(Evidence({**SOUND, "issue_percent": 40.0}, {"barrier": 60.0}))
    evidence.append(Evidence(SOUND, {}, tensor_class="int8"))
    silent = [rule.__name__ for rule in RULES if not any(rule(e) for e in evidence)]
    assert not silent


@pytest.mark.parametrize(
    ("figures", "bound"),
    [
        ({"dram_percent": 91.0, "issue_percent": 20.0}, "DRAM 91 %"),
        ({"dram_percent": 30.0, "fma_pipe_percent": 88.0}, "fp32 pipe 88 %"),
        ({"dram_percent": 30.0, "issue_percent": 40.0}, "latency"),
        ({}, ""),
    ],
)
def test_the_busiest_unit_bounds_a_kernel_and_latency_where_none_is_busy(
    figures: dict[str, float], bound: str
) -> None:
    assert busiest(figures) == bound
