"""What an unquoted YAML word means: the core schema of YAML 1.2, nothing guessed beyond it."""

from __future__ import annotations

import re
from typing import Any

from ..tree import Unreadable

_WORDS: dict[str, Any] = {"": None, "~": None}
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
_MAX_DIGITS = 400


def resolve(text: str) -> Any:
    """The value of an unquoted word: null, a boolean, a number, or else text; no dates, no base 60.

    Raises:
        Unreadable: the number has too many digits.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
        return integer(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))
    if text in (".nan", ".NaN", ".NAN"):
        return float("nan")
    return text


def integer(text: str) -> int:
    """The whole number a text spells.

    Raises:
        Unreadable: it has too many digits.
    """
    if len(text) > _MAX_DIGITS:
        raise Unreadable("a number has too many digits")
    return int(text, 10 if _INTEGER.fullmatch(text) else 0)


def whole_characters(text: str) -> str:
    """The text with surrogate pairs joined.

    Raises:
        Unreadable: half a pair stands alone, which no text may hold.
    """
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise Unreadable("text holds half a character (a lone surrogate)") from None
