"""From a finished search to verdicts: who is timed in turns, on which device, and what is said of it."""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_worker import spec_in
from test_group import BUILD, StubWorker, ticket, wait_for
from test_tune import DIMS, FakeWorld, Memory, by_tile, run, space, study_of

from sweeper.backend.base import Finalist, MeasureProtocol, Rounds, Turns
from sweeper.cli.verdicts import comparison_text, left_out, winner_line
from sweeper.config import MeasureConfig, validate
from sweeper.device import DeviceIdentity
from sweeper.errors import ConfigError, SetupError, TrialFailed
from sweeper.model import Build, Confirmed, Launch, Point, Role, Stage, Status
from sweeper.statistics import RatioInterval, Verdict
from sweeper.store import Store
from sweeper.store.recovery import recover
from sweeper.table import write_csv
from sweeper.table.confirmed import CONFIRMED, OPPONENT, WINNER_COLUMNS, confirmed_frame
from sweeper.table.standings import Comparison, latest, standings, winner_of
from sweeper.tune import Confirmation, Study, confirm
from sweeper.worker.finals import FinalsTicket, turns_of
from sweeper.worker.group import DeviceGroup
from sweeper.worker.operations import Operations

ROUNDS = Rounds(4)
LAUNCH = Launch((16, 16, 1), (8, 8, 1), 1024)


def finalists(*numbers: int) -> list[Finalist]:
    return [Finalist(Point.of({"number": n}), BUILD) for n in numbers]


def sticky(place: int | None, reason: str = "an illegal memory access") -> TrialFailed:
    details = {} if place is None else {"entrant": place, "sticky": True}
    return TrialFailed(Status.CRASH, Stage.LAUNCH, reason, details=details)


class Turning(StubWorker):
    """A device whose finalists each take as many ms as their number; `deadly` ones end the process."""

    def __init__(self, index: int = 0, deadly: Sequence[int] = (), *, known: bool = True) -> None:
        super().__init__(index, float)
        self.deadly = set(deadly)
        self.known = known
        self.asked: list[list[int]] = []
        self.protocols: list[MeasureProtocol] = []

    def confirm(
        self, finalists: Sequence[Finalist], protocol: MeasureProtocol, rounds: Rounds
    ) -> tuple[Turns, ...]:
        numbers = [int(f.point.params["number"]) if f.point else 0 for f in finalists]
        self.asked.append(numbers)
        self.protocols.append(protocol)
        for place, number in enumerate(numbers):
            if number in self.deadly:
                raise sticky(place if self.known else None)
        return tuple(Turns((float(number),) * rounds.count) for number in numbers)

    def measure(self, point: Point, build: Build, protocol: MeasureProtocol) -> Any:
        if point.params["number"] in self.deadly and not self.known:
            raise sticky(None, "it hangs")
        return super().measure(point, build, protocol)


class TestOneThatTakesTheProcessDown:
    def test_is_left_out_and_the_others_are_timed(self):
        worker = Turning(deadly=[2, 5])
        found = turns_of(worker, finalists(1, 2, 3, 5), MeasureProtocol(), ROUNDS)
        assert [one.times_ms for one in found] == [(1.0,) * 4, (), (3.0,) * 4, ()]
        assert found[1].reason == found[3].reason == "an illegal memory access"
        assert worker.asked == [[1, 2, 3, 5], [1, 3, 5], [1, 3]]

    def test_is_looked_for_where_nobody_can_say_which_one_it_was(self):
        worker = Turning(deadly=[3], known=False)
        found = turns_of(worker, finalists(1, 3, 4), MeasureProtocol(), ROUNDS)
        assert [one.reason for one in found] == ["", "it hangs", ""]
        assert worker.asked == [[1, 3, 4], [1, 4]]

    def test_is_nobody_to_be_blamed_where_each_runs_well_alone(self):
        class Haunted(Turning):
            def confirm(self, *_: Any) -> tuple[Turns, ...]:
                raise TrialFailed(Status.TIMEOUT, Stage.MEASURE, "no result within 60 s")

        with pytest.raises(TrialFailed, match="no result within"):
            turns_of(Haunted(), finalists(1, 2), MeasureProtocol(), ROUNDS)

    def test_may_be_all_of_them(self):
        found = turns_of(Turning(deadly=[1, 2]), finalists(1, 2), MeasureProtocol(), ROUNDS)
        assert [bool(one.reason) for one in found] == [True, True]


