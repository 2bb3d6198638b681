"""How large events are, and how much of what an agent reports one event carries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from proctor.policies.stream.calls import UNREADABLE
from proctor.policies.stream.codec import encode_checked
from proctor.policies.stream.events import Event

MOST_BYTES = 4 * 1024 * 1024
"""An event carries about so much; of what an agent reports beyond it, `omitted_chars` says how much was left out."""
_CUT = ("content", "delta", "tool_output", "error", "message", "provider_error", "output", "metadata", "raw")
"""Fields of which something may be left out: nothing is found by them, and no call runs with them."""
_NODES = 2_000
"""A value of more parts than these is measured by encoding it."""
_SMALL = 64
_SURELY_WITHIN = MOST_BYTES // 2
"""Whatever is encoded in so many bytes weighs less than an event may: at most `_SMALL` for each of `_NODES` more."""
_BASE = frozenset(Event.__struct_fields__)

_encode = msgspec.json.Encoder().encode


def weight(event: Event) -> int:
    """About how many bytes an event takes, in memory as in the record."""
    total = 256
    for value in _content_of(type(event))(event):
        if value:
            total += len(value) if type(value) is str else _weigh(value)
    return total


def sized(event: Event) -> tuple[Event, bytes | None, int]:
    """A stamped event as it is judged and recorded: within bounds, encoded, where that can be, and about how many
    bytes it takes.
    """
    line = _line(event)
    if line is not None and len(line) <= _SURELY_WITHIN:
        return event, line, len(line)
    cut = within_bounds(event)
    return cut, line if cut is event else _line(cut), weight(cut)


def within_bounds(event: Event) -> Event:
    """The event as it is judged and recorded: its largest contents are cut short, as text, to what it may carry."""
    too_much = weight(event) - MOST_BYTES
    changes: dict[str, Any] = {}
    omitted = 0
    fields = [name for name in _CUT if getattr(event, name, None)]
    for name in sorted(fields, key=lambda name: _weigh(getattr(event, name)), reverse=True):
        if too_much <= 0:
            break
        changes[name], left_out = _cut(event, name, too_much)
        omitted += left_out
        too_much -= left_out
    return msgspec.structs.replace(event, omitted_chars=omitted, **changes) if changes else event


def _cut(event: Event, name: str, too_much: int) -> tuple[Any, int]:
    """A content with its last characters cut off, and how many those are."""
    value = getattr(event, name)
    if isinstance(value, dict) and name in ("metadata", "raw"):  # these are read back as mappings
        return ({"type": event.type} if name == "raw" else {}), _encoded_size(value)
    text = value if isinstance(value, str) else _encode(value).decode()
    kept = max(len(text) - too_much, 0)
    return text[:kept], len(text) - kept


@cache
def _content_of(kind: type[Event]) -> Callable[[Event], tuple[Any, ...]]:
    """Reads the fields that an agent fills as it likes."""
    fields = (field for field in msgspec.structs.fields(kind) if field.name not in _BASE)
    names = [field.name for field in fields if field.type in (Any, str, str | None, dict[str, Any])]
    if len(names) < 2:
        return lambda event: tuple(getattr(event, name) for name in names)
    return attrgetter(*names)


def _line(event: Event) -> bytes | None:
    try:
        return encode_checked(event)
    except UNREADABLE:
        return None  # the store says what is wrong with it


def _weigh(value: Any) -> int:
    total, parts, left = 0, [value], _NODES
    while parts:
        part = parts.pop()
        left -= 1
        if not left:
            return _encoded_size(value)
        if type(part) is str:
            total += len(part)
        elif isinstance(part, dict):
            total += _SMALL
            parts += part.values()
            parts += part
        elif isinstance(part, list | tuple):
            total += _SMALL
            parts += part
        else:
            total += 8
    return total


def _encoded_size(value: Any) -> int:
    try:
        return len(_encode(value))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return 0  # the store says what is wrong with it
