"""The keys of the configuration, each in a line: for `--help` and for the shell's completion, without Hydra."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FLAGS", "KEYS", "Key"]

_BOOL = ("true", "false")
_COMPILERS = ("auto", "nvcc", "nvrtc", "host")


@dataclass(frozen=True, slots=True)
class Key:
    """A key by its full name, what it means, and the values that it may have where these are few.

    `everyday` ones are those that `--help` shows; `is_path` says that the value names a file or a folder;
    `default` is what holds where neither the user nor a file of `conf/` says anything.
    """

    name: str
    meaning: str
    choices: tuple[str, ...] = ()
    everyday: bool = False
    is_path: bool = False
    default: str | None = None


KEYS = (
    Key("search.name", "which search"),
    Key("search.budget", "how many distinct configurations are asked; null: all", everyday=True),
    Key("search.seed", "the same seed asks the same configurations in the same order", everyday=True),
    Key("search.lookahead", "how many are asked before the first of them is told"),
    Key("search.objective", "the least time or the most GFLOP/s, which rank alike", ("time_ms", "gflops")),
    Key("search.direction", "the objective's own", ("minimize", "maximize")),
    Key("search.default_first", "ask the kernel's default configuration before all others", _BOOL),
    Key("search.options", "options of the search"),
    Key("search.learn_from", "tables of the same kernel that a guided search begins with, or neighbours", is_path=True),
    Key("measure.name", "what the protocol is called"),
    Key("measure.warmup_ms", "how long the device must have worked before the first sample, ms"),
    Key("measure.min_samples", "never fewer samples"),
    Key("measure.max_samples", "never more samples"),
    Key("measure.max_seconds", "sampling of a configuration ends after this, s"),
    Key("measure.relative_width", "sampling ends once the median's 95 % interval is this narrow"),
    Key("measure.stopping", "what ends the sampling before its limits", ("width", "entropy", "either", "both")),
    Key("measure.entropy_bits", "how much the samples' entropy may still change, bits"),
    Key("measure.stop_factor", "one this many times slower than the best is not sampled in full; null: all are"),
    Key("measure.stop_above_ms", "one surely slower than this is not sampled in full, ms"),
    Key("measure.confirm", "how many of the best are timed once more, in turns with the library", everyday=True),
    Key("measure.confirm_blocks", "in how many blocks of random order"),
    Key("measure.least_effect", "a relative difference below this is none"),
    Key("measure.cache", "the L2 cache before each sample", ("cold", "warm", "both"), everyday=True),
    Key("measure.graph_below_ms", "a launch shorter than this is timed as a CUDA graph, ms; 0: never"),
    Key("measure.clock_tolerance", "samples at an SM clock this far below the run's are taken again; null: all count"),
    Key("measure.recovery_s", "how long a configuration may wait for the clock to come back, s"),
    Key("measure.lock_clocks", "hold the SM clock: base, max or MHz", ("base", "max")),
    Key("measure.verify_launches", "launches proved right before the timing"),
    Key("measure.deadline_s", "a configuration that takes longer is ended as a timeout, s"),
    Key("measure.emulated_blocks", "the most blocks that the emulator runs of a large grid; 0: all"),
    Key("measure.allow_nondeterministic", "leave out the note that results differ between launches", _BOOL),
    Key("measure.objective", "what the best has least of", ("time", "energy", "both"), everyday=True, default="time"),
    Key("measure.energy_seconds", "how long a configuration is launched for its energy, s"),
    Key("measure.transfers", "time copies between host and device, and the CPU's own product", _BOOL),
    Key("backend.name", "where kernels run", ("auto", "cuda", "emulator", "replay")),
    Key("backend.device", "the GPU's index, in the order of nvidia-smi", everyday=True, default="0"),
    Key("backend.devices", "several GPUs that serve one search: [0,1], or all", ("all",), everyday=True),
    Key("backend.mixed_devices", "let them be of different products", _BOOL),
    Key("backend.allow_shared", "use a GPU that other processes are using", _BOOL),
    Key(
        "backend.target",
        "the GPU assumed where there is none",
        ("a100", "b200", "h100", "h200", "l40s", "rtx2080ti", "rtx3090", "rtx4090", "t4", "v100"),
        everyday=True,
        default="h200",
    ),
    Key("backend.path", "the table that backend=replay reads", is_path=True),
    Key("engine.name", "who runs devices and builds: this process or a Ray cluster", ("local", "ray")),
    Key("engine.address", "the cluster to join; null: one is started here and ended", ("auto",)),
    Key("engine.gpus", "how many GPUs of the cluster serve; null: all that are free"),
    Key("engine.cpus", "how many builds run at once in the cluster; null: one a processor"),
    Key("engine.accelerator", "use only GPUs that Ray calls this"),
    Key("build.compiler", "nvcc or nvrtc on a GPU, host in the emulator", _COMPILERS, everyday=True),
    Key("build.workers", "compilers side by side; 0: one a processor"),
    Key("build.deadline_s", "a compilation that takes longer is ended, s"),
    Key("build.cache", "keep what is compiled for later runs", _BOOL),
    Key("shapes", "several shapes that share the search's budget, in place of shape: [small,256x512x64]"),
    Key("baseline", "libraries measured beside the kernel on a GPU; []: none", everyday=True),
    Key("results_dir", "the folder that is filled; null: results/runs/<time>-<names>", everyday=True, is_path=True),
    Key("store", "where rows go: study.db in the folder, or the server in SWEEPER_STORE_URL", ("sqlite", "postgresql")),
    Key("resume", "answer from earlier runs what they measured under equal conditions", _BOOL, everyday=True),
    Key("seed", "the seed of the input arrays"),
    Key("fail_fast", "stop at the first configuration that fails", _BOOL, everyday=True),
    Key("dry_run", "say what would be done, and stop", _BOOL, everyday=True),
    Key("plan.form", "plan=true: say what the jobs would cost in GPU-hours, and stop", ("text", "json"), everyday=True),
    Key("plan.rates", "results to take past rates from, beside those of earlier runs", is_path=True),
    Key("plan.devices", "how many GPUs share the jobs; null: one job after another"),
    Key("report", "what the command says of all its jobs at the end", ("course", "pitfalls", "roofline")),
    Key("pitfalls", "the pairs of report=pitfalls"),
    Key("benchmark", "hold searches against each other on recorded tables: experiment=search_benchmark"),
)  # fmt: skip

FLAGS = {
    "--help": "this page; with kernel=NAME that kernel's parameters",
    "--multirun": "a job for every combination of the values listed with commas (-m)",
    "--config-dir": "a folder of your own kernels and options (-cd)",
    "--cfg": "print the composed configuration: job, hydra or all (-c)",
    "--dry-run": "the same as dry_run=true",
    "--plan": "the same as plan=true",
    "--fail-fast": "the same as fail_fast=true",
    "--info": "how the configuration was composed (-i)",
    "--hydra-help": "Hydra's own help",
    "--shell-completion": "install=bash, zsh or fish prints the code for the shell (-sc)",
    "--version": "the version",
}