class TestAmongSeveralDevices:
    def test_one_is_chosen_once_nothing_is_queued(self):
        gate = threading.Event()

        def slow(number: int) -> float:
            gate.wait(20)
            return 1.0

        first, second = Turning(0), Turning(1)
        first.act = second.act = slow
        group = DeviceGroup([first, second], MeasureProtocol(stop_above_ms=0.5))  # type: ignore[list-item]
        group.prepare(study_of(FakeWorld(by_tile)).spec, DIMS, 1)
        group.ready()
        waiting = [ticket(n) for n in range(4)]
        for each in waiting:
            group.submit(each)
        finals = FinalsTicket(finalists(2, 3), ROUNDS)
        group.confirm(finals)
        assert not finals.turns.done()
        gate.set()
        assert [one.times_ms[0] for one in finals.turns.result(20)] == [2.0, 3.0]
        assert all(each.outcome.done() or each.device for each in waiting)
        assert finals.device == group.identities[0]
        assert second.asked == []
        assert first.protocols[0].stop_above_ms is None, "nothing is stopped early here"
        group.close()

    def test_the_first_that_is_still_there_is_chosen(self):
        def sick(number: int) -> float:
            raise SetupError("fallen off the bus")

        first, second = Turning(0), Turning(1)
        first.act = sick
        group = DeviceGroup([first, second], MeasureProtocol())  # type: ignore[list-item]
        group.prepare(study_of(FakeWorld(by_tile)).spec, DIMS, 1)
        group.ready()
        lost = [ticket(n) for n in range(4)]
        for each in lost:
            group.submit(each)
        wait_for(lambda: all(each.outcome.done() for each in lost))
        finals = FinalsTicket(finalists(2), ROUNDS)
        group.confirm(finals)
        finals.turns.result(20)
        assert finals.device is not None
        group.close()

    def test_closing_ends_what_waits(self):
        worker = Turning()
        group = DeviceGroup([worker], MeasureProtocol())  # type: ignore[list-item]
        group.close()
        finals = FinalsTicket(finalists(1), ROUNDS)
        group.confirm(finals)
        with pytest.raises(SetupError, match="closed"):
            finals.turns.result(20)


def test_a_backend_without_a_clock_says_so(tmp_path: Path) -> None:
    class Timeless:
        name = "emulator"

        def open(self, *_: Any) -> Any:
            from sweeper.device import target

            return target("h200"), DeviceIdentity("none")

        def prepare(self, *_: Any) -> None: ...

    ask = Operations(Timeless())  # type: ignore[arg-type]
    spec = spec_in(tmp_path)
    ask({"op": "open", "device": 0, "target": None})
    node = json.loads(spec.node_json)
    ask({"op": "prepare", "kernel": node, "path": str(spec.path), "dims": {"N": 4}, "seed": 1})
    request = {"finalists": [], "protocol": {}, "rounds": {"count": 4}}
    reply = ask({"op": "confirm", **request})
    assert reply["error"]["type"] == "SetupError"
    assert "no clock" in reply["error"]["message"]


# --- Who is in it ---------------------------------------------------------------------------------------


