"""What is recorded of a job: one record for each study it filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["records_of"]


def records_of(
    config: Mapping[str, Any], facts: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The configuration and the facts to be recorded of a job: its own, or those of each shape of several.

    A shape's are what they would be had it been alone, so that whoever reads or repeats its rows needs no other.
    """
    studies = facts.get("studies")
    if not studies:
        yield dict(config), dict(facts)
        return
    common = {key: value for key, value in facts.items() if key not in ("studies", "statuses")}
    for own in studies:
        search = {**config.get("search", {}), "budget": own["asked"]}
        alone = {**config, "shape": own["shape"], "shapes": None, "search": search}
        yield alone, {**own["facts"], **common, "together": config["shapes"]}
