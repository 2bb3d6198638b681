"""JSON values: which are the same, their order, and the texts in them.

Two readings: *typed*, for what tools returned, and *loose*, for what a call asks: there, text that is wholly
a decimal number is also that number and a number is also its text, so that a rule is not passed by changing
an argument's JSON type.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeGuard

import msgspec

from .model_base import aliased

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MAX_DIGITS = 400
DEPTH = 200
"""How deep a value may be nested that is kept."""

MOST_KEPT = 1_000_000
"""How many lists, objects and elements a value may hold that is kept."""

LARGEST = 10**300
"""The whole numbers that are kept are smaller, so that they can be read as floats too."""


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a JSON number: not a boolean, NaN or an infinity."""
    if type(value) is int:
        return True
    return type(value) is float and math.isfinite(value)


_NO_NUMBER: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How MessagePack writes a number that JSON does not have. Other bytes may look like that, but no text."""


def is_finite(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bool:
    """Whether JSON has every number in a value; `enc_hook` turns what JSON has not into what it has. Raises what
    `enc_hook` raises, or TypeError.
    """
    if type(value) is str:
        return True
    plain = msgspec.to_builtins(value, enc_hook=enc_hook, str_keys=True)
    with suppress(UnicodeError, OverflowError):  # of what MessagePack does not have either
        if _NO_NUMBER.search(msgspec.msgpack.encode(plain)) is None:
            return True  # in a fifth of the time that JSON takes in Python
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError:
        return False
    return True


def name_numbers(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> Any:
    """The value as JSON has it, with the text `NaN`, `Infinity` or `-Infinity` for a number that JSON does not have.
    Raises as `is_finite` does.
    """
    plain = msgspec.to_builtins(value, enc_hook=enc_hook, str_keys=True)
    return json.loads(json.dumps(plain), parse_constant=str)


def number_of(value: Any, loose: bool) -> int | float | None:
    """The number a value stands for, or None."""
    if is_number(value):
        return value
    if not loose or type(value) is not str or len(value) > _MAX_DIGITS or not _DECIMAL.fullmatch(value):
        return None
    try:
        return int(value)
    except ValueError:
        number = float(value)
        return number if math.isfinite(number) else None


def text_of(scalar: Any) -> str:
    """The text by which two scalars are the same id: 7, 7.0 and "7" are one."""
    if type(scalar) is str:
        return scalar
    if type(scalar) is float and scalar.is_integer():
        return str(int(scalar))
    if scalar is None or type(scalar) is bool:
        return json.dumps(scalar)
    return str(scalar)


class RepeatedKeyError(ValueError):
    """An object of a JSON text has a key twice: programs differ in which of the values counts."""


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object, for a decoder of JSON. Raises RepeatedKeyError."""
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        raise RepeatedKeyError(f"the key `{next(key for key in keys if keys.count(key) > 1)}` is given twice")
    return members