class World(FakeWorld):
    """Times finalists in turns: as long as the search said, but for those named in `truth`."""

    def __init__(self, *given: Any, truth: dict[int, float] | None = None, **options: Any) -> None:
        super().__init__(*given, **options)
        self.truth = truth or {}
        self.rounds: list[Rounds] = []
        self.entered: list[list[Any]] = []
        self.broken: dict[int, str] = {}
        self.fails: Exception | None = None
        self.short_of = 0

    def finalists(self, points: Sequence[Point]) -> list[Finalist | TrialFailed]:
        def built(point: Point) -> Finalist | TrialFailed:
            why = self.broken.get(int(point.params["tile"]))
            return (
                Finalist(point, BUILD) if why is None else TrialFailed(Status.BUILD_ERROR, Stage.BUILD, why)
            )

        return [built(point) for point in points]

    def confirm(
        self, finalists: Sequence[Finalist], rounds: Rounds
    ) -> tuple[tuple[Turns, ...], DeviceIdentity] | None:
        self.rounds.append(rounds)
        self.entered.append(
            [f.library or int(f.point.params["tile"]) for f in finalists if f.point or f.library]
        )
        if self.fails is not None:
            raise self.fails

        def turn(finalist: Finalist) -> Turns:
            tile = 0 if finalist.point is None else int(finalist.point.params["tile"])
            value = 0.5 if finalist.point is None else self.truth.get(tile, by_tile(finalist.point))
            times = [value * (1 + 0.001 * ((n + tile) % 3)) for n in range(rounds.count - self.short_of)]
            return Turns(tuple(times), build=finalist.build, launch=None if tile == 0 else LAUNCH)

        return tuple(turn(f) for f in finalists), self.identity


class Keeper(Memory):
    def __init__(self, earlier: Sequence[Confirmed] = ()) -> None:
        super().__init__()
        self.kept = list(earlier)
        self.keeps: list[int] = []

    def confirmed(self) -> list[Confirmed]:
        return list(self.kept)

    def keep(self, confirmed: Sequence[Confirmed]) -> None:
        self.kept = list(confirmed)
        self.keeps.append(len(confirmed[0].blocks_ms))


def confirmation(
    world: World, keeper: Keeper | None = None, finalists: int = 2, blocks: int = 12, **search: Any
) -> tuple[Confirmation, Keeper, Study]:
    keeper = keeper or Keeper()
    tally, _ = run(world, keeper, **search)
    study = study_of(world)
    found = confirm(study, space(), tally, keeper, finalists=finalists, blocks=blocks, least_effect=0.01)
    return found, keeper, study


def tiles(found: Confirmation) -> list[Any]:
    return [one.params.get("tile", one.kernel) for one in found.confirmed]


class TestWhoIsTimed:
    def test_the_best_few_the_default_and_the_libraries(self):
        world = World(by_tile)
        found, _, study = confirmation(world, baselines=("cublas",))
        assert tiles(found) == [32, 16, 2, "cublas"]
        assert [one.is_default for one in found.confirmed] == [False, False, True, False]
        assert found.confirmed[3].role is Role.BASELINE
        assert {one.study for one in found.confirmed} == {study.name}
        assert world.entered == [[32, 16, 2, "cublas"]] * 3

    def test_the_default_once_where_it_is_among_the_best(self):
        found, _, _ = confirmation(World(lambda p: float(p.params["tile"])))
        assert tiles(found) == [2, 4]

    def test_not_a_default_that_is_known_to_fail(self):
        wrong = TrialFailed(Status.WRONG_RESULT, Stage.VERIFY, "wrong")
        found, _, _ = confirmation(World(lambda p: wrong if p.params["tile"] == 2 else by_tile(p)))
        assert tiles(found) == [32, 16]

    def test_reused_trials_as_well_as_new_ones(self):
        _, before = run(World(by_tile))
        keeper = Keeper()
        keeper.earlier = {(t.role, t.point.key): t for t in before.trials}
        world = World(by_tile)
        found, _, _ = confirmation(world, keeper)
        assert world.finished == []
        assert tiles(found) == [32, 16, 2]

    def test_nobody_where_times_are_predicted(self):
        world = World(by_tile, measured=False)
        found, _, _ = confirmation(world)
        assert found == Confirmation()
        assert world.rounds == []

    def test_nobody_where_there_is_one_configuration_and_no_library(self):
        found, _, _ = confirmation(World(by_tile), search="grid", budget=1, finalists=1)
        assert found == Confirmation()


