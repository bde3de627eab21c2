"""The jobs of one command and the one folder they fill: a store, and the tables exported from it.

A multirun's jobs share the folder, so its tables need no merging: they are exports of one store. Where a Hydra
launcher runs jobs in processes of their own (`sweeper.cli.apart`), each fills a store of its own, and what they
have left on the disk is gathered when the launcher is done. A job that fails says so and ends with a code; the
others run.
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
from sweeper.cli.described import flat_kernels, kernel_file
from sweeper.cli.job_record import JobRecord, read_records, set_aside_records
from sweeper.cli.planned import asked, plan_file, planned_jobs
from sweeper.cli.run_records import records_of
from sweeper.cli.storing import STORE_FILE, open_store, studies_in
from sweeper.cli.yaml_lint import lint
from sweeper.config import Config, validate
from sweeper.errors import INTERRUPTED, ConfigError, NoValidConfiguration, StorageError, SweeperError
from sweeper.model import Status, TimeSource
from sweeper.paths import conf_dir

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from sweeper.store import Store

__all__ = ["Jobs"]


class Jobs:
    """Runs the jobs Hydra composes for `arguments`; `given` is the command line as typed.

    `beside` are stores to answer from, beside those of `arguments.earlier`; `apart` says that this process runs one
    job of several, number `before` + 1, for a command elsewhere.
    """

    def __init__(
        self,
        arguments: Arguments,
        given: Sequence[str],
        *,
        beside: Sequence[Path] = (),
        before: int = 0,
        apart: bool = False,
    ) -> None:
        self._arguments = arguments
        self._given = list(given)
        self._beside = beside
        self._apart = apart
        self._out = terminal.console(plain=apart)
        self._store: Store | None = None
        self._kind = "sqlite"
        self._own_runs: list[dict[str, Any]] = []
        self._flat_kernels: dict[str, Path] = {}
        self._exit_code = 0
        self._said: set[str] = set()
        self._began = False
        self._counts: Counter[str] = Counter()
        self._errors: list[str] = []
        self._stopped = False
        self._not_begun = 0
        self._missing = 0
        self._number = before
        # What was composed has the last word: an experiment may be a multirun by itself.
        self._multirun = arguments.multirun
        self._several = False
        self._reported: Config | None = None
        self.records: list[JobRecord] = []

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
                self.find_kernels(folder)
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
            plan_file(self._arguments.folder).unlink(missing_ok=True)
            set_aside_records(self._arguments.folder)
        except OSError as error:
            raise StorageError(
                f"results folder {self._arguments.folder}: {error.strerror or error}",
                hint="name another with results_dir=PATH",
            ) from None

    def find_kernels(self, folder: Path) -> None:
        """Know the kernels that lie directly in `folder`, a `--config-dir`. Raises ConfigError."""
        if not folder.is_dir():
            raise ConfigError(f"--config-dir {folder}: no such folder")
        self._warn_hidden(folder)
        for path in sorted(folder.glob("*.yaml")):
            lint(path)
        self._flat_kernels |= flat_kernels(folder)

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
        if self._stopped:
            self.take(JobRecord(self._number, asked(), begun=False))
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
            code = self._job(config, facts)
            ruled_out = config.report is not None and _ruled_out(code, facts)
            code = 0 if ruled_out else code
        except SweeperError as error:
            code = error.exit_code
            facts["error"] = str(error)
            self._failed(error)
        except KeyboardInterrupt:
            code = INTERRUPTED
            facts["error"] = "interrupted"
            raise
        except Exception as error:
            facts["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            record = JobRecord(
                self._number,
                asked(),
                ended=True,
                code=code,
                ruled_out=ruled_out,
                facts=facts,
                config=resolved,
            )
            self.take(record)
            if self._store is not None:
                for own_config, own_facts in records_of(resolved, facts):
                    self._record(own_config, own_facts, code, started)

    def take(self, record: JobRecord) -> None:
        """Let a job that has ended, here or in another process, count for the command."""
        self.records.append(record)
        if not record.begun:
            self._not_begun += 1
            return
        self.ended(record.code)
        self._counts.update(record.facts.get("statuses", {}))
        self._stopped = self._stopped or record.stops_others
        if "error" in record.facts:
            which = f"{record.title}: " if self._multirun else ""
            self._errors.append(f"{which}{str(record.facts['error']).splitlines()[0]}")
        if record.config.get("report"):
            # What cannot be read has been told as an error already.
            with contextlib.suppress(ConfigError):
                self._reported = validate(record.config)

    def _failed(self, error: SweeperError) -> None:
        """Say what is wrong and, of several jobs, with which."""
        which = f"{JobRecord(self._number, asked()).title}: " if self._multirun else ""
        print(f"error: {which}{error}", file=sys.stderr)  # noqa: T201

    def _job(self, config: Config, facts: dict[str, Any]) -> int:
        from sweeper.cli import session

        if config.benchmark is not None:
            from sweeper.cli.search_benchmark import run_benchmark

            return run_benchmark(config.benchmark, self._arguments.folder, self._out, dry=config.dry_run)
        job = session.Job(
            config,
            self._kernel_path(),
            lambda: self._open_store(config.store),
            self._arguments.earlier,
            brief=self._multirun,
            beside=self._beside,
        )
        if config.shapes:
            from sweeper.cli import together

            self._several = True
            return together.run(job, self._arguments.config_dirs, self._out, self._say_once, facts)
        return session.run(job, self._out, self._say_once, facts)

    def _open_store(self, kind: str, *, gathers: bool = False) -> Store:
        """The command's one store. Raises ConfigError where another job's is of another kind."""
        if self._store is None:
            carried = self._apart or gathers
            self._store, self._kind = open_store(kind, self._arguments.folder, carried=carried), kind
            for note in self._store.notes:
                self._say_once(note)
            shared = self._store.path is None
            if shared and not self._apart:
                self._say_once(f"store: {self._store.label}")
            earlier = 0 if shared else len(self._store.runs())
            if earlier and not self._apart:
                self._say_once(
                    f"{self._arguments.folder} holds {_plural(earlier, 'earlier run')}; this one is added"
                )
        if kind != self._kind:
            raise ConfigError(f"store={kind}: this command's other jobs have store={self._kind}")
        return self._store

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._out.print(text)

    def _kernel_path(self) -> Path:
        """The YAML file that the job's kernel came from, linted where it is the user's own."""
        from hydra.core.hydra_config import HydraConfig

        path = kernel_file(HydraConfig.get().runtime, self._flat_kernels)
        # Those that lie elsewhere were linted when they were found, or are shipped.
        if path.parent.name == "kernel" and path.parent.parent != conf_dir():
            lint(path)
        return path

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
        self._own_runs.append(record)

    def ended(self, code: int) -> None:
        """Note how a job ended: the gravest end is the command's."""
        self._exit_code = max(self._exit_code, code)

    def stopped(self, code: int) -> None:
        """Hydra ended with `code`: its own word on the command line, or an error that is no one's word."""
        self.ended(SweeperError.exit_code if code and self._began else ConfigError.exit_code if code else 0)

    def close_store(self) -> None:
        """Close the store and leave the tables to another process."""
        if self._store is not None:
            self._store.close()

    def gather(self) -> None:
        """Take over what jobs in other processes have left on the disk, whatever became of these.

        Raises StorageError.
        """
        records = read_records(self._arguments.folder)
        if not records:
            return
        from sweeper.cli.merging import merge

        self._began = self._multirun = True
        stores = [folder / STORE_FILE for folder, _ in records]
        command = ["python", "-m", "sweeper", *self._given]
        kinds = [str(record.config["store"]) for _, record in records if "store" in record.config]
        into = self._open_store(kinds[0] if kinds else self._kind, gathers=True)
        # What went to a server is there already.
        merge([path for path in stores if path.is_file()], into, command)
        known = {record.number: record for _, record in records}
        planned = planned_jobs(self._arguments.folder)
        self._number = max([len(planned), *known])
        for number in range(1, self._number + 1):
            record = known.get(number)
            if record is not None and (record.ended or not record.begun):
                self.take(record)
                continue
            self._missing += 1
            told = record or JobRecord(number, planned[number - 1] if number <= len(planned) else "not known")
            why = "its process ended before it was done" if record else "it was never begun"
            self._errors.append(f"{told.title}: {why}")
            self.ended(SweeperError.exit_code)

    def close(self) -> int:
        """Export the tables, say where they are, and give the command's exit code."""
        try:
            self.gather()
        except SweeperError as error:
            self.ended(error.exit_code)
            print(f"error: {error}", file=sys.stderr)  # noqa: T201
        if self._store is None:
            with contextlib.suppress(OSError):
                self._arguments.folder.rmdir()
            return self._exit_code
        from sweeper.cli.export import Share, export_folder
        from sweeper.cli.reports import report

        folder = self._arguments.folder
        try:
            share = Share(self._store, self._studies(), tuple(self._own_runs))
            table = export_folder(share, folder)
            if self._reported is not None and self._exit_code != INTERRUPTED:
                confirmed = share.confirmed()
                own = self._arguments.config_dirs
                code = report(
                    self._reported, table, confirmed, [r.facts for r in self.records], folder, self._out, own
                )
                self.ended(code)
            elif (self._multirun or self._several) and (table["status"] == Status.OK.value).any():
                self._out.print(terminal.merged_table(table, self._out.width))
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

    def _studies(self) -> set[str] | None:
        """The studies of this command, where others have theirs in the same store; else None."""
        if self._store is None or self._store.path is not None:
            return None
        return {name for record in self.records for name in studies_in(record.facts)}

    def _sum_up(self) -> None:
        """How many configurations of this command's jobs ended how, and which jobs did not get that far."""
        done = self._number - self._not_begun - self._missing
        counted = ", ".join(f"{count} {status}" for status, count in self._counts.most_common())
        self._out.print(
            f"{_plural(self._counts.total(), 'configuration')} in {_plural(done, 'job')}: {counted or 'none'}"
        )
        for error in self._errors:
            self._out.print(f"  {error}")
        if self._not_begun:
            self._out.print(f"  {_plural(self._not_begun, 'job')} not begun, for fail_fast")
        if self._missing:
            jobs = "a job is" if self._missing == 1 else f"{self._missing} jobs are"
            self._out.print(
                f"{jobs} missing; the same command again, with this results_dir, does what is left"
            )


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
