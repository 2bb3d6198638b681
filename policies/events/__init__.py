"""The events of a session, which adapters report and rules evaluate, and their JSON.

Every event is a frozen record tagged by `type`. Types not known here decode to `Unrecognized`: they are
kept as they came, never dropped and never an error.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from ..errors import EventError, wrong_type
from ..values.json_values import is_finite, json_words, name_numbers
from .calls import check_input
from .policy_events import USER_MESSAGES_FULL as USER_MESSAGES_FULL
from .policy_events import ApprovalEvent as ApprovalEvent
from .policy_events import BudgetReserved as BudgetReserved
from .policy_events import BudgetWarned as BudgetWarned
from .policy_events import ErrorEvent as ErrorEvent
from .policy_events import ErrorOccurred as ErrorOccurred
from .policy_events import ErrorRecovered as ErrorRecovered
from .policy_events import NetJoined as NetJoined
from .policy_events import NetLeft as NetLeft
from .policy_events import PolicyViolated as PolicyViolated
from .policy_events import RunCancelled as RunCancelled
from .policy_events import RunCompleted as RunCompleted
from .policy_events import RunFailed as RunFailed
from .policy_events import ToolApprovalDenied as ToolApprovalDenied
from .policy_events import ToolApprovalExpired as ToolApprovalExpired
from .policy_events import ToolApprovalGranted as ToolApprovalGranted
from .policy_events import ToolApprovalRequested as ToolApprovalRequested
from .run_events import Event as Event
from .run_events import MessageEvent as MessageEvent
from .run_events import MessageReceived as MessageReceived
from .run_events import MessageSent as MessageSent
from .run_events import MessageStreamed as MessageStreamed
from .run_events import RecordPruned as RecordPruned
from .run_events import RunStarted as RunStarted
from .run_events import Scope as Scope
from .run_events import SessionCancelled as SessionCancelled
from .run_events import SessionCompleted as SessionCompleted
from .run_events import SessionCreated as SessionCreated
from .run_events import SessionEvent as SessionEvent
from .run_events import SessionFailed as SessionFailed
from .run_events import SessionPaused as SessionPaused
from .run_events import SessionResumed as SessionResumed
from .run_events import SessionStarted as SessionStarted
from .run_events import TokenUsageUpdated as TokenUsageUpdated
from .run_events import ToolCallCompleted as ToolCallCompleted
from .run_events import ToolCallDenied as ToolCallDenied
from .run_events import ToolCallFailed as ToolCallFailed
from .run_events import ToolCallRequested as ToolCallRequested
from .run_events import ToolCallStarted as ToolCallStarted
from .run_events import ToolEvent as ToolEvent
from .run_events import ToolOutcome as ToolOutcome
from .run_events import TurnCompleted as TurnCompleted
from .run_events import TurnEvent as TurnEvent
from .run_events import TurnStarted as TurnStarted


class Unrecognized(Event, tag="unrecognized", frozen=True):
    """An event of a type this version does not know; `raw` is the whole record as it came."""

    raw: dict[str, Any] = {}

    @property
    def type(self) -> str:
        return str(self.raw.get("type", "unrecognized"))


TERMINAL = (RunCompleted, RunFailed, RunCancelled)
"""Exactly one of these ends a run."""


def _leaves(cls: type[Event]) -> list[type[Event]]:
    subclasses = cls.__subclasses__()
    return [leaf for sub in subclasses for leaf in _leaves(sub)] if subclasses else [cls]


EVENT_TYPES: dict[str, type[Event]] = {
    str(cls.__struct_config__.tag): cls for cls in _leaves(Event) if cls is not Unrecognized
}
"""Every known type by its tag."""


def at_ms(at: datetime) -> int:
    """A moment as milliseconds since the epoch; one without a zone is read as UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)


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
    except (msgspec.DecodeError, RecursionError, UnicodeError, TypeError) as error:
        return _decode_unrecognized(data, error)


def _decode_unrecognized(data: bytes | str, error: Exception) -> Event:
    try:
        common = _common.decode(data)
        if common.type in EVENT_TYPES:
            raise EventError(f"`{common.type}` event: {json_words(error)[:200]}") from None
        raw = _raw.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError, TypeError) as unread:
        raise EventError(f"not an event: {json_words(unread)[:200]}") from None
    return Unrecognized(**{name: getattr(common, name) for name in _STAMPS}, raw=raw)


def encode_event(event: Event) -> bytes:
    """Write one event as a line of JSON, without the line's end. A number that JSON does not have is written as the
    text `NaN`, `Infinity` or `-Infinity`.

    Raises EventError for anything that is not an event, and for what JSON cannot hold.
    """
    if not isinstance(event, Event):
        raise EventError(wrong_type("an event", event))
    if type(event) in _WITH_INPUT:
        check_input(event.tool_input)  # type: ignore[attr-defined]
    return as_recorded(event)[1]


def as_recorded(event: Event) -> tuple[Event, bytes]:
    """An event whose input has passed `check_input` as `encode_event` writes it, and that line. Raises one of
    UNREADABLE.
    """
    line = _encoded(event)
    if b"null" not in line:  # as it would have for a number that JSON does not have
        return event, line
    values = ((name, getattr(event, name)) for name in _open_fields(type(event)))
    named = {name: name_numbers(value) for name, value in values if not is_finite(value)}
    if not named:
        return event, line
    event = msgspec.structs.replace(event, **named)
    return event, _encoded(event)


@cache
def _open_fields(kind: type[Event]) -> tuple[str, ...]:
    """The fields that may hold any JSON, without those that `check_input` checks."""
    fields = msgspec.structs.fields(kind)
    return tuple(field.name for field in fields if field.type in _OPEN and field.name != "tool_input")


_OPEN = (Any, dict[str, Any], dict[str, Any] | None)


def _encoded(event: Event) -> bytes:
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


ROOMS = ("policy_events", "run_context", "calls", "run_events")
"""Top first: each imports only those below it."""
