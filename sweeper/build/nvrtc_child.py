"""The process that compiles with NVRTC: `python -m sweeper.build.nvrtc_child`, many builds one after another.

NVRTC stays loaded between them, and goes with the process where the parent kills it at the deadline. It
is reached by NVIDIA's own bindings (package cuda-bindings). Requests: `{"op": "identify"}`, answered by
version, architectures and library; `{"op": "warm"}`, which only loads it; and `{"op": "compile", …}`, the
fields of a `Compilation`.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.build.cubin import CUBIN_NAME, LOG_NAME
from sweeper.process import serve

__all__ = ["Compilation", "NvrtcError", "compile_text", "identify"]


class NvrtcError(Exception):
    """A call that failed for another reason than the source."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation. `expression` names a template's instance, which NVRTC then makes; empty for none.

    `headers` maps names, as they are included, to texts; `folder` is private to it and gets cubin and log.
    """

    text: str
    name: str
    options: tuple[str, ...]
    expression: str
    headers: dict[str, str]
    folder: str


def _nvrtc() -> Any:
    return importlib.import_module("cuda.bindings.nvrtc")


def _called(result: tuple[Any, ...]) -> Any:
    """What a call of the bindings returned. Raises NvrtcError."""
    code, *values = result
    if int(code) != 0:
        raise NvrtcError(f"{getattr(code, 'name', code)}")
    return values[0] if values else None


def _text(nvrtc: Any, what: str, program: Any) -> bytes:
    """The program's log, cubin or PTX: NVRTC gives the size first."""
    size = int(_called(getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
    # The bindings write into the bytes that they are given; Python shares those of length 1.
    buffer = b" " * (size + 2)
    _called(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer[:size]


def identify() -> dict[str, Any]:
    """Version, architectures and library of the NVRTC that loads. Raises whatever loading it raises."""
    nvrtc = _nvrtc()
    major, minor = (int(n) for n in nvrtc.nvrtcVersion()[1:])
    archs = [f"sm_{n}" for n in _called(nvrtc.nvrtcGetSupportedArchs())]
    return {"version": _full_version(nvrtc) or f"{major}.{minor}", "archs": archs, "library": _library()}


def _full_version(nvrtc: Any) -> str:
    """`13.0.88`, which NVRTC tells only at the head of the PTX that it writes."""
    program = _called(nvrtc.nvrtcCreateProgram(b"", b"version.cu", 0, [], []))
    try:
        _called(nvrtc.nvrtcCompileProgram(program, 0, []))
        head = _text(nvrtc, "PTX", program)[:1000].decode(errors="replace")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    match = re.search(r"\bV(\d+(?:\.\d+)+)", head)
    return match[1] if match else ""


def _library() -> str:
    """The file that was loaded, of the many that may be there."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = (line.split(maxsplit=5)[-1].strip() for line in maps)
        return next((path for path in loaded if Path(path).name.startswith("libnvrtc.so")), "")


def compile_text(request: Compilation) -> dict[str, Any]:
    """Compile into the request's folder. `error` names what went wrong, `symbol` the instance's name."""
    nvrtc = _nvrtc()
    names, texts = list(request.headers), list(request.headers.values())
    program = _called(
        nvrtc.nvrtcCreateProgram(
            request.text.encode(),
            request.name.encode(),
            len(names),
            [text.encode() for text in texts],
            [name.encode() for name in names],
        )
    )
    folder = Path(request.folder)
    try:
        expression = request.expression.encode()
        if expression:
            _called(nvrtc.nvrtcAddNameExpression(program, expression))
        options = [option.encode() for option in request.options]
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        (folder / LOG_NAME).write_bytes(_text(nvrtc, "ProgramLog", program).rstrip(b"\0"))
        if int(code) != 0:
            return {"error": code.name, "symbol": None}
        (folder / CUBIN_NAME).write_bytes(_text(nvrtc, "CUBIN", program))
        symbol = _called(nvrtc.nvrtcGetLoweredName(program, expression)).decode() if expression else None
        return {"error": "", "symbol": symbol}
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _handle(message: dict[str, Any]) -> dict[str, Any]:
    operation = message.pop("op")
    try:
        if operation == "identify":
            return {"error": "", **identify()}
        if operation == "warm":
            _nvrtc().nvrtcVersion()
            return {"error": ""}
        request = Compilation(**{**message, "options": tuple(message["options"])})
        # What NVRTC writes to temporary files goes with the folder.
        os.environ["TMPDIR"] = tempfile.tempdir = request.folder
        return compile_text(request)
    except (ImportError, RuntimeError, OSError, NvrtcError) as error:
        return {"error": f"{type(error).__name__}: {error}", "symbol": None}


if __name__ == "__main__":
    serve(_handle)
