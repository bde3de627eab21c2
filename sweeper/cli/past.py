"""What earlier runs have left that a plan can use: their rates, and the rows that would answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import cast

from sweeper.cli.storing import STORE_FILE
from sweeper.config import Config
from sweeper.device import DeviceIdentity, Target, target
from sweeper.errors import SweeperError
from sweeper.evaluate import Evaluator
from sweeper.model import KernelSpec, Point, Role, TimeSource
from sweeper.plan import Rate, rates_of
from sweeper.problem import resolve
from sweeper.results import Results, read_results
from sweeper.space import Space
from sweeper.tune import Study

__all__ = ["Past", "Stored"]

_log = logging.getLogger(__name__)
_MOST_STORES = 200
_EARLIER = "earlier runs"


@dataclass(frozen=True, slots=True)
class Stored:
    """Of one study's configurations, how many `rows` there are; which `libraries` have one; whether finalists were
    timed in turns."""

    rows: int
    libraries: frozenset[str]
    confirmed: bool


@dataclass(frozen=True, slots=True)
class _World:
    """As much of an evaluator as the context of a study takes."""

    backend: str
    time_source: TimeSource
    target: Target
    identity: DeviceIdentity
    compiler: str


class Past:
    """The stores of the results `folder`, of the folders in `earlier`, and the results that `named` are."""

    def __init__(self, folder: Path, earlier: Path | None, named: Sequence[str]) -> None:
        own = [folder / STORE_FILE, *sorted(folder.glob(f"jobs/*/{STORE_FILE}"))]
        others = _newest(earlier)[:_MOST_STORES] if earlier is not None else []
        self._answering = list(_readable([path for path in own if path.is_file()] + others))
        # What is named must be there.
        self._named = read_results([Path(path) for path in named])

    @cached_property
    def rates(self) -> list[Rate]:
        """Rates of all of them."""
        found = [replace(rate, source=_EARLIER) for one in self._answering for rate in rates_of(one)]
        return found + [rate for one in self._named for rate in rates_of(one)]

    def rates_on(self, limits: Target) -> list[Rate]:
        """Those of a GPU of the same product, and those that name none."""
        same = {
            name: not name or limits.name in _names(name) for name in {rate.device for rate in self.rates}
        }
        return [rate for rate in self.rates if same[rate.device]]

    def stored(self, spec: KernelSpec, dims: Mapping[str, int], config: Config, space: Space) -> Stored:
        """The rows that would answer for this study on a device, with a driver and a compiler, that have rows of it.

        Where there are rows of several such worlds, those of the one that has most.
        """
        worlds = (
            self._of_world(spec, dims, config, space, world) for world in self._worlds(spec, dims, config)
        )
        return max(worlds, key=lambda stored: stored.rows, default=Stored(0, frozenset(), confirmed=False))

    def _worlds(self, spec: KernelSpec, dims: Mapping[str, int], config: Config) -> Iterator[_World]:
        backend = "cuda" if config.backend.name == "auto" else config.backend.name
        told = json.dumps(dict(dims))
        seen = set()
        for one in self._answering:
            table = one.trials
            rows = table[
                (table["kernel"] == spec.name) & (table["backend"] == backend) & (table["dims"] == told)
            ]
            columns = ["device", "driver", "compiler"]
            for device, driver, compiler in (
                rows[columns].drop_duplicates().fillna("").itertuples(index=False)
            ):
                seen.add((str(device), str(driver), str(compiler)))
        source = TimeSource.MEASURED if backend == "cuda" else TimeSource.PREDICTED
        for device, driver, compiler in sorted(seen):
            for limits in _targets(device, config.backend.target):
                yield _World(backend, source, limits, DeviceIdentity(device, driver=driver), compiler)

    def _of_world(
        self, spec: KernelSpec, dims: Mapping[str, int], config: Config, space: Space, world: _World
    ) -> Stored:
        problem = resolve(spec, dims, spec.default_point, seed=config.seed)
        study = Study(
            spec=spec,
            dims=dims,
            shape="",
            seed=config.seed,
            flops=problem.flops,
            bytes=problem.bytes,
            evaluator=cast(Evaluator, world),
            protocol=config.measure.conditions(),
        )
        points, libraries, confirmed = set(), set(), False
        for one in self._answering:
            rows = one.trials[one.trials["context"] == study.context]
            for role, name, params in rows[["role", "kernel", "params"]].itertuples(index=False):
                if role == Role.BASELINE.value:
                    libraries.add(str(name))
                elif space.row(Point.of(json.loads(params))) is not None:
                    points.add(params)
            studies = set(rows["study"])
            confirmed = confirmed or any(final.study in studies for final in one.finals)
        return Stored(len(points), frozenset(libraries), confirmed)


def _names(device: str) -> list[str]:
    return [limits.name for limits in _targets(device)]


def _targets(*names: str) -> list[Target]:
    """The targets of these names, of products or as a driver says them; each once."""
    found: dict[str, Target] = {}
    for name in names:
        try:
            limits = target(name)
        except SweeperError:
            continue
        found.setdefault(limits.name, limits)
    return list(found.values())


def _newest(root: Path) -> list[Path]:
    dated: list[tuple[float, Path]] = []
    for path in root.glob(f"*/{STORE_FILE}"):
        try:
            dated.append((path.stat().st_mtime, path))
        except OSError:
            continue
    return [path for _, path in sorted(dated, reverse=True)]


def _readable(paths: Sequence[Path]) -> Iterator[Results]:
    for path in paths:
        try:
            yield from read_results([path])
        except SweeperError as error:
            _log.debug("%s is not used: %s", path, error)