class TestTheBlocks:
    def test_are_kept_a_few_at_a_time_and_numbered_on(self):
        world = World(by_tile)
        found, keeper, _ = confirmation(world, blocks=10)
        assert [(r.first, r.count) for r in world.rounds] == [(0, 4), (4, 4), (8, 2)]
        assert keeper.keeps == [4, 8, 10]
        assert {len(one.blocks_ms) for one in found.confirmed} == {10}
        assert list(found.confirmed) == keeper.kept

    def test_say_what_the_configurations_cost(self):
        found, _, _ = confirmation(World(by_tile))
        assert (found.confirmed[0].threads, found.confirmed[0].shared_bytes) == (256, 1024)

    def test_are_fewer_where_the_device_gives_out_and_it_is_said_why(self):
        world = World(by_tile)
        world.fails = SetupError("fallen off the bus")
        found, keeper, _ = confirmation(world)
        assert found.why_not == "fallen off the bus"
        assert keeper.keeps == []
        assert len(keeper.trials) == 5, "the search's own trials are all there"

    def test_are_fewer_where_they_would_take_too_long(self):
        world = World(by_tile)
        world.short_of = 2
        found, _, _ = confirmation(world)
        assert found.why_not == "2 of 12 blocks: more would take too long"

    def test_go_on_without_one_that_cannot_be_built_again(self):
        world = World(by_tile)
        world.broken = {32: "the compiler is gone"}
        found, _, _ = confirmation(world)
        assert found.confirmed[0].reason == "the compiler is gone"
        winner = winner_of(found.confirmed)
        assert winner is not None
        assert winner.confirmed.params == {"tile": 16}


class TestAnEarlierConfirmation:
    def test_of_the_same_answers_for_it(self):
        before, keeper, _ = confirmation(World(by_tile))
        world = World(by_tile)
        found, _, _ = confirmation(world, Keeper(keeper.kept))
        assert found.reused
        assert found.confirmed == before.confirmed
        assert world.rounds == []

    @pytest.mark.parametrize(
        ("change", "options"),
        [
            ({}, {"blocks": 13}),
            ({}, {"finalists": 3}),
            ({"device_uuid": "GPU-2"}, {}),
            ({"least_effect": 0.02}, {}),
            ({"blocks_ms": (1.0,) * 8}, {}),
        ],
    )
    def test_of_something_else_does_not(self, change: dict[str, Any], options: dict[str, int]):
        _, keeper, _ = confirmation(World(by_tile))
        world = World(by_tile)
        found, _, _ = confirmation(world, Keeper([replace(one, **change) for one in keeper.kept]), **options)
        assert not found.reused
        assert world.rounds


def test_luck_in_the_search_is_corrected_by_the_blocks():
    """32 was called the fastest; timed again, 16 is."""
    found, _, _ = confirmation(World(by_tile, truth={32: 0.075, 16: 0.0625}))
    winner = winner_of(found.confirmed)
    assert winner is not None
    assert winner.confirmed.params == {"tile": 16}
    assert winner.against is not None
    assert winner.against["default"].verdict is Verdict.FASTER


def test_a_default_that_wins_unasked_becomes_a_trial_beyond_the_budget():
    world = World(by_tile, truth={2: 0.01})
    found, keeper, _ = confirmation(world, search="random", budget=2)
    asked = [t.params["tile"] for t in keeper.trials]
    assert 2 not in asked[:2]
    assert asked[2:] == [2]
    assert tiles(found)[-1] == 2


# --- What is kept ---------------------------------------------------------------------------------------


def one(tile: int, *times: float, **changes: Any) -> Confirmed:
    values: dict[str, Any] = {
        "confirmation": "c1",
        "started": "2026-01-01T00:00:00+00:00",
        "study": "s",
        "kernel": "tiled",
        "dtype": "float32",
        "shape": "large",
        "params": {"tile": tile},
        "blocks_ms": times,
        "wanted": len(times),
        "device": "H200",
        "device_uuid": "GPU-1",
        "registers": 32,
        "shared_bytes": 0,
        "threads": 64,
    }
    return Confirmed(**{**values, **changes})


def field() -> list[Confirmed]:
    noise = [0.999, 1.0, 1.001, 1.0005] * 3
    return [
        one(16, *(1.0 * n for n in noise)),
        one(8, *(1.07 * n for n in reversed(noise)), is_default=True),
        one(0, *(0.9 * n for n in noise), role=Role.BASELINE, kernel="cublas", params={"library": "cublas"}),
        one(4, 1.0, reason="3 of 4 elements are wrong", held_ms=(2.0,)),
    ]


