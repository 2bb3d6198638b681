"""What an adapter hands over must be readable again from the record: its fields have their types."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from proctor.policies.stream.calls import ToolCall, check_input
from proctor.policies.stream.events import Event, TokenUsageUpdated
from proctor.policies.values.canonical import json_words

NO_CALL = ToolCall(id="", name="")
"""Stands for a proposal that is not a call."""

_PLAIN: frozenset[type] = frozenset((str, int, float, bool, NoneType, dict, list))
_STAMPED = frozenset(Event.__struct_fields__) - {"event_id", "omitted_chars"}
"""The supervisor's own fields, whatever an adapter put there."""

_INPUTS = frozenset(("input", "tool_input"))
"""Fields of which the policies, too, read no more than so many parts."""

_FIGURES = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
)

_encode = msgspec.json.Encoder().encode


def flaw_in(given: msgspec.Struct) -> str | None:
    """What is wrong with the first field of an event or a call that a record could not give back; None if nothing.

    What is nested in an `Any` is left to the store, which refuses what it cannot encode.
    """
    for name, usual, check in _fields_of(type(given)):
        value = getattr(given, name)
        if type(value) not in usual:
            try:
                check(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                return f"`{name}` cannot be recorded: {json_words(error)[:200]}"
    return None


def flaw_in_usage(event: TokenUsageUpdated, before: TokenUsageUpdated | None) -> str | None:
    """What is wrong with the first figure of a report of usage, or None; `before` is the latest cumulative one."""
    falls = before is not None and event.scope == "cumulative" and (event.event_id or "no") != before.event_id
    for name in _FIGURES:
        value = getattr(event, name)
        if value is None:
            continue
        if not 0 <= value < math.inf:  # a NaN is not, either
            return f"`{name}` is {value}, which is not an amount"
        figure = getattr(before, name) if falls else None
        if figure is not None and value < figure:
            return f"`{name}` fell from {figure} to {value}: what was used stays used"
    return None


@cache
def _fields_of(kind: type) -> tuple[tuple[str, frozenset[type], Callable[[Any], None]], ...]:
    """Of each field its name, its usual types, and what raises for a value that does not come back from JSON."""
    stamped = _STAMPED if issubclass(kind, Event) else ()
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in stamped]
    return tuple((field.name, *_intake_of(field)) for field in fields)


def _intake_of(field: msgspec.structs.FieldInfo) -> tuple[frozenset[type], Callable[[Any], None]]:
    decode = msgspec.json.Decoder(field.type).decode

    def read_back(value: Any) -> None:
        decode(_encode(value))

    def bounded(value: Any) -> None:
        if type(value) is dict:
            check_input(value)
        else:
            read_back(value)

    return (frozenset(), bounded) if field.name in _INPUTS else (_usual(field.type), read_back)


def _usual(wanted: Any) -> frozenset[type]:
    """The types whose every value comes back as it should; more than these may."""
    if wanted is Any:
        return _PLAIN
    if wanted is float:
        return frozenset((float, int))
    origin = get_origin(wanted)
    if origin in (Union, UnionType):
        return frozenset(usual for one in get_args(wanted) for usual in _usual(one))
    if origin is None:
        return frozenset((wanted,))
    return frozenset((dict,)) if origin is dict else frozenset()
