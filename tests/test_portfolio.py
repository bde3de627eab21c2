"""A few configurations for many shapes: the right ones, and their price."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from sweeper.errors import ConfigError
from sweeper.model import Role, Stage, Status
from sweeper.portfolio import choose, times_of
from sweeper.portfolio.__main__ import main
from sweeper.recording import Recorded, write_compact


def price_of(times: np.ndarray, rows: tuple[int, ...], weights: np.ndarray) -> float:
    slow = np.log(times[list(rows)].min(axis=0) / times.min(axis=0))
    return float(np.exp((slow * weights).sum() / weights.sum()))


def test_one_that_is_good_everywhere_comes_before_one_that_is_best_somewhere() -> None:
    times = np.array([[1.0, 9.0], [9.0, 1.0], [1.1, 1.1]])
    one, two = choose(times, 3)
    assert one.rows == (2,)
    assert one.price == pytest.approx(1.1)
    assert set(two.rows) == {0, 1}
    assert two.price == pytest.approx(1.0)
    assert two.serving == (0, 1)


def test_weights_say_whose_compromise_it_is() -> None:
    times = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert choose(times, 1, [3, 1])[0].rows == (0,)
    assert choose(times, 1, [1, 3])[0].rows == (1,)
    assert choose(times, 1, [3, 1])[0].price == pytest.approx(2**0.25)


@pytest.mark.parametrize(
    ("seed", "tried", "worse"), [(0, 20_000, 1.0), (4, 20_000, 1.0), (0, 0, 1.1), (4, 0, 1.1)]
)
def test_the_choice_is_the_best_of_all_choices_or_close_to_it(
    seed: int, tried: int, worse: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.portfolio.cover._MAX_TRIED", tried)
    rng = np.random.default_rng(seed)
    times = np.exp(rng.normal(size=(14, 7)))
    weights = rng.uniform(0.5, 2, 7)
    for choice in choose(times, 4, weights.tolist()):
        best = min(
            price_of(times, rows, weights) for rows in itertools.combinations(range(14), len(choice.rows))
        )
        assert choice.price == pytest.approx(price_of(times, choice.rows, weights))
        assert choice.price <= worse * best * (1 + 1e-9)


def test_more_configurations_never_cost_more() -> None:
    times = np.exp(np.random.default_rng(1).normal(size=(30, 12)))
    prices = [choice.price for choice in choose(times, 12)]
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] == pytest.approx(1.0)


def test_a_configuration_that_does_not_serve_a_shape_serves_it_beside_others_only() -> None:
    times = np.array([[1.0, np.nan], [np.nan, 1.0]])
    with pytest.raises(ConfigError, match="no 1 configurations serve every problem"):
        choose(times, 1)
    assert choose(times, 2)[-1].price == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("times", "weights", "message"),
    [
        ([[1.0, 2.0]], [1.0], "1 weights for 2 problems"),
        ([[1.0, 2.0]], [1.0, -1.0], "not all positive"),
        ([[1.0, float("nan")]], None, "no configuration serves problem 1"),
    ],
)
def test_what_cannot_be_served_is_refused(
    times: list[list[float]], weights: list[float] | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        choose(np.array(times), 1, weights)


def table(path: Path, size: int, times: dict[int, float], kernel: str = "tiled") -> Path:
    rows = [
        Recorded(
            Role.CANDIDATE, kernel, "float32", {"M": size, "N": size, "K": size}, {"tile": tile}, Status.OK,
            Stage.DONE, "", (time,), "measured", "events", "cold", "NVIDIA H200", "GPU-1", "580",
        )
        for tile, time in times.items()
    ]  # fmt: skip
    write_compact(path, rows)
    return path


def test_the_command_says_who_serves_what_at_which_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = table(tmp_path / "a.gz", 64, {8: 1.0, 16: 1.21})
    large = table(tmp_path / "b.gz", 128, {8: 4.0, 16: 2.0})
    assert times_of([small, large]).times_ms.shape == (2, 2)
    assert main([str(small), str(large), "--most", "2"]) == 0
    said = capsys.readouterr().out
    assert "1 configuration: 10.00 % slower than each its own" in said
    assert "tile=16: 64x64x64 float32 on NVIDIA H200 (+21.0 %), 128x128x128" in said
    assert "2 configurations: 0.00 % slower" in said


def test_tables_of_two_kernels_have_nothing_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [table(tmp_path / "a.gz", 64, {8: 1.0}), table(tmp_path / "b.gz", 64, {8: 1.0}, "naive")]
    assert main([str(path) for path in paths]) == 2
    assert "tables of several kernels: tiled, naive" in capsys.readouterr().err
