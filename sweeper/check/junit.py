"""Reports as JUnit's XML, which continuous integration shows as a table of tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from sweeper.atomic import atomic_write
from sweeper.check.report import Outcome, Report

__all__ = ["write_junit"]

# What XML 1.0 has no way to write, such as an escape sequence that a kernel printed.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(reports: Sequence[Report], path: Path) -> None:
    """Write `reports` to `path`, whole or not at all: a suite a kernel, a test a case.

    Raises StorageError where it cannot be written.
    """
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=f"sweeper.check.{report.kernel}",
            tests=str(len(report.outcomes)),
            failures=str(sum(bool(outcome.defects) for outcome in report.outcomes)),
            errors="0",
            skipped=str(sum(bool(outcome.skipped) for outcome in report.outcomes)),
            time=f"{report.seconds:.3f}",
        )
        for outcome in report.outcomes:
            _add(suite, f"{report.kernel}.{report.plan.spec.dtype.name}", outcome)
    ElementTree.indent(root)
    atomic_write(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _add(suite: ElementTree.Element, name: str, outcome: Outcome) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=name, name=str(outcome.case), time=f"{outcome.seconds:.3f}"
    )
    if outcome.skipped:
        ElementTree.SubElement(case, "skipped", message=_plain(outcome.skipped))
    if outcome.defects:
        first = outcome.defects[0]
        failure = ElementTree.SubElement(case, "failure", type=first.kind, message=_plain(first.message))
        failure.text = _plain("\n".join(str(defect) for defect in outcome.defects))


def _plain(text: str) -> str:
    return _NOT_XML.sub("�", text)
