"""`tune`: a search from Python. What it does, stores and may reuse is what the command line does."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.api.asked import Shape, as_overrides, literal, shape_overrides
from sweeper.api.composing import own_hydra
from sweeper.api.described import Kernel, Named, composer_for, named
from sweeper.api.result import TuneResult, result_of
from sweeper.errors import INTERRUPTED, ConfigError, StorageError, SweeperError

if TYPE_CHECKING:
    from rich.console import Console

    from sweeper.cli.command_line import Arguments
    from sweeper.config import Config
    from sweeper.store import Store

__all__ = ["tune"]

# Of a command, not of a single search.
_REFUSED = {
    "dry_run": "dry_run=true",
    "report": "a report",
    "benchmark": "a benchmark",
    "shapes": "one budget for several shapes",
}


def tune(
    kernel: Kernel,
    shape: Shape | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    layout: str | None = None,
    budget: int | str | None = None,
    search: str | None = None,
    seed: int | None = None,
    measure: str | None = None,
    backend: str = "auto",
    device: int | None = None,
    resume: bool = True,
    results_dir: Path | str | None = None,
    config_dir: Path | str | Sequence[Path | str] = (),
    overrides: Sequence[str] | Mapping[str, Any] = (),
    progress: bool = True,
) -> TuneResult:
    """Search the configurations of `kernel` at `shape` and give what was found.

    `kernel` is a shipped one's name, the path of a YAML file, or a description as a dict, whose `source` is the path
    of a `.cu` or the source itself. `shape` is a name (`"large"`), `"256x512x64"`, sizes in the order of the kernel's,
    or sizes by name; None: the kernel's own. `params` pins parameters (`{"tile": 16}`) or restricts them to levels
    (`{"tile": [8, 16]}`). `budget` counts configurations, `"all"` tries every one; `search` and `measure` name a
    search and a protocol of the command line, `backend` auto, cuda, emulator or replay; `overrides` are any other of
    its keys, as `["measure.confirm_blocks=20"]` or by key. What is None is as it is there.

    Results go to `results_dir`, by default to a new folder in `results/runs` of the current one, and what is there,
    or in earlier runs, under equal conditions is not run again (`resume`): rows are the command line's own, and either
    goes on from the other. `progress` prints a line every few seconds, or a bar on a terminal.

    Configurations that fail are rows. Raises ConfigError for what is wrong with the arguments, the kernel or the
    shape, SetupError where no compiler or device can be used, StorageError. An interrupt leaves in the folder what was
    measured, and is raised again. Nothing is left behind in the process: no signal handler, no state of Hydra's. It may
    be called from any thread; several at a time need a `results_dir` each, and share a GPU only in turns.
    """
    started = datetime.now(UTC)
    words = _words(params, dtype, layout, budget, search, seed, measure, backend, device, resume)
    words += as_overrides(overrides)
    folders = [config_dir] if isinstance(config_dir, str | Path) else list(config_dir)
    places = [Path(folder).expanduser().absolute() for folder in folders]
    arguments = _arguments(kernel, shape, words, results_dir)
    made = _claim(arguments, results_dir is None)
    arguments = replace(arguments, folder=made)
    try:
        with _worker_on_its_way(arguments):
            asked = _composed(kernel, shape, words, places, arguments)
            return _searched(asked, arguments, started, progress)
    finally:
        with contextlib.suppress(OSError):
            made.rmdir()  # Only where nothing came of it.


@dataclass(frozen=True, slots=True)
class _Asked:
    """One search, composed. `plain` is the whole configuration, `path` that of the description."""

    words: tuple[str, ...]
    plain: dict[str, Any]
    config: Config
    path: Path
    kernel: Named


def _words(
    params: Mapping[str, Any] | None,
    dtype: str | None,
    layout: str | None,
    budget: int | str | None,
    search: str | None,
    seed: int | None,
    measure: str | None,
    backend: str,
    device: int | None,
    resume: bool,
) -> list[str]:
    """What is not left to the configuration, as overrides; groups come first, for they bring their keys."""
    words = [f"search={search}"] if search is not None else []
    words += [f"measure={measure}"] if measure is not None else []
    words += [f"backend={backend}"] if backend != "auto" else []
    if isinstance(budget, str) and budget != "all":
        raise ConfigError(f"budget = {budget!r}", hint="give a number of configurations, or 'all'")
    values = {
        "kernel.dtype": dtype,
        "kernel.layout": layout,
        "search.budget": budget,
        "search.seed": seed,
        "backend.device": device,
        **{f"kernel.params.{name}": value for name, value in (params or {}).items()},
    }
    words += [f"{key}={literal(value, key)}" for key, value in values.items() if value is not None]
    words = [word if word != "search.budget=all" else "search.budget=null" for word in words]
    return words if resume else [*words, "resume=false"]


def _arguments(
    kernel: Kernel, shape: Shape | None, words: Sequence[str], results_dir: Path | str | None
) -> Arguments:
    """Where results go, and what of earlier ones may answer, as far as no configuration is needed for it."""
    title = kernel.get("name", "kernel") if isinstance(kernel, Mapping) else Path(kernel).stem
    shown = [f"shape={shape}"] if isinstance(shape, str) else []
    arguments = _normalised([f"kernel={literal(str(title), 'kernel')}", *shown, *words])
    if results_dir is None:
        return arguments
    return replace(arguments, folder=Path(results_dir).expanduser().absolute(), earlier=None)


def _normalised(words: Sequence[str]) -> Arguments:
    from sweeper.cli.command_line import normalise
    from sweeper.paths import conf_dir

    groups = [path.name for path in conf_dir().iterdir() if path.is_dir()]
    return normalise(words, groups=groups, default_root=Path.cwd() / "results" / "runs")


def _claim(arguments: Arguments, new: bool) -> Path:
    """Make the results folder; one that nobody named is made by nobody else. Raises StorageError."""
    folder = arguments.folder
    new = new and arguments.earlier is not None
    for number in itertools.count(2):
        try:
            folder.mkdir(parents=True, exist_ok=not new)
        except FileExistsError:
            if not new:
                raise StorageError(f"results folder {folder}: there is a file of that name") from None
            folder = arguments.folder.with_name(f"{arguments.folder.name}-{number}")
        except OSError as error:
            raise StorageError(
                f"results folder {folder}: {error.strerror or error}", hint="name another with results_dir="
            ) from None
        else:
            return folder
    raise AssertionError("numbers do not end")


@contextlib.contextmanager
def _worker_on_its_way(arguments: Arguments) -> Iterator[None]:
    """The process that will own the GPU loads while the configuration is composed."""
    from sweeper.cli.command_line import gpus_named
    from sweeper.worker.spare import drop_spare, keep_spare, may_need_gpu

    if not may_need_gpu():
        yield
        return
    try:
        for _ in range(gpus_named(arguments.hydra)):
            keep_spare("cuda")
        yield
    finally:
        drop_spare()


def _composed(
    kernel: Kernel,
    shape: Shape | None,
    words: Sequence[str],
    config_dirs: Sequence[Path],
    arguments: Arguments,
) -> _Asked:
    from sweeper.cli.command_line import Arguments as _Arguments
    from sweeper.config import validate

    chosen = named(kernel, arguments.folder)

    def hydra(normal: _Arguments) -> list[str]:
        # Where results go is no part of what is composed.
        own = ("hydra.run.dir=", "hydra.sweep.dir=", "++results_dir=")
        return [word for word in normal.hydra if not word.startswith(own)]

    with own_hydra():
        first = [f"kernel={chosen.choice}"]
        sizes: list[str] = []
        if shape is not None:
            dims = None
            if not isinstance(shape, str | Mapping):
                with composer_for(chosen, config_dirs) as composer:
                    _, plain = composer.resolved(hydra(_normalised(first)))
                dims = _required_dims(plain["kernel"])
            sizes = shape_overrides(shape, dims)
        normal = _normalised([*first, *sizes, *words])
        with composer_for(chosen, config_dirs, normal.shapes) as composer:
            name, plain = composer.resolved(hydra(normal))
            path = composer.kernels[name]
    config = validate(plain)
    for key, what in _REFUSED.items():
        if getattr(config, key, None):
            raise ConfigError(f"{what} is the command line's", hint="python -m sweeper …")
    told = (f"kernel={chosen.title}", *sizes, *words)
    return _Asked(told, plain, config, path, chosen)


def _required_dims(node: Mapping[str, Any]) -> list[str]:
    """The names of a description's sizes that do not follow from others, in order."""
    dims = node.get("dims", {})
    listed = dims if isinstance(dims, list) else [dims]
    found: dict[str, Any] = {}
    for item in listed:
        found |= item if isinstance(item, Mapping) else {str(item): None}
    return [name for name, value in found.items() if not isinstance(value, str)]


