"""Results as a page that is read: one HTML file that needs no network, the same as Markdown, and figures."""

from __future__ import annotations

from sweeper.report.api import Written, write_report

__all__ = ["Written", "write_report"]
