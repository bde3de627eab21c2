"""From counters to the figures of the textbooks: traffic, coalescing, conflicts, divergence, occupancy, issue.

Terms and formulas are those of NVIDIA's Kernel Profiling Guide (Nsight Compute) and CUDA C++ Programming
Guide: a warp's load or store is one request; memory moves in sectors of 32 bytes; shared memory serves a
request in one wavefront or, where lanes collide on a bank, in several. Arithmetic intensity is Williams,
Waterman and Patterson's (CACM 52(4), 2009), here over the DRAM traffic that was counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sweeper.profile.expected import Expected
from sweeper.profile.metrics import DURATION, STALLS, TENSOR_PIPES

__all__ = ["FIGURES", "SECTOR_BYTES", "Counted", "Figure", "figures_of", "stalls_of"]

SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class Counted:
    """One launch: ncu's numbers by metric, and what was expected of it."""

    metrics: Mapping[str, float]
    expected: Expected

    def first(self, *names: str) -> float | None:
        """The first of these metrics that was counted."""
        return next((self.metrics[name] for name in names if name in self.metrics), None)

    def total(self, *names: str) -> float | None:
        """The sum of those that were counted; None where none was."""
        found = [self.metrics[name] for name in names if name in self.metrics]
        return sum(found) if found else None


