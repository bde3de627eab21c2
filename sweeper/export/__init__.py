"""Results as what a program ships or another tool reads: a C/C++ header, dispatch tables, Optuna, Kernel Tuner, T4."""

from __future__ import annotations

from sweeper.export.chosen import Chosen, Export, Price, Provenance
from sweeper.export.header import header
from sweeper.export.json_table import DispatchTable, json_table, read_table
from sweeper.export.lookup import Answer
from sweeper.export.markdown import markdown
from sweeper.export.module import python_module
from sweeper.export.select import export_of

__all__ = [
    "Answer",
    "Chosen",
    "DispatchTable",
    "Export",
    "Price",
    "Provenance",
    "export_of",
    "header",
    "json_table",
    "markdown",
    "python_module",
    "read_table",
]
