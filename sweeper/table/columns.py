"""The columns of a results table, in reading order: which configuration, how it ended, how fast, why.

Every table has all of them, whatever kernel it is of. A kernel's parameters are columns of their own,
`param_` and the parameter's name, after `k`; the `params` column holds the same as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COLUMNS", "LATER", "NAMES", "PARAM_PREFIX", "Column"]

PARAM_PREFIX = "param_"
INTEGER, REAL, TEXT = "Int64", "Float64", "string"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `unit` is empty for text and plain numbers, `dtype` a nullable pandas type."""

    name: str
    unit: str
    meaning: str
    dtype: str


COLUMNS: tuple[Column, ...] = (
    Column("study", "", "one kernel at one shape on one device, and all else a result depends on", TEXT),
    Column("trial", "", "number within the study, in asked order; 0 or less for a library's kernel", INTEGER),
    Column("role", "", "candidate, or baseline for a library's kernel", TEXT),
    Column("kernel", "", "the kernel's name, or the library's", TEXT),
    Column("dtype", "", "precision class", TEXT),
    Column("shape", "", "the shape's name, or its sizes", TEXT),
    Column("m", "elements", "size M; blank where the problem has none", INTEGER),
    Column("n", "elements", "size N", INTEGER),
    Column("k", "elements", "size K", INTEGER),
    Column("status", "", "ok, or how the configuration failed; only ok may rank", TEXT),
    Column("time_ms", "ms", "median time of a launch, measured, predicted or replayed", REAL),
    Column("time_low_ms", "ms", "lower end of the median's 95 % interval (distribution-free)", REAL),
    Column("time_high_ms", "ms", "upper end of the median's 95 % interval", REAL),
    Column("time_min_ms", "ms", "least time measured", REAL),
    Column("samples", "", "timed samples", INTEGER),
    Column("effective_samples", "", "how many independent samples they are worth", REAL),
    Column("stopped_by", "", "what ended the sampling: precise, entropy, both, or a limit", TEXT),
    Column("discarded_samples", "", "samples taken at a clock held down, which do not count", INTEGER),
    Column("cold_ms", "ms", "median time with a cold L2; blank where it was not measured", REAL),
    Column("cold_low_ms", "ms", "lower end of its 95 % interval", REAL),
    Column("cold_high_ms", "ms", "upper end of its 95 % interval", REAL),
    Column("warm_ms", "ms", "median time with a warm L2; blank where it was not measured", REAL),
    Column("warm_low_ms", "ms", "lower end of its 95 % interval", REAL),
    Column("warm_high_ms", "ms", "upper end of its 95 % interval", REAL),
    Column("gflops", "GFLOP/s", "10^9 operations a second at time_ms", REAL),
    Column("percent_of_library", "%", "library's time / time_ms, of the fastest library of the study", REAL),
    Column("percent_of_roofline", "%", "least time the device allows / time_ms", REAL),
    Column("time_source", "", "measured, predicted by the static model, or replayed", TEXT),
    Column("method", "", "clock and batching of the samples", TEXT),
    Column("cache", "", "cold or warm L2 before each sample of time_ms", TEXT),
    Column("sm_clock_mhz", "MHz", "SM clock while timing", REAL),
    Column("memory_clock_mhz", "MHz", "memory clock while timing", REAL),
    Column("power_w", "W", "power drawn while timing", REAL),
    Column("temperature_c", "°C", "the device's temperature after timing", REAL),
    Column("locked_clock", "", "the clock that was held: base, max or MHz; blank where none was", TEXT),
    Column("objective", "", "what the search was after: energy or both; blank where it was time alone", TEXT),
    Column("energy_j", "J", "energy of a launch, back to back with a warm L2, idle power included", REAL),
    Column("energy_low_j", "J", "lower end of its 95 % interval, from windows of the run", REAL),
    Column("energy_high_j", "J", "upper end of its 95 % interval", REAL),
    Column("energy_w", "W", "mean power meanwhile", REAL),
    Column("gflops_per_w", "GFLOP/s/W", "10^9 operations a joule, at energy_j", REAL),
    Column("energy_source", "", "counter, the device's own meter, or power, readings summed up", TEXT),
    Column("h2d_ms", "ms", "all inputs to the device, from pageable memory; blank unless asked for", REAL),
    Column("d2h_ms", "ms", "all outputs back to the host, into pageable memory", REAL),
    Column("h2d_pinned_ms", "ms", "all inputs to the device, from pinned memory", REAL),
    Column("d2h_pinned_ms", "ms", "all outputs back to the host, into pinned memory", REAL),
    Column("cpu_ms", "ms", "the same product by NumPy on the host's CPU", REAL),
    Column("cpu_note", "", "type and threads of that product, and whether it was a part of it", TEXT),
    Column("stage", "", "where the configuration stood when it ended", TEXT),
    Column("reason", "", "why it failed, in one line", TEXT),
    Column("exception", "", "type of the error behind the reason", TEXT),
    Column("note", "", "what else a reader should know of this row", TEXT),
    Column("registers", "", "registers a thread", INTEGER),
    Column("shared_bytes", "B", "shared memory a block, static and dynamic", INTEGER),
    Column("spill_bytes", "B", "register spills a thread, stores and loads", INTEGER),
    Column("local_bytes", "B", "local memory a thread", INTEGER),
    Column("threads", "", "threads a block", INTEGER),
    Column("blocks", "", "blocks of the grid", INTEGER),
    Column("occupancy", "", "resident warps / most the SM can hold, 0 to 1", REAL),
    Column("limited_by", "", "what bounds the predicted time or the occupancy", TEXT),
    Column("error_ratio", "", "largest error / its bound; at most 1 passes", REAL),
    Column("max_error", "", "largest absolute error", REAL),
    Column("error_index", "", "where the largest error is, as JSON", TEXT),
    Column("wrong", "elements", "elements outside the bound or not finite", INTEGER),
    Column("checked", "elements", "elements compared", INTEGER),
    Column("check_note", "", "how the check was limited, or what it found beside errors", TEXT),
    Column("flops", "FLOP", "floating-point operations of the problem", INTEGER),
    Column("bytes", "B", "compulsory memory traffic of the problem", INTEGER),
    Column("build_s", "s", "time to compile; blank where the row is not measured", REAL),
    Column("measure_s", "s", "time to verify and measure; blank where the row is not measured", REAL),
    Column("backend", "", "what ran it: cuda, emulator, replay", TEXT),
    Column("device", "", "the device's name", TEXT),
    Column("device_uuid", "", "which device of that name", TEXT),
    Column("driver", "", "driver version", TEXT),
    Column("compiler", "", "compiler and version", TEXT),
    Column("options", "", "compiler options; paths by their last part", TEXT),
    Column("kernel_digest", "", "digest of the source and its headers", TEXT),
    Column("seed", "", "seed of the input arrays", INTEGER),
    Column("context", "", "digest of everything but the parameters that the result depends on", TEXT),
    Column("dims", "", "every size of the problem, as JSON", TEXT),
    Column("params", "", "every parameter, as JSON", TEXT),
)

NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)

LATER = frozenset(
    {
        "effective_samples", "stopped_by", "discarded_samples", "cold_ms", "cold_low_ms", "cold_high_ms",
        "warm_ms", "warm_low_ms", "warm_high_ms", "memory_clock_mhz", "power_w", "temperature_c",
        "objective", "energy_j", "energy_low_j", "energy_high_j", "energy_w", "gflops_per_w", "energy_source",
        "locked_clock", "h2d_ms", "d2h_ms", "h2d_pinned_ms", "d2h_pinned_ms", "cpu_ms", "cpu_note",
    }
)  # fmt: skip
"""Columns that tables of the first version lack; they are read as blank."""