def _all_members(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    """The members of an object; of a key that is given twice, paths find each value, as programs differ."""
    members = dict(pairs)
    others: dict[str, list[Any]] = {}
    for key, value in pairs if len(members) != len(pairs) else ():
        if value is not members[key]:
            others.setdefault(key, []).append(value)
    return aliased(members, others)


def container_of(text: str) -> dict[str, Any] | list[Any] | None:
    """The object or list that a text is as JSON: many MCP servers take such an argument for what it says."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text, object_pairs_hook=_all_members)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def scalars_in(value: Any) -> Iterator[Any]:
    """A scalar itself, or the scalars a list or object stands for, in order."""
    if not isinstance(value, dict | list | tuple):
        yield value
        return
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list | tuple):
            stack.extend(reversed(value.values() if isinstance(value, dict) else value))
        else:
            yield value


def given_texts(values: list[Any]) -> Iterator[str]:
    """The texts of the scalars that ask for something: null and "" do not."""
    for value in values:
        for scalar in scalars_in(value):
            if scalar is not None and scalar != "":
                yield text_of(scalar)


def same(left: Any, right: Any, loose: bool) -> bool:
    """Whether two JSON values are equal: numbers with numbers, never a boolean with a number."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key], loose) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(lambda a, b: same(a, b, loose), left, right))
    if is_number(left) and is_number(right):
        return left == right
    if type(left) is type(right) and type(left) is not float:
        if left == right:
            return True
        return loose and type(left) is str and _same_decimals(left, right)
    if loose and (is_number(left) or is_number(right)) and (type(left) is str or type(right) is str):
        return text_of(left) == text_of(right) or _same_decimals(left, right)
    return False


def _same_decimals(left: Any, right: Any) -> bool:
    # Two texts stay texts ("007" is not "7"); a number meets a text as number or as text.
    if type(left) is str and type(right) is str:
        return False
    number = number_of(left, loose=True)
    return number is not None and number == number_of(right, loose=True)


def order(left: Any, right: Any, loose: bool) -> int | None:
    """-1, 0 or 1 as left is below, at or above right; None where no ordering can be made.

    Loosely, text that is a decimal number is ordered as that number only: among texts it might stand anywhere.
    """
    a, b = number_of(left, loose), number_of(right, loose)
    if a is not None and b is not None:
        return (a > b) - (a < b)
    if a is not None or b is not None:
        return None
    if type(left) is str and type(right) is str:
        return (left > right) - (left < right)
    return None


def as_compared(returned: Any, operand: Any) -> Any:
    """An operand of an input as it meets a returned value: a number as its text, a text as the number it is."""
    if is_number(returned) and type(operand) is str:
        number = number_of(operand, loose=True)
        return operand if number is None else number
    return text_of(operand) if type(returned) is str and is_number(operand) else operand


def texts_in(value: Any) -> list[str]:
    """Every text a pattern must look at in a call's input: inside lists and objects, numbers as their text,
    and a list's texts joined by blanks.
    """
    if type(value) is str:
        return [value]
    if is_number(value):
        return [text_of(value)]
    found: list[str] = []
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list | tuple):
            joined = [text_of(item) for item in value if type(item) is str or is_number(item)]
            if len(joined) > 1:
                found.append(" ".join(joined))
            stack.extend(value)
        elif type(value) is str or is_number(value):
            found.append(text_of(value))
    return found


def is_unserializable(value: Any) -> bool:
    """Whether a value cannot be written and read back: not JSON, nested too deep, endless, or too large a number."""
    stack, left = [(value, 0)], MOST_KEPT
    while stack:
        value, depth = stack.pop()
        if isinstance(value, dict | list | tuple):
            left -= 1 + len(value)
            if depth >= DEPTH or left < 0 or (isinstance(value, dict) and not all(type(key) is str for key in value)):
                return True
            inner = value.values() if isinstance(value, dict) else value
            stack.extend((item, depth + 1) for item in inner)
        elif type(value) is int:
            if not -LARGEST < value < LARGEST:
                return True
        elif value is not None and type(value) not in (str, bool, float):
            return True
    return False


def parsed_output(output: Any) -> Any:
    """A tool's output as paths see it: text that holds a JSON object or array is parsed.

    What cannot be kept has no value anywhere; as text it stays text.
    """
    if type(output) is not str:
        return None if is_unserializable(output) else output
    start = output.lstrip()[:1]
    if start not in ("{", "["):
        return output
    try:
        parsed = json.loads(output)
    except (ValueError, RecursionError):
        return output
    return output if is_unserializable(parsed) else parsed


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
    (re.compile(r"^Input data was truncated$"), "not JSON: it ends too early, or has half a character"),
    (re.compile(r"^Invalid UTF-8 encoded string"), "not valid UTF-8"),
    (re.compile(r"^Object missing required field `(.*?)`"), r"`\1` is missing"),
    (re.compile(r"^Object contains unknown field `(.*?)`"), r"unknown key `\1`"),
    (re.compile(r"^Invalid enum value '(.*?)'"), r"unknown value `\1`"),
    (re.compile(r"^Invalid RFC3339 encoded datetime"), "not a time such as `2026-11-20T10:00:00Z`"),
    (re.compile(r" - at `"), " at `"),
)


NOT_JSON: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What a decoder of JSON raises."""
NOT_YAML: Final = (*NOT_JSON, ValueError, AttributeError)
"""What a decoder of YAML raises beside YAMLError: a value that is no date, no number or too long a one."""


def json_words(error: Exception) -> str:
    """A JSON decoder's error, for people; `$` is the whole value."""
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
