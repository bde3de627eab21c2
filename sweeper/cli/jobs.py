"""The jobs of one command and the one folder they fill: a store, and the tables exported from it.

A multirun's jobs share the folder, so its tables need no merging: they are exports of one store.
A job that fails says so and ends with a code; the others run.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from sweeper.cli import terminal
from sweeper.cli.command_line import Arguments
from sweeper.cli.yaml_lint import lint
from sweeper.config import Config, validate
from sweeper.errors import INTERRUPTED, ConfigError, NoValidConfiguration, StorageError, SweeperError
from sweeper.model import Status, TimeSource
from sweeper.paths import conf_dir, kernels_dir

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from sweeper.store import Store

__all__ = ["Jobs"]


class Jobs:
    """Runs the jobs Hydra composes for `arguments`; `given` is the command line as typed."""

    def __init__(self, arguments: Arguments, given: Sequence[str]) -> None:
        self._arguments = arguments
        self._given = list(given)
        self._out = terminal.console()
        self._store: Store | None = None
        self._flat_kernels: dict[str, Path] = {}
        self._exit_code = 0
        self._said: set[str] = set()
        self._began = False
        self._counts: Counter[str] = Counter()
        self._errors: list[str] = []
        self._stopped_at: int | None = None
        self._number = 0
        # What was composed has the last word: an experiment may be a multirun by itself.
        self._multirun = arguments.multirun
        self._reported: Config | None = None
        self._facts: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def registered(self) -> Iterator[None]:
        """Let Hydra know one-off shapes, and kernels that lie directly in a `--config-dir`, for this command."""
        from hydra.core.config_store import ConfigStore

        self._claim_folder()
        known = ConfigStore.instance()
        added: list[tuple[str, str]] = []
        try:
            for name, sizes in self._arguments.shapes.items():
                known.store(group="shape", name=name, node={"name": None, **sizes})
                added.append(("shape", name))
            for folder in self._arguments.config_dirs:
                self._find_kernels(folder)
            for name, path in self._flat_kernels.items():
                known.store(group="kernel", name=name, node=yaml.safe_load(path.read_text(encoding="utf-8")))
                added.append(("kernel", name))
            yield
        finally:
            for group, name in added:
                known.repo[group].pop(f"{name}.yaml", None)

    def _claim_folder(self) -> None:
        """Make the results folder now: where that cannot be done, nothing else is worth beginning."""
        if self._arguments.shows:
            return
        try:
            self._arguments.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"results folder {self._arguments.folder}: {error.strerror or error}",
                hint="name another with results_dir=PATH",
            ) from None

    def _find_kernels(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigError(f"--config-dir {folder}: no such folder")
        self._warn_hidden(folder)
        for path in sorted(folder.glob("*.yaml")):
            lint(path)
            node = yaml.safe_load(path.read_text(encoding="utf-8"))
            described = isinstance(node, Mapping) and {"source", "entry"} <= set(node)
            if described and not (conf_dir() / "kernel" / path.name).is_file():
                self._flat_kernels[path.stem] = path

    def _warn_hidden(self, folder: Path) -> None:
        for path in [*folder.glob("*/*.yaml"), *folder.glob("*.yaml")]:
            group = path.parent.name if path.parent != folder else "kernel"
            if (conf_dir() / group / path.name).is_file():
                print(  # noqa: T201
                    f"warning: {path} is hidden by the shipped {group}={path.stem}; give it another name",
                    file=sys.stderr,
                )

    def run(self, node: DictConfig) -> None:
        """One job. An error of ours is printed and becomes the exit code; the next job still runs.

        With `fail_fast` it does not, once a configuration or a job has failed.
        """
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        self._began = True
        self._multirun = _is_multirun()
        self._number += 1
        if self._stopped_at is not None:
            return
        started = datetime.now(UTC)
        facts: dict[str, Any] = {}
        resolved: dict[str, Any] = {}
        code, ruled_out = SweeperError.exit_code, False
        try:
            try:
                resolved = cast(
                    dict[str, Any], OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
                )
            except OmegaConfBaseException as error:
                raise ConfigError(f"configuration: {error}") from None
            config = validate(resolved)
            self._reported = config if config.report else None
            code = self._job(config, facts)
            ruled_out = self._reported is not None and _ruled_out(code, facts)
            code = 0 if ruled_out else code
        except SweeperError as error:
            code = error.exit_code
            facts["error"] = str(error)
            self._failed(error)
        except KeyboardInterrupt:
            code = INTERRUPTED
            facts["error"] = "interrupted"
            raise
        finally:
            self.ended(code)
            self._facts.append(facts)
            self._counts.update(facts.get("statuses", {}))
            failed = "error" in facts or set(facts.get("statuses", {})) - {Status.OK.value}
            if failed and not ruled_out and resolved.get("fail_fast") is True:
                self._stopped_at = self._number
            if self._store is not None:
                self._record(resolved, facts, code, started)

    def _failed(self, error: SweeperError) -> None:
        """Say what is wrong and, of several jobs, with which."""
        which = self._this_job() if self._multirun else ""
        self._errors.append(f"{which}{error.message.splitlines()[0]}")
        print(f"error: {which}{error}", file=sys.stderr)  # noqa: T201

    def _this_job(self) -> str:
        """`job 2 (kernel=tiled shape=odd): `: the job by its number and what was asked of it."""
        from hydra.core.hydra_config import HydraConfig

        own = ("results_dir=", "shape.name=")
        asked = [o.lstrip("+") for o in HydraConfig.get().overrides.task]
        return f"job {self._number} ({' '.join(o for o in asked if not o.startswith(own))}): "

    def _job(self, config: Config, facts: dict[str, Any]) -> int:
        from sweeper.cli import session

        if config.benchmark is not None:
            from sweeper.cli.search_benchmark import run_benchmark

            return run_benchmark(config.benchmark, self._arguments.folder, self._out)
        job = session.Job(
            config,
            self._kernel_path(),
            self._open_store,
            self._arguments.earlier,
            brief=self._multirun,
        )
        return session.run(job, self._out, self._say_once, facts)

    def _open_store(self) -> Store:
        from sweeper.store import Store

        if self._store is None:
            self._store = Store(self._arguments.folder / "study.db")
            for note in self._store.notes:
                self._say_once(note)
            earlier = len(self._store.runs())
            if earlier:
                self._say_once(
                    f"{self._arguments.folder} holds {_plural(earlier, 'earlier run')}; this one is added"
                )
        return self._store

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._out.print(text)

    def _kernel_path(self) -> Path:
        """The YAML file that the job's kernel came from, linted where it is the user's own."""
        from hydra.core.hydra_config import HydraConfig

        runtime = HydraConfig.get().runtime
        choice = str(runtime.choices["kernel"])
        for source in runtime.config_sources:
            path = Path(source.path) / "kernel" / f"{choice}.yaml"
            if source.provider != "schema" and path.is_file():
                if Path(source.path) != conf_dir():
                    lint(path)
                return path
        if choice in self._flat_kernels:
            return self._flat_kernels[choice]
        return kernels_dir() / f"{choice}.yaml"

    def _record(
        self, config: Mapping[str, Any], facts: Mapping[str, Any], code: int, started: datetime
    ) -> None:
        from sweeper.provenance import run_record

        if self._store is None:
            return
        record = run_record(
            command=["python", "-m", "sweeper", *self._given],
            # The folder is where the record lies; its path is the machine's own affair.
            config={k: v for k, v in config.items() if k != "results_dir"},
            started=started,
            facts={**facts, "exit_code": code},
        )
        self._store.add_run(record)

    def ended(self, code: int) -> None:
        """Note how a job ended: the gravest end is the command's."""
        self._exit_code = max(self._exit_code, code)

    def stopped(self, code: int) -> None:
        """Hydra ended with `code`: its own word on the command line, or an error that is no one's word."""
        self.ended(SweeperError.exit_code if code and self._began else ConfigError.exit_code if code else 0)

    def close(self) -> int:
        """Export the tables, say where they are, and give the command's exit code."""
        if self._store is None:
            with contextlib.suppress(OSError):
                self._arguments.folder.rmdir()
            return self._exit_code
        from sweeper.cli.export import export_folder
        from sweeper.cli.reports import report

        folder = self._arguments.folder
        try:
            table = export_folder(self._store, folder)
            if self._reported is not None and self._exit_code != INTERRUPTED:
                confirmed = self._store.confirmed()
                own = self._arguments.config_dirs
                code = report(self._reported, table, confirmed, self._facts, folder, self._out, own)
                self.ended(code)
            elif self._multirun and (table["status"] == Status.OK.value).any():
                self._out.print(terminal.merged_table(table))
            if self._multirun:
                self._sum_up()
            if (table["time_source"] == TimeSource.PREDICTED.value).any():
                self._out.print("times are predicted; the results were proved right on this machine's CPU")
        except SweeperError as error:
            self.ended(error.exit_code)
            print(f"error: {error}", file=sys.stderr)  # noqa: T201
        finally:
            self._store.close()
        print(f"results: {folder}")  # noqa: T201
        return self._exit_code

    def _sum_up(self) -> None:
        """How many configurations of this command's jobs ended how, and which jobs did not get that far."""
        done = self._number if self._stopped_at is None else self._stopped_at
        counted = ", ".join(f"{count} {status}" for status, count in self._counts.most_common())
        self._out.print(
            f"{_plural(self._counts.total(), 'configuration')} in {_plural(done, 'job')}: {counted or 'none'}"
        )
        for error in self._errors:
            self._out.print(f"  {error}")
        if done < self._number:
            self._out.print(f"  {_plural(self._number - done, 'job')} not begun, for fail_fast")


def _is_multirun() -> bool:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return HydraConfig.get().mode is RunMode.MULTIRUN


def _ruled_out(code: int, facts: Mapping[str, Any]) -> bool:
    """Whether a job ended because its kernel cannot run here at all: in a report that is a line, no failure."""
    alone = dict(facts.get("statuses", {})) == {Status.INFEASIBLE.value: 1}
    return code == NoValidConfiguration.exit_code and alone


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
