"""What a run says of copies and of the host's own product."""

from __future__ import annotations

from test_table import library, timed

from sweeper.cli.beside import transfer_line
from sweeper.tune import Tally

COPIES = {"h2d_ms": 5.0, "d2h_ms": 3.0}


def test_nothing_is_said_where_nothing_was_asked_for() -> None:
    assert transfer_line(Tally(trials=[timed(1, 1.0)])) is None


def test_the_host_is_compared_with_the_best_kernel_alone_and_with_its_copies() -> None:
    pinned = {"h2d_pinned_ms": 2.0, "d2h_pinned_ms": 1.0}
    told = {**COPIES, **pinned, "cpu_ms": 50.0, "cpu_note": "NumPy float32, at most 8 threads"}
    trials = [timed(n, ms, details={"transfers": told}) for n, ms in ((1, 4.0), (2, 2.0))]
    assert transfer_line(Tally(trials=[library("cublas", 0.5, details={"transfers": told}), *trials])) == (
        "copies: 5 ms to the device, 3 ms back (pinned: 2 ms, 1 ms); NumPy float32, at most 8 threads: 50 ms,"
        " 25 times the best kernel's time, 5 times with copies"
    )


def test_what_could_not_be_measured_is_not_said() -> None:
    line = transfer_line(Tally(trials=[timed(1, 2.0, details={"transfers": COPIES})]))
    assert line == "copies: 5 ms to the device, 3 ms back"
