"""Kernels with one known bug each: what finds them, where, and that their right twins are left in peace.

The kernels and what is wrong with them are in `bugs/`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bugs.corpus import BUGS, FOLDER, Bug, marked_lines
from bugs.running import Verdict, compile_bug, run
from emulation_rig import Rig

from sweeper.check import Defect
from sweeper.emulation import Finding, FindingKind

PAGE = Path(__file__).parents[2] / "docs" / "emulator.md"
EXAMPLES = re.findall(r"^(\w+): (\w+)\n((?:    .*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
BY_NAME = {bug.name: bug for bug in BUGS}

by_name = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)


def verdict(rig: Rig, bug: Bug, *, fixed: bool, checked: bool) -> Verdict:
    module = compile_bug(bug, rig.folder, rig.compiler, fixed=fixed, checked=checked)
    return run(bug, module, rig.compiler, fixed=fixed, checked=checked)


def lines(finding: Finding) -> set[int]:
    """The lines it names; none where it concerns the launch as such."""
    return {place.line for place in (finding.first, finding.second) if place is not None and place.line}


@by_name
def test_a_bug_is_found_for_what_it_is_and_where_it_is(rig: Rig, bug: Bug) -> None:
    said = verdict(rig, bug, fixed=False, checked=True)
    marked = marked_lines(bug.path)
    found = {finding.kind for finding in said.findings}
    assert found <= bug.kinds | bug.also, said.findings
    if bug.kinds:
        there = [f for f in said.findings if f.kind in bug.kinds and lines(f) <= marked]
        assert there, [str(finding) for finding in said.findings]
        assert marked <= {line for f in said.findings for line in lines(f)}, (
            "a marked line that nothing names"
        )
        assert all(f.first.file in (bug.path.name, "?") for f in said.findings)
    else:
        assert said.nondeterministic if bug.nondeterministic else said.wrong, (
            "there is nothing else to tell by"
        )


@by_name
def test_its_right_twin_is_left_in_peace(rig: Rig, bug: Bug) -> None:
    said = verdict(rig, bug, fixed=True, checked=True)
    assert said.clean, said


@by_name
def test_without_instrumentation_most_bugs_are_found_all_the_same(rig: Rig, bug: Bug) -> None:
    """By an inaccessible page, by NaN in shared memory, or by what comes of another order of threads.

    What is not `fast` in the table may be found or not: it hangs on the compiler.
    """
    said = verdict(rig, bug, fixed=False, checked=False)
    assert not said.clean or not bug.fast
    twin = verdict(rig, bug, fixed=True, checked=False)
    assert twin.clean, twin


@pytest.mark.parametrize(("name", "kind", "text"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES])
def test_the_examples_of_the_documentation_are_what_is_said(
    rig: Rig, name: str, kind: str, text: str
) -> None:
    """But for how often something happened, which depends on the compiler."""
    said = verdict(rig, BY_NAME[name], fixed=False, checked=True)
    found = next(finding for finding in said.findings if finding.kind == kind)
    lines = [f"    {line}" for line in Defect.of(found).lines()]
    assert [uncounted(line) for line in lines] == [uncounted(line) for line in text.splitlines()]


def uncounted(line: str) -> str:
    return re.sub(r", \d+ times$", "", line)


def test_every_kind_of_finding_has_an_example() -> None:
    assert {kind for _, kind, _ in EXAMPLES} == set(FindingKind) - {FindingKind.NOT_EMULABLE}


def test_the_table_is_whole() -> None:
    assert {path.stem for path in FOLDER.glob("*.cu")} == {bug.name for bug in BUGS}
    assert len(BUGS) >= 40
    assert sum(bug.fast for bug in BUGS) >= 35
    for bug in BUGS:
        text = bug.path.read_text(encoding="utf-8")
        assert text.startswith("// ")
        assert "\n// To be found: " in text
        assert ("FIXED" in text) is (bug.fixed is None), "a twin is another text or another launch"
