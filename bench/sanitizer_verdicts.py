"""What compute-sanitizer says of the kernels with a known bug, beside what the emulator's check mode says.

    python -m bench.sanitizer_verdicts                     on a GPU machine: everything, about three minutes
    python -m bench.sanitizer_verdicts --ours-only         without a GPU: the emulator's verdicts, to a CSV
    python -m bench.sanitizer_verdicts --ours FILE         on a GPU machine, with those verdicts
    python -m bench.sanitizer_verdicts --compile-only      without a GPU: does every program compile?

Each kernel of tests/emulation/bugs becomes two programs, as it is and with its bug fixed. The first runs
plainly and under memcheck, racecheck, initcheck and synccheck, a process each; then the fixed ones do, to see
who calls a right kernel wrong. Writes sanitizer_verdicts.csv and sanitizer_verdicts.md. Exit codes: 0 done,
2 usage, 3 no GPU, compiler or compute-sanitizer.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "emulation")]

from bugs.corpus import BUGS, Bug  # noqa: E402
from bugs.running import Verdict, compile_bug, run  # noqa: E402
from sanitizer_programs import SetUpError, compile_all, device_arch, tool_path  # noqa: E402
from sanitizer_runs import TOOLS, Row, Says, run_all  # noqa: E402

SET_UP_FAILED = 3
OUR_COLUMNS = ("check", "fast", "twin")


def our_verdicts(bugs: Sequence[Bug], jobs: int) -> dict[str, dict[str, str]]:
    """What check mode and fast mode find in each kernel and in its twin."""
    from sweeper.emulation import find_compiler, launcher_path

    compiler = find_compiler()
    launcher_path(compiler)
    with tempfile.TemporaryDirectory(prefix="sweeper-verdicts-") as name:
        folder = Path(name)

        def verdict(bug: Bug, *, fixed: bool, checked: bool) -> Verdict:
            module = compile_bug(bug, folder, compiler, fixed=fixed, checked=checked)
            return run(bug, module, compiler, fixed=fixed, checked=checked)

        def both(bug: Bug) -> tuple[str, dict[str, str]]:
            check, fast = (verdict(bug, fixed=False, checked=checked) for checked in (True, False))
            twin = [verdict(bug, fixed=True, checked=checked) for checked in (True, False)]
            return bug.name, {
                "check": str(check),
                "fast": str(fast),
                "twin": "clean" if all(v.clean for v in twin) else "; ".join(str(v) for v in twin),
            }

        with ThreadPoolExecutor(jobs) as threads:
            return dict(threads.map(both, bugs))


def write_ours(verdicts: Mapping[str, Mapping[str, str]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("bug", *OUR_COLUMNS))
        writer.writerows([name, *(says[c] for c in OUR_COLUMNS)] for name, says in verdicts.items())


def read_ours(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row.pop("bug"): row for row in csv.DictReader(file)}


def kinds_of(bug: Bug) -> str:
    """What is wrong with it, in the words of the findings."""
    return " or ".join(sorted(bug.kinds)) or (
        "not deterministic" if bug.nondeterministic else "wrong numbers"
    )


def write_tables(rows: Sequence[Row], folder: Path) -> None:
    columns = ["bug", "what is wrong", "plain run", *TOOLS, "check", "fast"]
    table = [
        [
            row.bug.name,
            kinds_of(row.bug),
            row.plain.verdict,
            *(row.tools.get(tool, Says("not run")).verdict for tool in TOOLS),
            row.ours.get("check", ""),
            row.ours.get("fast", ""),
        ]
        for row in rows
    ]
    with (folder / "sanitizer_verdicts.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*columns, *(f"{t} says" for t in TOOLS), *(f"twin {t}" for t in TOOLS), "twin ours"])
        for row, cells in zip(rows, table, strict=True):
            says = [row.tools.get(tool, Says("")).words for tool in TOOLS]
            twin = [row.twin.get(tool, Says("not run")).verdict for tool in TOOLS]
            writer.writerow([*cells, *says, *twin, row.ours.get("twin", "")])
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(cells) + " |" for cells in table]
    lines += ["", *summary(rows)]
    text = "\n".join(lines) + "\n"
    (folder / "sanitizer_verdicts.md").write_text(text, encoding="utf-8")
    print(text)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    ran = [row for row in rows if row.tools]
    for tool in TOOLS:
        found = sum(row.tools[tool].verdict == "found" for row in ran)
        twins = sum(row.twin.get(tool, Says("")).verdict == "found" for row in ran)
        yield f"- {tool}: found in {found} of {len(ran)}, in {twins} right twins"
    any_tool = sum(any(says.verdict == "found" for says in row.tools.values()) for row in ran)
    yield f"- any of the four: {any_tool} of {len(ran)}"
    plain = sum(row.plain.verdict != "right" for row in ran)
    yield f"- a plain run shows something: {plain} of {len(ran)}"
    for mode in ("check", "fast"):
        found = sum(row.ours.get(mode, "nothing") != "nothing" for row in rows)
        yield f"- the emulator, mode {mode}: {found} of {len(rows)}"
    yield f"- the emulator, right twins: {sum(row.ours.get('twin') not in ('clean', None) for row in rows)}"


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/runs/sanitizer_verdicts"))
    parser.add_argument("--ours", type=Path, help="our verdicts, as --ours-only wrote them")
    parser.add_argument("--ours-only", action="store_true", help="our verdicts only; needs no GPU")
    parser.add_argument("--compile-only", action="store_true", help="compile every program; needs no GPU")
    parser.add_argument("--only", nargs="+", metavar="BUG", help="these kernels")
    parser.add_argument("--no-twins", action="store_true", help="leave the fixed kernels out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    parser.add_argument("--at-once", type=int, default=6, help="programs on the GPU at a time")
    parser.add_argument("--budget-s", type=float, default=170.0, help="begin no run after this long")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, run and write what `arguments`, a command line, ask for. Gives the exit code."""
    start = time.monotonic()
    options = parsed(arguments)
    bugs = [bug for bug in BUGS if not options.only or bug.name in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        if options.ours_only:
            write_ours(our_verdicts(bugs, options.jobs), options.out / "ours.csv")
            print(f"wrote {options.out / 'ours.csv'}")
            return 0
        arch = "sm_90" if options.compile_only else device_arch()
        nvcc = tool_path("nvcc")
        sanitizer = "" if options.compile_only else tool_path("compute-sanitizer")
        with tempfile.TemporaryDirectory(prefix="sweeper-sanitizer-") as name:
            folder = Path(name)
            compile_all(bugs, folder, nvcc=nvcc, arch=arch, jobs=options.jobs)
            if options.compile_only:
                return 0
            rows = [Row(bug) for bug in bugs]
            run_all(
                rows,
                folder,
                sanitizer=sanitizer,
                at_once=options.at_once,
                until=start + options.budget_s,
                twins=not options.no_twins,
            )
        ours = read_ours(options.ours) if options.ours else {}
        for row in rows:
            row.ours = ours.get(row.bug.name, {})
        write_tables(rows, options.out)
    except SetUpError as error:
        print(f"error: {error}", file=sys.stderr)
        return SET_UP_FAILED
    print(f"{time.monotonic() - start:.0f} s; tables in {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
