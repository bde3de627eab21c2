"""A build's name, and the record that lies beside its artifact."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sweeper.model import Build, digest

__all__ = ["Recipe", "build_key", "read_manifest", "write_manifest"]

_NAME = "manifest.json"
_FORMAT = 1


def build_key(unit_digest: str, *, kind: str, arch: str, compiler: str, flags: tuple[str, ...] = ()) -> str:
    """The name of a build: equal only where everything that the compiled code depends on is equal.

    `compiler` is the builder's identity (name and full version); `flags` are those that a builder
    adds to the unit's own options.
    """
    return digest([_FORMAT, unit_digest, kind, arch, compiler, flags], length=40)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a build's name depends on but the unit: equal recipes make equal code of equal units.

    Two machines with one recipe may therefore build for each other. `identity` is the compiler's name for people.
    """

    kind: str
    arch: str
    compiler: str
    identity: str
    flags: tuple[str, ...] = ()

    def key(self, unit_digest: str) -> str:
        """The name of the unit's build, as `build_key` has it."""
        return build_key(
            unit_digest, kind=self.kind, arch=self.arch, compiler=self.compiler, flags=self.flags
        )


def write_manifest(build: Build, content: bytes, folder: Path) -> None:
    """Describe `build`, whose artifact is `content`, in `folder`."""
    fields = asdict(build) | {"artifact": build.artifact.name}
    manifest = {"format": _FORMAT, "sha256": hashlib.sha256(content).hexdigest(), "build": fields}
    (folder / _NAME).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def read_manifest(key: str, folder: Path) -> Build:
    """The build called `key` that `folder` holds, its artifact checked against its SHA-256.

    Raises OSError, ValueError, KeyError or TypeError for whatever is wrong with it.
    """
    manifest: dict[str, Any] = json.loads((folder / _NAME).read_text(encoding="utf-8"))
    if manifest["format"] != _FORMAT:
        raise ValueError("made by another version")
    fields = manifest["build"]
    # Only the name counts: an artifact lies in its own folder, whatever a manifest says.
    artifact = folder / Path(fields["artifact"]).name
    build = Build(**fields | {"artifact": artifact, "options": tuple(fields["options"])})
    if build.key != key:
        raise ValueError(f"it is the build {build.key}")
    with artifact.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != manifest["sha256"]:
            raise ValueError("its SHA-256 does not match")
    return build
