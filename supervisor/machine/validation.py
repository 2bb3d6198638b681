"""Checks that an adapter's events can be read again from the record: their fields have their types."""

from __future__ import annotations

import math
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import msgspec

from proctor.policies.events import (
    EVENT_TYPES,
    USER_MESSAGES_FULL,
    ApprovalEvent,
    BudgetReserved,
    BudgetWarned,
    ErrorOccurred,
    Event,
    MessageEvent,
    MessageStreamed,
    NetJoined,
    NetLeft,
    PolicyViolated,
    RunStarted,
    SessionStarted,
    Unrecognized,
)
from proctor.policies.events.calls import UNREADABLE, ToolCall, check_input
from proctor.policies.events.codec import encode_checked
from proctor.policies.events.run_context import FIGURES
from proctor.policies.values.json_values import json_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from proctor.policies.events import TokenUsageUpdated


NO_CALL = ToolCall(id="", name="")
"""Stands for a proposal that is not a call."""


_PLAIN: frozenset[type] = frozenset((str, int, float, bool, NoneType, dict, list))


_STAMPED = frozenset(Event.__struct_fields__) - {"event_id", "omitted_chars"}
"""The supervisor's own fields, whatever an adapter put there."""


_INPUTS = frozenset(("input", "tool_input"))
"""Fields of which the policies, too, read no more than so many parts."""


_encode = msgspec.json.Encoder().encode


def flaw_in(given: msgspec.Struct) -> str | None:
    """The first field of an event or a call that a record could not restore, and why; None if there is none.

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
    """The first wrong figure of a usage report, or None; `before` is the latest cumulative report."""
    falls = before is not None and event.scope == "cumulative" and (event.event_id or "no") != before.event_id
    for name in FIGURES:
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


MESSAGES_FULL = "messages_full"


RECORD_FULL = "record_full"


class RecordBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a run is recorded; its attributes are described by `RecordOptions`."""

    max_messages: int = 50_000
    max_message_bytes: int = 32 * 1024 * 1024
    max_events: int = 100_000
    max_event_bytes: int = 256 * 1024 * 1024


BOUNDS = RecordBounds()


class RecordCounts:
    """A run's recorded messages, counted by the code of the event that reports the bound, and its other events, of
    which it is `full` at most once.
    """

    __slots__ = ("_bounds", "_bytes", "_events", "_full", "_used", "full")

    def __init__(self, bounds: RecordBounds) -> None:
        self._bounds = bounds
        self._used: dict[str, tuple[int, int]] = {}
        self._full: frozenset[str] = frozenset()  # an empty set takes 0.2 KiB of each idle run
        self._events = self._bytes = 0
        self.full = False

    def recorded_for(self, event: MessageEvent | MessageStreamed) -> Event | None:
        """The records for a message: the message, once the event that says the bound is reached, or nothing."""
        code = _code_of(event)
        if code in self._full:
            return None
        messages, size = self._used.get(code, (0, 0))
        if messages < self._bounds.max_messages and size + _message_size(event) <= self._bounds.max_message_bytes:
            return event
        whose = "users" if code == USER_MESSAGES_FULL else "the agent"
        bounds = f"{self._bounds.max_messages:,} messages and {self._bounds.max_message_bytes:,} bytes of them"
        return ErrorOccurred(
            code=code, message=f"no more messages of {whose} are recorded in this run: it may record {bounds}"
        )

    def overflow(self) -> ErrorOccurred | None:
        """Gives, once, the error that the events which are not messages are too many."""
        bounds = self._bounds
        if self.full or (self._events <= bounds.max_events and self._bytes <= bounds.max_event_bytes):
            return None
        self.full = True
        most = f"{bounds.max_events:,} events besides messages and {bounds.max_event_bytes:,} bytes of them"
        return ErrorOccurred(
            code=RECORD_FULL, message=f"the run ends, and no more of it is recorded: it may record {most}"
        )

    def count(self, event: Event, size: int) -> None:
        """Count an event that is recorded, of about so many bytes."""
        if isinstance(event, MessageEvent | MessageStreamed):
            code = _code_of(event)
            messages, before = self._used.get(code, (0, 0))
            self._used[code] = messages + 1, before + _message_size(event)
            return
        if isinstance(event, ErrorOccurred):
            if event.code in (USER_MESSAGES_FULL, MESSAGES_FULL):
                self._full |= {event.code}
            self.full = self.full or event.code == RECORD_FULL
        self._events += 1
        self._bytes += size


def _code_of(event: MessageEvent | MessageStreamed) -> str:
    return USER_MESSAGES_FULL if event.role == "user" else MESSAGES_FULL


def _message_size(event: MessageEvent | MessageStreamed) -> int:
    return min(weight(event), MOST_BYTES)


_OURS = (ApprovalEvent, PolicyViolated, BudgetReserved, BudgetWarned, NetJoined, NetLeft)
_FULL = (USER_MESSAGES_FULL, MESSAGES_FULL, RECORD_FULL)


def believed(event: Event) -> Event:
    """The event as it may be recorded."""
    if isinstance(event, _OURS) or (isinstance(event, ErrorOccurred) and event.code in _FULL):
        return _not_believed(event.type, event)
    if isinstance(event, RunStarted):
        return _session_started(event)
    if isinstance(event, Unrecognized):
        return _unrecognized(event)
    return event


def _not_believed(claimed: str, event: Event) -> ErrorOccurred:
    return ErrorOccurred(
        code="not_believed",
        message=f"the provider reported a `{claimed}` event, which only the supervisor records",
        provider_error=msgspec.to_builtins(event),
        event_id=event.event_id,
    )


def _session_started(event: RunStarted) -> SessionStarted:
    metadata: dict[str, Any] = {**event.metadata}
    if event.model is not None:
        metadata["model"] = event.model
    if event.tools is not None:
        metadata["tools"] = list(event.tools)
    return SessionStarted(metadata=metadata, event_id=event.event_id)


def _unrecognized(event: Unrecognized) -> Event:
    """Keep an unknown record as it came, unless reading it back would make it a known one."""
    claimed = event.raw.get("type")
    if claimed in EVENT_TYPES:
        return _not_believed(str(claimed), Unrecognized(raw={"claimed": event.raw}))
    if not isinstance(claimed, str):
        return msgspec.structs.replace(event, raw={**event.raw, "type": "unrecognized"})
    return event
