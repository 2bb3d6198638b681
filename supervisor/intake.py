"""What an adapter hands over must be readable again from the record: its fields have their types."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from proctor.policies.events import Event
from proctor.policies.json_words import json_words

_PLAIN: frozenset[type] = frozenset((str, int, float, bool, NoneType, dict, list))
_STAMPED = frozenset(Event.__struct_fields__) - {"event_id"}
"""The supervisor's own fields, whatever an adapter put there."""

_encode = msgspec.json.Encoder().encode


def flaw_in(told: msgspec.Struct) -> str | None:
    """What is wrong with the first field of an event or a call that no record could give back, or None.

    What is nested in an `Any` is left to the store, which refuses what it cannot encode.
    """
    for name, usual, decode in _fields_of(type(told)):
        value = getattr(told, name)
        if type(value) not in usual:
            try:
                decode(_encode(value))
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                return f"`{name}` cannot be recorded: {json_words(error)[:200]}"
    return None


@cache
def _fields_of(kind: type) -> tuple[tuple[str, frozenset[type], Callable[[bytes], object]], ...]:
    """Of each field its name, its usual types, and what reads it from JSON."""
    stamped = _STAMPED if issubclass(kind, Event) else ()
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in stamped]
    return tuple((field.name, _usual(field.type), msgspec.json.Decoder(field.type).decode) for field in fields)


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
