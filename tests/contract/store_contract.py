"""What every store of trials must do. A new one passes by subclassing `StoreContract`:

class TestMine(StoreContract):
    def open(self, folder):
        return Mine(folder / "mine")          # the same folder is the same store
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.errors import StorageError
from sweeper.model import (
    Build,
    Check,
    Launch,
    Mismatch,
    Point,
    Role,
    Stage,
    Status,
    TimeSource,
    Timing,
    Trial,
)
from sweeper.store import Store


def trial(number: int = 1, **changes: Any) -> Trial:
    """A valid, measured trial; any field can be replaced by name."""
    values: dict[str, Any] = {
        "study": "gemm-float32-large-12345678",
        "number": number,
        "context": "c0ffee",
        "kernel": "tiled",
        "dtype": "float32",
        "shape": "large",
        "dims": {"M": 1000, "N": 1000, "K": 1000},
        "params": {"tile": 8 * number, "vector": 4},
        "status": Status.OK,
        "stage": Stage.DONE,
        "time_source": TimeSource.MEASURED,
        "timing": Timing((2.0, 2.5, 1.5), "events", "cold", sm_clock_mhz=1980.0),
        "check": Check(True, 1_000_000, 0, 1e-5, 0.25, (3, 4)),
        "launch": Launch((16, 16, 1), (63, 63, 1), 0, 2048),
        "build": Build("k" * 16, "nvcc", Path("/cache/k.cubin"), "mm", "nvcc 13.0", ("-O3",), registers=40),
        "flops": 2 * 1000**3,
        "bytes": 12_000_000,
        "device": "NVIDIA H200",
        "device_uuid": "GPU-1",
        "backend": "cuda",
        "seed": 42,
    }
    return Trial(**{**values, **changes})


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.integers(min_value=0, max_value=2**40)
text = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=20)
levels = st.one_of(st.integers(-(2**62), 2**62), finite, st.booleans(), text)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), text),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(text.filter(lambda k: k != "$float"), inner, max_size=3)
    ),
    max_leaves=6,
)
triple = st.tuples(positive, positive, positive)
trials = st.builds(
    Trial,
    study=text,
    number=st.integers(1, 10**6),
    context=text,
    kernel=text,
    dtype=st.sampled_from(["float32", "tf32", "int8"]),
    shape=text,
    dims=st.dictionaries(text, st.integers(1, 2**40), max_size=4),
    params=st.dictionaries(text.filter(lambda k: k != "$float"), levels, max_size=6),
    status=st.sampled_from(Status),
    stage=st.sampled_from(Stage),
    role=st.just(Role.CANDIDATE),
    reason=text,
    details=st.dictionaries(text.filter(lambda k: k != "$float"), plain, max_size=3),
    time_source=st.none() | st.sampled_from(TimeSource),
    timing=st.none()
    | st.builds(
        Timing,
        samples_ms=st.lists(st.floats(allow_nan=False), max_size=5).map(tuple),
        method=text,
        cache=text,
        sm_clock_mhz=st.none() | finite,
        note=text,
    ),
    predicted_ms=st.none() | finite,
    check=st.none()
    | st.builds(
        Check,
        passed=st.booleans(),
        checked=positive,
        wrong=positive,
        max_error=st.floats(allow_nan=False),
        error_ratio=st.floats(allow_nan=False),
        error_index=st.none() | st.tuples(positive, positive),
        mismatches=st.lists(
            st.builds(
                Mismatch,
                array=text,
                index=st.tuples(positive),
                got=st.floats(allow_nan=False),
                want=finite,
                bound=finite,
            ),
            max_size=2,
        ).map(tuple),
        note=text,
    ),
    launch=st.none() | st.builds(Launch, block=triple, grid=triple, shared_bytes=positive),
    build=st.none()
    | st.builds(
        Build,
        key=text,
        kind=text,
        artifact=st.just(Path("/cache/x")),
        entry=text,
        compiler=text,
        options=st.lists(text, max_size=3).map(tuple),
        registers=st.none() | positive,
        seconds=finite,
        cached=st.booleans(),
    ),
    occupancy=st.none() | finite,
    flops=st.none() | st.integers(0, 2**100),
    bytes=st.none() | st.integers(0, 2**100),
    device=text,
    driver=text,
    seed=st.integers(0, 2**64),
    build_s=st.none() | finite,
)


class StoreContract:
    """Subclass it, and define `open`: the same folder must open the same store again."""

    def open(self, folder: Path) -> Store:
        raise NotImplementedError

    def test_what_was_added_is_there_when_the_store_is_opened_again(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            for number in range(1, 6):
                assert store.add(trial(number)) == trial(number)
        with self.open(tmp_path) as store:
            assert store.trials() == [trial(number) for number in range(1, 6)]

    def test_another_opener_sees_a_trial_as_soon_as_it_is_added(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as writer, self.open(tmp_path) as reader:
            writer.add(trial())
            assert reader.trials() == [trial()]

    # Subclasses share this one test, each with a folder of its own.
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(given_trial=trials)
    def test_any_trial_reads_back_equal(self, tmp_path_factory: Any, given_trial: Trial) -> None:
        folder = self._shared_folder(tmp_path_factory)
        with self.open(folder) as store:
            known = len(store.trials())
            added = store.add(replace(given_trial, study=f"study {known}"))
            assert store.trials()[-1] == added
            assert list(store.trials()[-1].params) == list(added.params)
            found = store.find(added.context, added.params)
            assert found == added

    def _shared_folder(self, tmp_path_factory: Any) -> Path:
        if not hasattr(self, "_folder"):
            self._folder: Path = tmp_path_factory.mktemp("store")
        return self._folder

    def test_a_value_that_is_no_number_reads_back_as_it_was(self, tmp_path: Path) -> None:
        wrong = Check(False, 10, 1, math.nan, math.inf, None, (Mismatch("C", (0, 1), math.nan, 1.0, 0.1),))
        with self.open(tmp_path) as store:
            store.add(trial(check=wrong, details={"worst": math.nan}))
            (back,) = store.trials()
        assert back.check is not None
        assert math.isnan(back.check.max_error)
        assert back.check.error_ratio == math.inf
        assert math.isnan(back.check.mismatches[0].got)
        assert math.isnan(back.details["worst"])

    def test_text_that_is_no_unicode_does_not_stop_a_trial_from_being_stored(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            store.add(trial(reason="stderr: \udcff\x00 end", details={"log": "\udcff"}))
            assert store.trials()[0].reason == "stderr: \\udcff\\x00 end"

    def test_every_failure_is_a_row_like_any_other(self, tmp_path: Path) -> None:
        failed = [
            trial(n, status=status, stage=Stage.BUILD, timing=None, time_source=None, reason="why")
            for n, status in enumerate(Status, start=1)
        ]
        with self.open(tmp_path) as store:
            for row in failed:
                store.add(row)
            assert store.trials() == failed

    def test_a_number_is_given_once_in_a_study(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            store.add(trial(1))
            with pytest.raises(StorageError, match="holds trial 1 of study gemm"):
                store.add(trial(1, params={"tile": 32}))
            store.add(trial(1, study="another"))
            assert len(store.trials()) == 2

    def test_baselines_share_the_number_zero(self, tmp_path: Path) -> None:
        both = [
            trial(0, role=Role.BASELINE, kernel=name, params={"library": name})
            for name in ("cublas", "cublaslt")
        ]
        with self.open(tmp_path) as store:
            for row in both:
                store.add(row)
            assert store.trials() == both
            assert store.find("c0ffee", {"library": "cublas"}, Role.BASELINE) == both[0]

    def test_a_configuration_is_found_by_its_context_parameters_and_role(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            store.add(trial(1))
            assert store.find("c0ffee", {"vector": 4, "tile": 8}) == trial(1)
            assert store.find("another", {"tile": 8, "vector": 4}) is None
            assert store.find("c0ffee", {"tile": 8}) is None
            assert store.find("c0ffee", {"tile": 8, "vector": 4}, Role.BASELINE) is None

    def test_of_a_configuration_measured_twice_the_latest_is_found(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            store.add(trial(1, status=Status.TIMEOUT, timing=None))
            store.add(trial(2, params=trial(1).params))
            found = store.find("c0ffee", trial(1).params)
        assert found is not None
        assert found.number == 2

    def test_trials_of_one_study_and_the_names_of_all(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            for study, number in (("b", 1), ("a", 1), ("b", 2)):
                store.add(trial(number, study=study))
            assert store.studies() == ["b", "a"]
            assert [t.number for t in store.trials("b")] == [1, 2]
            assert store.trials("c") == []

    def test_a_run_is_kept_with_its_provenance(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            late = {"id": "b", "started": "2026-01-02T00:00:00Z", "config": {"seed": 1}}
            early = {"id": "a", "started": "2026-01-01T00:00:00Z", "config": {}}
            store.add_run(late)
            store.add_run(early)
            store.add_run({**late, "ended": "2026-01-02T01:00:00Z"})
            assert store.runs() == [early, {**late, "ended": "2026-01-02T01:00:00Z"}]

    def test_what_was_under_way_when_the_machine_went_down_is_remembered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        params, other = trial().params, {"tile": 99}
        key = Point.of(params).key
        for machine_run in ("first", "second", "third"):
            monkeypatch.setattr("sweeper.store.attempts.boot", lambda name=machine_run: name)
            with self.open(tmp_path) as store:
                store.begin("c0ffee", [params, other])
        with self.open(tmp_path) as store:
            assert store.begun_in_vain("c0ffee")[key] == 2
            assert store.begun_in_vain("another") == {}
            store.add(trial())
            assert store.begun_in_vain("c0ffee") == {Point.of(other).key: 2}

    def test_a_killed_process_says_nothing_against_what_was_under_way(self, tmp_path: Path) -> None:
        for _ in range(3):
            with self.open(tmp_path) as store:
                store.begin("c0ffee", [trial().params])
                assert store.begun_in_vain("c0ffee") == {}

    def test_what_is_under_way_is_noted_with_the_trial_before_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.open(tmp_path) as store:
            store.add(trial(), begun=[{"tile": 99}])
        monkeypatch.setattr("sweeper.store.attempts.boot", lambda: "the next")
        with self.open(tmp_path) as store:
            assert store.begun_in_vain("c0ffee") == {Point.of({"tile": 99}).key: 1}

    def test_a_study_that_was_claimed_is_free_again_once_the_store_is_closed(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            store.claim("s")
        with self.open(tmp_path) as store:
            store.claim("s")
            store.release("s")
            store.claim("s")

    def test_a_store_may_be_closed_twice(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        store.close()
        store.close()
