"""How the package hangs together: nobody imports from a layer above, and nothing goes in circles."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import sweeper

ROOT = Path(sweeper.__file__).parent

# From the ground up: a module imports only from its own layer and those before it.
LAYERS = (
    "status", "errors", "commands", "dtypes", "paths", "atomic", "redaction", "expressions", "model", "source",
    "device", "kernel", "space",
    "problem", "resources", "statistics", "wire", "record", "sqlite_file", "recording", "process", "emulation", "build",
    "backend", "worker", "cluster", "search", "benchmark", "portfolio", "store", "table", "provenance",
    "results", "importance", "lessons", "config", "evaluate", "tune", "plan", "cli", "check", "profile", "doctor",
    "dispatch", "report", "compare", "reproduce", "export", "collect", "api", "__main__",
)  # fmt: skip


@functools.cache
def modules() -> dict[str, Path]:
    names = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """What a module imports from this package, wherever in it, without what only type checkers see."""
    found: set[str] = set()
    skipped: set[ast.AST] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sweeper":
            base = node.module.partition(".")[2]
            names = {f"{base}.{alias.name}".strip(".") for alias in node.names}
            found |= names if names <= set(modules()) else names | {base}
        elif isinstance(node, ast.Import):
            found |= {a.name.partition(".")[2] for a in node.names if a.name.startswith("sweeper.")}
    return frozenset(found & set(modules()))


def layer(module: str) -> int:
    return LAYERS.index(module.partition(".")[0])


def test_every_module_has_a_layer() -> None:
    assert {m.partition(".")[0] for m in modules()} - {""} == set(LAYERS)


def test_a_module_imports_only_from_its_own_layer_and_those_below() -> None:
    upward = [
        f"{name} imports {other}"
        for name, path in modules().items()
        if name
        for other in imported(path)
        if other and layer(other) > layer(name)
    ]
    assert not upward


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: imported(path) - {name} for name, path in modules().items() if name}

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(graph[start])
        while todo:
            module = todo.pop()
            if module and module not in seen:
                seen.add(module)
                todo += graph[module]
        return seen

    circles = sorted(name for name in graph if name in reach(name))
    assert not circles


def test_only_the_process_that_owns_a_gpu_imports_pycuda() -> None:
    """The CUDA backend runs in the worker; the compiler child imports PyCUDA's compiler, never its driver."""
    allowed = {"backend", "build"}
    users = {
        name
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for target in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if target.split(".")[0] == "pycuda"
    }
    assert {name.partition(".")[0] for name in users} <= allowed
