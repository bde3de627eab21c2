"""The command line: from what people type to the files and tables they get."""

from __future__ import annotations
