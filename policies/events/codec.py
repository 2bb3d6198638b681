"""Events as JSON: one decoder and one encoder for the whole program, made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import EventError, wrong_type
from ..values.json_values import json_words
from . import EVENT_TYPES, Event, ToolCallRequested, ToolCallStarted, Unrecognized
from .calls import check_input

_STAMPS = Event.__struct_fields__
_union: Any = None
for _cls in EVENT_TYPES.values():
    _union = _cls if _union is None else _union | _cls
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_union)
_stamped = [(field.name, field.type, field.default) for field in msgspec.structs.fields(Event)]
_common: Any = msgspec.json.Decoder(msgspec.defstruct("_Common", [("type", str), *_stamped], kw_only=True))
_raw = msgspec.json.Decoder(dict[str, Any])
_encoder = msgspec.json.Encoder()
_WITH_INPUT = frozenset((ToolCallRequested, ToolCallStarted))


def decode_event(data: bytes | str) -> Event:
    """Read one event from JSON. Raises EventError, naming the place, when it is not one."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, TypeError) as error:
        return _decode_unrecognized(data, error)


def _decode_unrecognized(data: bytes | str, error: Exception) -> Event:
    try:
        common = _common.decode(data)
        if common.type in EVENT_TYPES:
            raise EventError(f"`{common.type}` event: {json_words(error)[:200]}") from None
        raw = _raw.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, TypeError):
        raise EventError(f"not an event: {json_words(error)[:200]}") from None
    return Unrecognized(**{name: getattr(common, name) for name in _STAMPS}, raw=raw)


def encode_event(event: Event) -> bytes:
    """Write one event as a line of JSON, without the line's end.

    Raises EventError for anything that is not an event, and for what JSON cannot hold.
    """
    if not isinstance(event, Event):
        raise EventError(wrong_type("an event", event))
    if type(event) in _WITH_INPUT:
        check_input(event.tool_input)  # type: ignore[attr-defined]
    return encode_checked(event)


def encode_checked(event: Event) -> bytes:
    """As `encode_event`, of an event whose input has passed `check_input`. Raises one of UNREADABLE."""
    if type(event) is not Unrecognized:
        return _encoder.encode(event)
    stamps = {name: getattr(event, name) for name in _STAMPS if getattr(event, name)}
    return _encoder.encode({**event.raw, **stamps})


class Encoded(list[Event]):
    """Events with their `lines`: of each what `encode_event` gives."""

    __slots__ = ("lines",)

    def __init__(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        super().__init__(events)
        self.lines = lines
