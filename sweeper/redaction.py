"""Secrets taken out of what is written: a password in a storage URL ends up in no file and no message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["redact"]

_HIDDEN = "***"
_ALWAYS = r"[\w.-]*(?:pass(?:word|wd|phrase)|secret|credential|api_?key)[\w-]*"
# A number under such a name is a size (`token_tile=8`), not a secret.
_UNLESS_NUMBER = r"(?:[\w.-]*[_.-])?token(?:[_-]\w+)?"
_VALUE = r"(?:'[^']*'|\"[^\"]*\"|[^\s&\"',;]+)"
_NUMBER = r"[\d.,x\[\]]+(?=$|[\s\"'])"

_KEY = re.compile(_ALWAYS, re.IGNORECASE)
_KEY_OF_TEXT = re.compile(_UNLESS_NUMBER, re.IGNORECASE)
# Up to the last @ before a space or quote: a password may itself hold an @ or a slash.
_URL_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s\"']*@")
_ASSIGNMENT = re.compile(
    rf"(?<![\w.-])({_ALWAYS}\s*[=:]\s*|{_UNLESS_NUMBER}\s*[=:]\s*(?!{_NUMBER})){_VALUE}", re.IGNORECASE
)


def redact(value: Any) -> Any:
    """`value` (text, mappings, sequences of them) without secrets.

    Hidden are: values under a key such as password, token or secret; the same written as
    `password=…` in a text; and user and password of a URL.
    """
    if isinstance(value, str):
        return _ASSIGNMENT.sub(rf"\1{_HIDDEN}", _URL_CREDENTIALS.sub(rf"\1{_HIDDEN}@", value))
    if isinstance(value, Mapping):
        return {key: _under(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value


def _under(key: str, value: Any) -> Any:
    if value is None or isinstance(value, Mapping | list | tuple):
        return redact(value)
    secret = _KEY.fullmatch(key) or (isinstance(value, str) and _KEY_OF_TEXT.fullmatch(key))
    return _HIDDEN if secret else redact(value)