class TestTheStore:
    def test_gives_back_what_it_was_given(self, tmp_path):
        with Store(tmp_path / "study.db") as store:
            store.add_confirmed(field())
            store.add_confirmed([replace(each, confirmation="c2", study="other") for each in field()])
        with Store(tmp_path / "study.db") as store:
            assert store.confirmed("s") == field()
            assert len(store.confirmed()) == 8

    def test_replaces_what_it_has_of_the_same_confirmation(self, tmp_path):
        with Store(tmp_path / "study.db") as store:
            store.add_confirmed([replace(each, blocks_ms=each.blocks_ms[:4]) for each in field()])
            store.add_confirmed(field())
            assert store.confirmed() == field()

    def test_has_the_times_where_other_tools_find_them(self, tmp_path):
        with Store(tmp_path / "study.db") as store:
            store.add_confirmed(field())
        with sqlite3.connect(tmp_path / "study.db") as connection:
            query = "SELECT count(*) FROM confirmations, json_each(blocks_ms) WHERE study = 's'"
            assert connection.execute(query).fetchone() == (37,)
        connection.close()

    def test_of_the_first_version_is_opened_and_keeps_its_trials(self, tmp_path):
        from contract.store_contract import trial

        path = tmp_path / "study.db"
        with Store(path) as store:
            store.add(trial(1))
        connection = sqlite3.connect(path)
        connection.executescript(
            "DROP TABLE confirmations; UPDATE meta SET value = '1' WHERE name = 'schema'"
        )
        connection.close()
        with Store(path) as store:
            assert [t.number for t in store.trials()] == [1]
            assert store.confirmed() == []
            store.add_confirmed(field())
            assert store.confirmed() == field()

    def test_is_recovered_with_its_confirmations(self, tmp_path):
        with Store(tmp_path / "study.db") as store:
            store.add_confirmed(field())
        recover(tmp_path / "study.db", tmp_path / "new.db")
        with Store(tmp_path / "new.db") as store:
            assert store.confirmed() == field()


# --- What is said ---------------------------------------------------------------------------------------


class TestTheTable:
    def test_has_a_row_for_everyone_with_verdicts_against_winner_default_and_library(self):
        table = confirmed_frame(field())
        assert table["winner"].tolist() == [True, False, False, False]
        assert table["role"].tolist() == ["candidate", "default", "baseline", "candidate"]
        assert table["verdict"].tolist() == ["same", "slower", "faster", ""]
        assert table["vs_default"].tolist() == ["faster", "", "faster", ""]
        assert table["vs_cublas"].tolist() == ["slower", "slower", "", ""]
        assert table["vs_default_ratio"][0] == pytest.approx(1 / 1.07, rel=1e-3)
        assert table["vs_default_low"][0] < 1 / 1.07 < table["vs_default_high"][0]
        assert table["blocks"].tolist() == [12, 12, 12, 1]
        assert table["reason"][3] == "3 of 4 elements are wrong"

    def test_compares_only_what_was_timed_together(self):
        later = [
            replace(each, confirmation="c2", blocks_ms=tuple(3 * t for t in each.blocks_ms))
            for each in field()
        ]
        table = confirmed_frame([*field(), *later])
        assert table["winner"].sum() == 2
        assert table["ratio"][5] == pytest.approx(table["ratio"][1])
        assert {k: [o.confirmation for o in v] for k, v in latest([*field(), *later]).items()} == {
            "s": ["c2"] * 4
        }

    def test_names_no_winner_where_nobody_finished(self):
        failed = [replace(each, reason="lost") for each in field()]
        assert not any(standing.is_winner for standing in standings(failed))
        assert confirmed_frame(failed)["verdict"].tolist() == [""] * 4

    def test_is_written_like_any_other(self, tmp_path):
        write_csv(confirmed_frame(field()), tmp_path / "confirmed.csv")
        lines = (tmp_path / "confirmed.csv").read_text().splitlines()
        assert len(lines) == 5
        assert lines[0].startswith("confirmation,started,study,kernel")
        assert "true" in lines[1]

    def test_has_the_documented_columns(self):
        from test_docs import RESULTS, bare
        from test_docs import table as documented

        rows = documented(RESULTS, "confirmed.csv", "`confirmation`")
        assert [(bare(name), unit, meaning) for name, unit, meaning in rows] == [
            (c.name, c.unit, c.meaning) for c in CONFIRMED
        ]
        more = documented(RESULTS, "confirmed.csv", "`vs_NAME`")
        assert [bare(row[0]).removeprefix("vs_NAME") for row in more] == [c.name for c in OPPONENT]
        best = documented(RESULTS, "best.csv", "`confirmed_ms`")
        assert [bare(row[0]) for row in best][-len(WINNER_COLUMNS) :] == list(WINNER_COLUMNS)


