"""A kernel's description: YAML and a .cu become a `KernelSpec`, everything checked before any compile.

The description is data. Expressions are parsed by `sweeper.expressions`, names are matched against a
fixed list of keys, and nothing in it is ever evaluated by Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeper.expressions import parse
from sweeper.kernel.agreement import check_source
from sweeper.kernel.keys import (
    ENTRY,
    arguments,
    chosen_dtypes,
    find_file,
    launch,
    parameters,
    reference,
    requires,
    sizes,
    work_model,
)
from sweeper.kernel.layout import KEYS as LAYOUT_KEYS
from sweeper.kernel.layout import laid_out, without_default
from sweeper.kernel.names import check_names
from sweeper.kernel.reader import Reader
from sweeper.kernel.tensor_maps import map_rules, tensor_maps
from sweeper.kernel.trip import trip
from sweeper.model import KernelSpec, canonical_json
from sweeper.source.includes import read_tree

__all__ = ["load"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def load(node: Mapping[str, Any], path: Path) -> KernelSpec:
    """The kernel described by `node`, the content of the YAML file at `path`.

    A source is looked for beside the YAML, then among the shipped kernels, then in the folder that the
    command was started in. Raises KernelError for anything missing, misspelt, of the wrong type, or at
    odds with the source.
    """
    reader = Reader(node, f"{path.name}: kernel")
    reader.only(
        "name", "description", "source", "entry", "template", "dtype", "dtypes", *LAYOUT_KEYS, "dims",
        "params", "default", "constraints", "launch", "args", "tensor_maps", "requires", "reference",
        "defines", "options", "tolerance", "model", "flops", "forbid_spills", "trip",
    )  # fmt: skip
    name = reader.text("name", pattern=_NAME)
    given = without_default(node)
    node, layout = laid_out(node, f"{path.name}: kernel {name}")
    where = Reader(node, f"{path.name}: kernel {name}")
    precision, precisions = chosen_dtypes(where)
    source = find_file(where.text("source"), path, where)
    params = parameters(where)
    tree = read_tree(source, (source.parent,))
    dims, optional_dims = sizes(where)
    args = arguments(where, precision)
    maps = tensor_maps(where.sequence("tensor_maps", ()), args, where=f"{where.where}.tensor_maps")
    template = tuple(
        "T" if item == "T" else parse(item, where=f"{where.where}.template")
        for item in where.sequence("template", ())
    )
    spec = KernelSpec(
        name=name,
        path=path,
        source=source,
        entry=where.text("entry", pattern=ENTRY),
        template=template,
        dtype=precision,
        dtypes=precisions,
        dims=dims,
        params=params,
        constraints=(*where.expressions("constraints"), *map_rules(maps, args)),
        launch=launch(where.child("launch")),
        args=args,
        requires=requires(where),
        reference=reference(where, path),
        defines=where.expression_map("defines"),
        options=tuple(where.texts("options")),
        tolerance=where.number("tolerance", 6.0),
        model=work_model(where),
        work_flops=where.expression_or_none("flops"),
        digest=tree.digest[:16],
        description=where.text("description", ""),
        node_json=canonical_json(json.loads(json.dumps(_ordered(given)))),
        forbid_spills=where.switch("forbid_spills"),
        optional_dims=optional_dims,
        layout=layout,
        tensor_maps=maps,
        trip=trip(
            node.get("trip"),
            dims,
            args,
            uncuttable="tensor maps"
            if maps
            else "clusters"
            if "cluster" in where.child("launch").node
            else "",
            where=f"{where.where}.trip",
        ),
    )
    check_names(spec, where.where)
    check_source(spec, tree, where=where.where)
    return spec


def _ordered(node: Mapping[str, Any]) -> dict[str, Any]:
    """`node`, its sizes in a form whose order does not depend on that of a mapping."""
    dims = node.get("dims")
    if not isinstance(dims, Mapping) or len(dims) < 2:
        return dict(node)
    return {**node, "dims": [name if size is None else {name: size} for name, size in dims.items()]}