Rule = Callable[[Counted], float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of the profile: `of` gives its value, or None where a counter that it needs is absent."""

    name: str
    unit: str
    group: str
    meaning: str
    of: Rule


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom


def _percent(top: float | None, bottom: float | None) -> float | None:
    share = _ratio(top, bottom)
    return None if share is None else 100 * share


def _metric(*names: str, factor: float = 1.0) -> Rule:
    def of(c: Counted) -> float | None:
        value = c.first(*names)
        return None if value is None else value * factor

    return of


def _rate(name: str) -> Rule:
    """A share in percent. Hits and sectors are counted in different passes: a little above 100 is 100."""
    return lambda c: None if c.first(name) is None else min(100.0, c.metrics[name])


def _of_two(top: str, bottom: str) -> Rule:
    return lambda c: _ratio(c.first(top), c.first(bottom))


def _dram(c: Counted) -> float | None:
    read, written = c.first("dram__bytes_read.sum"), c.first("dram__bytes_write.sum")
    return None if read is None or written is None else read + written


def _fetched(c: Counted) -> float | None:
    """What SMs received over the crossbar, in bytes; where that is not counted, sectors that L2 served them.

    The second is the less on compute capability 8.0 and above, where requests of neighbouring SMs for one
    line are answered together.
    """
    received, sectors = (
        c.first("l1tex__m_xbar2l1tex_read_bytes.sum"),
        c.first("lts__t_sectors_srcunit_tex.sum"),
    )
    return received if received is not None else None if sectors is None else SECTOR_BYTES * sectors


def _l2(c: Counted) -> float | None:
    fetched = _fetched(c)
    return None if fetched is None else fetched + (c.first("l1tex__m_l1tex2xbar_write_bytes.sum") or 0.0)


_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_LOCAL = tuple(f"smsp__inst_executed_op_local_{op}.sum" for op in ("ld", "st"))


def _used(op: str) -> Rule:
    """Bytes used of a sector; None where ncu says 0, which is no average of anything: there was no such access.

    Copies that go past the registers (cp.async, TMA) are not among them.
    """
    name = f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio"
    return lambda c: c.first(name) or None


def _conflicts(c: Counted) -> float | None:
    """Conflicts without those between shared memory and other users of the banks, which no layout prevents."""
    found = c.first("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    arbitration = c.first("l1tex__data_bank_conflicts_type_arbitration.sum") or 0.0
    return None if found is None else max(0.0, found - arbitration)


def _fma_percent(c: Counted) -> float | None:
    """Lanes that did a multiply-add, of lanes that executed anything."""
    fused = c.total(*(f"smsp__sass_thread_inst_executed_op_{k}fma_pred_on.sum" for k in "fd"))
    return _percent(fused, c.first("smsp__thread_inst_executed.sum"))


FIGURES: tuple[Figure, ...] = (
    Figure("profiled_ms", "ms", "time", "time of the launch under the profiler, clocks as found",
           _metric(DURATION, factor=1e3)),
    Figure("dram_read_bytes", "B", "DRAM", "read from device memory", _metric("dram__bytes_read.sum")),
    Figure("dram_write_bytes", "B", "DRAM", "written to device memory", _metric("dram__bytes_write.sum")),
    Figure("dram_per_compulsory", "", "DRAM", "DRAM bytes / compulsory bytes: each input once, each output once",
           lambda c: _ratio(_dram(c), c.expected.compulsory_bytes)),
    Figure("dram_per_model", "", "DRAM", "DRAM bytes / those of the static model",
           lambda c: _ratio(_dram(c), c.expected.model_dram_bytes)),
    Figure("dram_percent", "%", "DRAM", "share of the DRAM's peak rate",
           _metric("dram__throughput.avg.pct_of_peak_sustained_elapsed")),
    Figure("flop_per_byte", "FLOP/B", "DRAM", "arithmetic intensity: the problem's FLOP / DRAM bytes",
           lambda c: _ratio(c.expected.flops, _dram(c))),
    Figure("l2_bytes", "B", "L2", "moved between L2 and the SMs", _l2),
    Figure("l2_per_model", "", "L2", "bytes that SMs fetched from L2 / those of the static model",
           lambda c: _ratio(_fetched(c), c.expected.model_l2_bytes)),
    Figure("l2_percent", "%", "L2", "share of L2's peak rate",
           _metric("lts__throughput.avg.pct_of_peak_sustained_elapsed")),
    Figure("l2_hit_percent", "%", "L2", "sectors that L2 held already", _rate("lts__t_sector_hit_rate.pct")),
    Figure("l1_hit_percent", "%", "L2", "sectors that L1 held already", _rate("l1tex__t_sector_hit_rate.pct")),
    Figure("load_sectors", "sectors", "coalescing", "sectors a request of global loads; 4 is a coalesced word a lane",
           _of_two("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
                   "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")),
    Figure("store_sectors", "sectors", "coalescing", "sectors a request of global stores",
           _of_two("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
                   "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum")),
    Figure("load_bytes_per_sector", "B", "coalescing", "bytes used of each 32-byte sector that loads fetch",
           _used("ld")),
    Figure("store_bytes_per_sector", "B", "coalescing", "bytes used of each 32-byte sector that stores write",
           _used("st")),
    Figure("shared_wavefronts", "", "shared memory", "wavefronts of shared memory: passes over its 32 banks",
           _metric(_WAVEFRONTS)),
    Figure("shared_load_ways", "", "shared memory",
           "wavefronts a request of shared loads; 1 without conflict for 4 bytes a lane, 4 for 16",
           _of_two("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "smsp__inst_executed_op_shared_ld.sum")),
    Figure("shared_store_ways", "", "shared memory", "wavefronts a request of shared stores",
           _of_two("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", "smsp__inst_executed_op_shared_st.sum")),
    Figure("bank_conflicts", "", "shared memory", "wavefronts that bank conflicts added", _conflicts),
    Figure("bank_conflict_percent", "%", "shared memory", "share of the wavefronts that bank conflicts added",
           lambda c: _percent(_conflicts(c), c.first(_WAVEFRONTS))),
    Figure("l1_percent", "%", "shared memory", "share of the peak rate of the L1 and shared-memory unit",
           _metric("l1tex__throughput.avg.pct_of_peak_sustained_active")),
    Figure("local_requests", "", "shared memory", "loads and stores of local memory: spills and indexed arrays",
           lambda c: c.total(*_LOCAL)),
    Figure("threads_per_instruction", "lanes", "divergence",
           "lanes active in an instruction and not predicated off, of 32",
           _metric("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
                   "smsp__thread_inst_executed_per_inst_executed.ratio")),
    Figure("divergent_percent", "%", "divergence", "branches whose lanes part ways",
           lambda c: _percent(c.first("smsp__sass_branch_targets_threads_divergent.sum"),
                              c.first("smsp__sass_branch_targets.sum"))),
    Figure("occupancy_percent", "%", "occupancy", "achieved: resident warps / most the SM holds, while it is busy",
           _metric("sm__warps_active.avg.pct_of_peak_sustained_active")),
    Figure("occupancy_limit_percent", "%", "occupancy", "theoretical: what the launch's resources allow",
           lambda c: _first_of(c.first("sm__maximum_warps_per_active_cycle_pct"), _theoretical(c))),
    Figure("blocks_per_sm", "blocks", "occupancy", "blocks of the grid / SMs",
           lambda c: _ratio(c.first("launch__grid_size"), c.expected.sm_count)),
    Figure("waves", "", "occupancy", "blocks of the grid / blocks that the device holds at once",
           _metric("launch__waves_per_multiprocessor")),
    Figure("issue_percent", "%", "issue", "issue slots used: cycles in which a scheduler issues, of busy ones",
           _metric("smsp__issue_active.avg.pct_of_peak_sustained_active")),
    Figure("eligible_warps", "warps", "issue", "warps a scheduler can choose from in a cycle",
           _metric("smsp__warps_eligible.avg.per_cycle_active")),
    Figure("ipc", "", "issue", "instructions a cycle and SM", _metric("sm__inst_executed.avg.per_cycle_active")),
    Figure("fma_percent", "%", "issue", "multiply-adds among executed instructions, lane by lane", _fma_percent),
    Figure("fma_pipe_percent", "%", "pipes", "share of the float32 pipe's peak rate",
           _metric("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
                   "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active")),
    Figure("fp64_pipe_percent", "%", "pipes", "share of the float64 pipe's peak rate",
           _metric("sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active",
                   "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active")),
    Figure("tensor_pipe_percent", "%", "pipes", "share of the tensor cores' cycles",
           _metric(*TENSOR_PIPES)),
)  # fmt: skip


def _first_of(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _theoretical(c: Counted) -> float | None:
    """Our own occupancy calculator's answer, where ncu has none."""
    return None if c.expected.occupancy is None else 100 * c.expected.occupancy


def figures_of(counted: Counted) -> dict[str, float]:
    """Every figure whose counters are there, by name, in the order of FIGURES."""
    values = ((figure.name, figure.of(counted)) for figure in FIGURES)
    return {name: value for name, value in values if value is not None}


def stalls_of(counted: Counted) -> dict[str, float]:
    """Why warps wait, by reason, the commonest first: the share in percent of their time between instructions.

    A warp that issues (`selected`) does not wait. The shares are those of the average number of warps in
    each state when an instruction is issued, which is the cycles that a warp spends there an instruction.
    """
    held = {reason: counted.metrics[name] for reason, name in STALLS.items() if name in counted.metrics}
    total = sum(held.values())
    if total <= 0:
        return {}
    shares = {
        reason: 100 * value / total for reason, value in held.items() if reason != "selected" and value > 0
    }
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
