"""What is wrong with a piece of JSON, in words: msgspec's own speak of types of Python."""

from __future__ import annotations

import re

_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "datetime": "a time",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "text",
}
_NAMED = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_PHRASES = (
    (re.compile(r"^JSON is malformed: (.*) \(byte (\d+)\)$"), r"not JSON: \1 at byte \2"),
    (re.compile(r"^Input data was truncated$"), "not JSON: it ends too early"),
    (re.compile(r"^Object missing required field `(.*?)`"), r"`\1` is missing"),
    (re.compile(r"^Object contains unknown field `(.*?)`"), r"unknown key `\1`"),
    (re.compile(r"^Invalid RFC3339 encoded datetime"), "not a time such as `2026-11-20T10:00:00Z`"),
    (re.compile(r" - at `"), " at `"),
)


def json_words(error: Exception) -> str:
    """What an error of the JSON decoder says, for people; `$` is the whole value."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    text = _NAMED.sub(_kinds, str(error))
    for pattern, words in _PHRASES:
        text = pattern.sub(words, text)
    return text[:1].lower() + text[1:]


def _kinds(match: re.Match[str]) -> str:
    """Names of types in words; any other name as it is."""
    names = match[1].split(" | ")
    return " or ".join(_KINDS[name] for name in names) if _KINDS.keys() >= set(names) else match[0]
