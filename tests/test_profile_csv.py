"""ncu's table: units, separators, absent counters, several launches, and what stands around it."""

from __future__ import annotations

import pytest

from sweeper.errors import SetupError
from sweeper.profile.metrics import combined
from sweeper.profile.raw_csv import Launched, read_raw

HEAD = '"ID","Process ID","Kernel Name","Block Size",'


def table(*columns: tuple[str, str, str]) -> str:
    """One launch with columns of (name, unit, cell)."""
    names = ",".join(f'"{name}"' for name, _, _ in columns)
    units = ",".join(f'"{unit}"' for _, unit, _ in columns)
    cells = ",".join(f'"{cell}"' for _, _, cell in columns)
    return f'{HEAD}{names}\n"","","","",{units}\n"0","77","gemm(const float *, int)","(16, 16, 1)",{cells}\n'


def read(*columns: tuple[str, str, str]) -> dict[str, float]:
    (launched,) = read_raw(table(*columns))
    return dict(launched.metrics)


@pytest.mark.parametrize(
    ("unit", "cell", "value"),
    [
        ("byte", "1048576", 1048576),
        ("Kbyte", "8.5", 8500),
        ("Mbyte", "12.25", 12.25e6),
        ("Gbyte", "1.5", 1.5e9),
        ("ns", "71,234", 71.234e-6),
        ("us", "71.2", 71.2e-6),
        ("msecond", "3.37", 3.37e-3),
        ("nsecond", "70000", 70e-6),
        ("second", "2", 2),
        ("Ghz", "1.98", 1.98e9),
        ("hz", "1980000000", 1.98e9),
        ("Gbyte/s", "4", 4e9),
        ("byte/second", "4", 4),
        ("Kbyte/ms", "4", 4e6),
        ("%", "45.6", 45.6),
        ("inst", "1,234,567", 1234567),
        ("sector", "1,234,567.5", 1234567.5),
        ("register/thread", "32", 32),
        ("", "0", 0),
    ],
)
def test_numbers_come_in_base_units_with_or_without_separators(unit: str, cell: str, value: float) -> None:
    assert read(("some__metric", unit, cell))["some__metric"] == pytest.approx(value)


@pytest.mark.parametrize("cell", ["n/a", "", "nan", "inf", "(!) n/a", "no"])
def test_a_counter_that_the_chip_does_not_have_is_absent_not_zero(cell: str) -> None:
    assert "some__metric" not in read(("some__metric", "byte", cell))


def test_a_counted_zero_is_zero() -> None:
    assert read(("some__metric", "byte", "0"))["some__metric"] == 0


def test_names_and_geometry_are_kept_as_text() -> None:
    (launched,) = read_raw(table(("some__metric", "", "1")))
    assert launched.kernel == "gemm(const float *, int)"
    assert launched.texts["Block Size"] == "(16, 16, 1)"


def test_what_ncu_and_the_program_print_is_no_part_of_the_table() -> None:
    around = '==PROF== Connected to process 77\n"ID","is no table"\nhello, "world"\n'
    text = around + table(("some__metric", "", "1")) + "==PROF== Disconnected from process 77\n"
    assert [launched.metrics["some__metric"] for launched in read_raw(text)] == [1]


def test_tables_of_several_processes_each_have_a_head() -> None:
    text = table(("a", "Kbyte", "1")) + table(("b", "byte", "2"))
    assert [launched.metrics for launched in read_raw(text)] == [
        {"Process ID": 77, "ID": 0, "a": 1000},
        {"Process ID": 77, "ID": 0, "b": 2},
    ]


def test_a_table_without_a_line_of_units_is_read_too() -> None:
    text = HEAD + '"a"\n"0","77","k","(1, 1, 1)","3"\n'
    assert [launched.metrics["a"] for launched in read_raw(text)] == [3]


def test_no_table_is_no_launch() -> None:
    assert read_raw("==PROF== Connected\n==WARNING== No kernels were profiled.\n") == []


def test_a_row_that_does_not_fit_its_head_is_named() -> None:
    with pytest.raises(SetupError, match="a row of 4 cells under a head of 5"):
        read_raw(HEAD + '"a"\n"0","77","k","(1, 1, 1)"\n')


def test_several_launches_count_as_one_sums_added_and_shares_weighted_by_time() -> None:
    def launched(seconds: float, total: float, percent: float) -> Launched:
        figures = {
            "gpu__time_duration.sum": seconds,
            "dram__bytes_read.sum": total,
            "sm__warps_active.avg.pct_of_peak_sustained_active": percent,
        }
        return Launched("k", {**figures, "launch__registers_per_thread": 32.0}, {})

    both = combined([launched(1e-3, 100, 80), launched(3e-3, 20, 40)])
    assert both == {
        "gpu__time_duration.sum": pytest.approx(4e-3),
        "dram__bytes_read.sum": 120,
        "sm__warps_active.avg.pct_of_peak_sustained_active": pytest.approx(50),
    }


def test_a_counter_that_one_of_several_launches_lacks_is_left_out() -> None:
    first = Launched("k", {"gpu__time_duration.sum": 1.0, "dram__bytes_read.sum": 1.0}, {})
    second = Launched("k", {"gpu__time_duration.sum": 1.0}, {})
    assert combined([first, second]) == {"gpu__time_duration.sum": 2.0}


def test_what_ncu_tells_of_the_device_is_left_out_and_the_launch_s_own_figures_stay() -> None:
    told = {
        "device__attribute_l2_cache_size": 1.0,
        "launch__waves_per_multiprocessor": 3.88,
        "dram__bytes_read.sum": 8.0,
    }
    assert combined([Launched("k", told, {})]) == {
        "launch__waves_per_multiprocessor": 3.88,
        "dram__bytes_read.sum": 8.0,
    }