def _searched(asked: _Asked, arguments: Arguments, started: datetime, progress: bool) -> TuneResult:
    from sweeper.cli.export import Share, export_folder
    from sweeper.cli.session import Job, run
    from sweeper.cli.storing import open_store as store_of
    from sweeper.cli.storing import studies_in

    out = _console(progress)
    notes: list[str] = []
    say = _say_once(out, notes)
    facts: dict[str, Any] = {}
    code = SweeperError.exit_code
    with contextlib.ExitStack() as open_until_done:
        opened: list[Store] = []

        def open_store() -> Store:
            if not opened:
                store = store_of(asked.config.store, arguments.folder)
                opened.append(open_until_done.enter_context(store))
                for note in opened[0].notes:
                    say(note)
            return opened[0]

        try:
            job = Job(asked.config, asked.path, open_store, arguments.earlier, brief=True)
            code = run(job, out, say, facts)
        except SweeperError as error:
            code = error.exit_code
            facts["error"] = str(error)
            raise
        except KeyboardInterrupt as stop:
            code = INTERRUPTED
            facts["error"] = "interrupted"
            stop.add_note(
                f"what was measured is in {arguments.folder}: tune(…, results_dir=…) goes on from it"
            )
            raise
        finally:
            if opened:
                record = _record(asked, facts, code, started)
                opened[0].add_run(record)
                # Of a server, which others use too, only what this search was about.
                studies = None if opened[0].path is not None else studies_in(facts)
                export_folder(Share(opened[0], studies, (record,)), arguments.folder)
        return result_of(
            opened[0],
            arguments.folder,
            str(facts["study"]),
            kernel_node=asked.plain["kernel"],
            kernel_path=asked.path,
            notes=tuple(notes),
        )


def _record(asked: _Asked, facts: Mapping[str, Any], code: int, started: datetime) -> dict[str, Any]:
    from sweeper.provenance import run_record

    return run_record(
        command=["sweeper.tune", *asked.words],
        config={key: value for key, value in asked.plain.items() if key != "results_dir"},
        started=started,
        facts={**facts, "exit_code": code},
    )


def _console(progress: bool) -> Console:
    """What the search prints to. In a notebook it is plain text, like any other output."""
    from sweeper.cli import terminal

    out = terminal.console()
    out.quiet = not progress
    out.is_jupyter = False
    return out


def _say_once(out: Console, notes: list[str]) -> Callable[[str], None]:
    def say(text: str) -> None:
        if text not in notes:
            notes.append(text)
            out.print(text)

    return say
