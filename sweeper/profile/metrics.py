"""The counters that are asked for, by ncu's names, and how those of several launches add up.

Names are Nsight Compute's, held against the lists of 2025.3 for compute capability 7.5 to 12.0
(`ncu --query-metrics --chips tu102`, ga100, ga102, ad102, gh100, gb100, gb202). One that a chip does not have
is absent from ncu's table or `n/a` in it, so every figure says for itself whether it is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeper.profile.raw_csv import Launched

__all__ = ["METRICS", "STALLS", "TENSOR_PIPES", "combined"]

DURATION = "gpu__time_duration.sum"

_STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
# Why a warp that has an instruction left does not issue it in a cycle (Kernel Profiling Guide, warp states).
_REASONS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
STALLS: Mapping[str, str] = {reason: _STALLED.format(reason) for reason in _REASONS}
"""By reason, the metric of the warps in that state, on average, when one instruction is issued."""

# On compute capability 9.0 the first counts wgmma, too.
TENSOR_PIPES: tuple[str, ...] = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)

METRICS: tuple[str, ...] = (
    DURATION,
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__m_l1tex2xbar_write_bytes.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sector_hit_rate.pct",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_sector_hit_rate.pct",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_bank_conflicts_type_arbitration.sum",
    "smsp__inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_local_st.sum",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "smsp__sass_branch_targets.sum",
    "smsp__sass_branch_targets_threads_divergent.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "launch__grid_size",
    "launch__registers_per_thread",
    "launch__waves_per_multiprocessor",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "sm__inst_executed.avg.per_cycle_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",
    *TENSOR_PIPES,
    *STALLS.values(),
)


def combined(launches: Sequence[Launched]) -> dict[str, float]:
    """The launches as one: sums are added, everything else is weighted by the launches' durations.

    A metric that one of them lacks is left out; so is a launch configuration (`launch__…`) of several, and
    whatever ncu tells of the device and itself unasked.
    """
    if len(launches) == 1:
        return {
            n: value for n, value in launches[0].metrics.items() if n in METRICS or n.startswith("launch__")
        }
    spans = [launched.metrics.get(DURATION, 0.0) for launched in launches]
    total = sum(spans)
    shared = set.intersection(*(set(launched.metrics) for launched in launches)) if launches else set()
    out = {}
    for name in shared & set(METRICS):
        values = [launched.metrics[name] for launched in launches]
        if name.endswith(".sum"):
            out[name] = sum(values)
        elif not name.startswith("launch__") and total > 0:
            out[name] = sum(v * span for v, span in zip(values, spans, strict=True)) / total
    return out