def comparison(verdict: Verdict, ratio: float, low: float, high: float) -> Comparison:
    return Comparison(verdict, RatioInterval(ratio, low, high, 12))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (comparison(Verdict.FASTER, 1 / 1.073, 1 / 1.076, 1 / 1.069), "7.3 % faster than X (6.9 to 7.6 %)"),
        (comparison(Verdict.SLOWER, 1.12, 1.115, 1.13), "12.0 % slower than X (11.5 to 13.0 %)"),
        (comparison(Verdict.SLOWER, 11.0, 10.5, 12.0), "1000 % slower than X (950 to 1100 %)"),
        (comparison(Verdict.SAME, 1.001, 0.996, 1.003), "the same as X (within 0.4 %)"),
        (comparison(Verdict.UNSURE, 1.01, 0.99, 1.03), "not told from X (1.0 % faster to 3.0 % slower)"),
        (comparison(Verdict.UNSURE, 1.01, math.nan, math.nan), "not told from X (12 blocks are too few)"),
    ],
)
def test_a_verdict_in_words(given: Comparison, said: str) -> None:
    assert comparison_text(given, "X") == said


def test_of_two_alike_the_default_is_the_simpler_one() -> None:
    alike = [one(n, *(1 + 0.001 * ((n + i) % 3) for i in range(12)), is_default=n == 2) for n in range(4)]
    winner = winner_of(alike)
    assert winner is not None
    assert winner.confirmed.params == {"tile": 2}


def test_the_winner_in_one_line() -> None:
    winner = winner_of(field())
    assert winner is not None
    line = winner_line(winner)
    assert line.startswith("best 1 ms with tile=16, confirmed in 12 blocks: 7.0 % faster than the default (")
    assert "% slower than cublas (" in line


def test_the_default_that_wins_is_called_so() -> None:
    winner = winner_of([replace(each, is_default=not each.is_default) for each in field()[:2]])
    assert winner is not None
    assert (
        winner_line(winner)
        == "best 1 ms with tile=16, the default, confirmed in 12 blocks: no other is proved faster"
    )


def test_what_is_not_confirmed_is_said_with_its_reason() -> None:
    assert left_out(Confirmation(tuple(field()), "the device was lost")) == [
        "not confirmed: tile=4: 3 of 4 elements are wrong",
        "not confirmed in full: the device was lost",
    ]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("confirm", -1, "measure.confirm = -1: 0 to 64 configurations"),
        ("confirm_blocks", 3, "measure.confirm_blocks = 3: 8 to 1000"),
        ("least_effect", 1.5, "measure.least_effect = 1.5: between 0 and 1"),
        ("least_effect", 0.0, "measure.least_effect = 0.0: between 0 and 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(key: str, value: float, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate({"kernel": {"name": "tiled"}, "shape": {}, "measure": {key: value}})


def test_how_finalists_are_compared_is_no_condition_of_a_trial() -> None:
    kept = MeasureConfig().conditions()
    assert not {"confirm", "confirm_blocks", "least_effect"} & set(kept)
    assert MeasureConfig(confirm=1, confirm_blocks=30, least_effect=0.1).conditions() == kept
    assert MeasureConfig(max_samples=7).conditions() != kept
