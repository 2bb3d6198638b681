"""State shared by the parts of a run machine: the events being recorded, within bounds; the findings; the cause of a
cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from proctor.policies import events as ev
from proctor.policies.errors import EventError, Violation
from proctor.policies.events.calls import UNREADABLE, ToolCall, copied
from proctor.policies.monitor.monitor import Monitor
from proctor.policies.values.amounts import counted

from ..arguments import RecordBounds
from ..ports.stored_types import ApprovalRequest
from ..redaction import Redactor
from . import event_factory
from .event_factory import labelled, reach, violated, warned
from .interface import AdapterEnded, Begin, Effect


class AnswerDue(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The proposal of this key is to be answered."""

    key: int


class ApprovalDue(msgspec.Struct, frozen=True, tag=True, gc=False):
    """This request for approval is to be shown, if its call still waits."""

    approval_id: str


class CancelDue(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The adapter is to be cancelled, unless it has ended."""

    reason: str


class EndDue(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The run is over: it is to be finished, or the store retried."""


Deferred: TypeAlias = AnswerDue | ApprovalDue | CancelDue | EndDue
"""What becomes an effect once the record is durable."""


@dataclass(slots=True, eq=False)
class Outbox:
    """Collects the events and effects of one input. `unwritten` are the events that `drain_record` has not returned;
    it redacts them.

    # INVARIANT: what `after_record` defers is returned once every event recorded before it is durable, or the store
    # has failed.
    """

    _redactor: Redactor
    broken: bool = False
    unwritten: list[ev.Event] = field(default_factory=list)
    unwritten_bytes: int = 0
    _lines: list[bytes] = field(default_factory=list)
    _ready: list[Effect | Deferred] = field(default_factory=list)
    _waiting: list[tuple[int, Deferred]] | None = None
    _taken: int = 0
    _stored: int = 0

    def drain_record(self) -> list[ev.Event]:
        taken, lines = self.unwritten, self._lines
        self.unwritten, self._lines, self.unwritten_bytes = [], [], 0
        self._taken += len(taken)
        return self._redactor.events(taken, lines)

    def put(self, event: ev.Event, line: bytes | None, size: int) -> None:
        """Record an event of about so many bytes; `line` is the encoded event, None if it cannot be encoded."""
        self.unwritten.append(event)
        if line is not None:
            self._lines.append(line)
        self.unwritten_bytes += size

    def at_once(self, effect: Effect) -> None:
        """Return an effect with the next `drain`, whether or not the record is durable."""
        self._ready.append(effect)

    def after_record(self, deferred: Deferred) -> None:
        """Return this once all events recorded so far are durable."""
        if self._waiting is None:
            self._waiting = []
        self._waiting.append((self._taken + len(self.unwritten), deferred))

    def stored(self, count: int) -> None:
        """The first `count` of the events recorded are durable."""
        self._stored = max(self._stored, count)

    def drain(self) -> Sequence[Effect | Deferred]:
        """The effects to carry out now, then what was deferred and is due."""
        waiting = self._waiting
        while waiting and (self.broken or waiting[0][0] <= self._stored):
            self._ready.append(waiting.pop(0)[1])
        if not self._ready:
            return ()
        ready, self._ready = self._ready, []
        return ready


OfTurn = TypeVar("OfTurn", ev.TurnEvent, ev.ToolEvent, ToolCall)
MESSAGES = frozenset((ev.MessageSent, ev.MessageReceived, ev.MessageStreamed))
"""Events that count against the bounds for messages."""

_EPOCH = datetime.fromtimestamp(0, UTC)
SIGNALS_KEPT = 1024
"""How many approval requests for calls that were not held can be answered during the run."""


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a run: the ids on every record, and whether the adapter can hold every call.

    `turns_before` and `events_before` count the turns and events of the session before this run. `user` started it.
    """

    run_id: str
    session_id: str
    provider: str
    gates_all: bool = False
    turns_before: int = 0
    events_before: int = 0
    user: str | None = None


class CancelCause(msgspec.Struct, frozen=True, kw_only=True):
    """Why the run is being cancelled."""

    kind: Literal["policy", "user", "store", "fault", "lost"]
    reason: str
    person: str = ""
    error: Exception | None = None


def lost(error: Exception) -> CancelCause:
    return CancelCause(kind="lost", reason=str(error), error=error)


def cancel_reason(violation: Violation) -> str:
    """Why a policy cancels a run, for operators."""
    expected = violation.details.get("expected")
    wanted = f"; expected {expected}" if expected else ""
    return f"policy `{violation.policy}`: {violation.message or violation.kind}{wanted}"


@dataclass(slots=True, eq=False)
class RunState:
    """The events, the findings and the cause of cancelling of one run. `faulted`: the monitor has raised and is not
    called again. `ending` is how the adapter ended, once it has.

    # INVARIANT: the monitor observes each event as it is stored, in the same order, so that replaying the log gives
    # the same state. Secrets are the one difference: they are observed as they are and stored redacted.
    """

    identity: RunIdentity
    monitor: Monitor
    redactor: Redactor
    counts: RecordCounts
    outbox: Outbox = field(init=False)
    findings: list[Violation] = field(default_factory=list)
    cause: CancelCause | None = None
    faulted: bool = False
    refusal: Violation | None = None
    begun: bool = False
    ended: bool = False
    ending: AdapterEnded | None = None
    now_ms: int = 0
    at: datetime = _EPOCH
    approved: bool = False
    signals: dict[str, ApprovalRequest] = field(default_factory=dict)
    _approvals: int = 0
    _seq: int = field(init=False)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.redactor)
        self._seq = self.identity.events_before

    def advance_clock(self, now_ms: int) -> None:
        """Set the time of the run, which never goes backwards."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
            self.at = datetime.fromtimestamp(now_ms / 1000, UTC)

    def stamp(self, event: ev.Event) -> ev.Event:
        """The event with the ids and the time of this run, and the seq that it has unless another process appends to
        this session: then the store need not copy it.
        """
        who = self.identity
        self._seq += 1
        return replace(
            event, run_id=who.run_id, session_id=who.session_id, provider=who.provider, at=self.at, seq=self._seq
        )

    def begin(self, input: Begin) -> None:
        """Record the start of the run, and its prompt."""
        self.record(ev.SessionCreated() if input.first else ev.SessionResumed())
        self.begun = True
        self.record(ev.RunStarted(model=input.model, tools=input.tools, metadata=input.metadata))
        if input.prompt is not None:
            self.record(ev.MessageSent(content=input.prompt))

    def numbered(self, counted: OfTurn) -> OfTurn:
        """The event with its turn numbered in the session; a provider counts from 1 in each run."""
        before = self.identity.turns_before
        return replace(counted, turn=counted.turn + before) if before and counted.turn else counted

    def record(self, event: ev.Event) -> None:
        """Stamp and record an event, have the monitor observe it, and enforce its violations. Beyond the bounds, a
        message is dropped and any other event ends the run.
        """
        if type(event) in MESSAGES:
            recorded = self.counts.recorded_for(event)
            if recorded is None:
                return
            event = recorded
        stamped = self._put(event)
        if not self.faulted:
            found = self.monitor.observe(stamped)
            if found:
                self.enforce(found, stamped)
        elif isinstance(stamped, ev.ToolEvent | ev.ToolOutcome):
            self.monitor.calls.apply(stamped)
        if self.counts.over and (full := self.counts.overflow()) is not None and self.ending is None:
            self.record(full)
            self.record_is_full(full)

    def record_is_full(self, full: ev.ErrorOccurred) -> None:
        """Cancel the run as failed."""
        self.request_cancel(CancelCause(kind="fault", reason=full.message, error=EventError(full.message)))

    def _put(self, event: ev.Event) -> ev.Event:
        stamped, line, size = sized(self.stamp(event))
        self.outbox.put(own_input(stamped) if type(stamped) in _OF_CALLS else stamped, line, size)
        self.counts.count(stamped, size)
        return stamped

    def enforce(self, found: Sequence[Violation], event: ev.Event | None = None, *, ended: bool = False) -> None:
        """Record violations by something that already happened, by this event for one, and enforce them as far as
        possible. If the run has `ended`, they make its result an error instead of cancelling it.
        """
        for violation in found:
            how = reach(violation, gates_all=self.identity.gates_all and not ended)
            stops = how in ("cancel", "escalate")
            interrupts = stops and self.cause is None and not ended
            self.record_violation(
                labelled(violation, "interrupted" if interrupts else "observed"), escalated=how == "escalate"
            )
            if stops:
                self.refuse_run(violation, cancel=not ended)
            elif how == "signal":
                self._signal(violation, event)

    def record_violation(self, violation: Violation, *, escalated: bool = False) -> None:
        """Record a violation and keep it for the report."""
        self.findings.append(violation)
        stamped = self._put(violated(violation, escalated=escalated))
        if not self.faulted:
            self.monitor.observe(stamped)

    def refuse_run(self, violation: Violation, *, cancel: bool = True) -> None:
        """Cancel the run by a policy: its result is an error. No effect if another cause is already cancelling it."""
        if self.cause is None or self.cause.kind == "policy":
            self.refusal = self.refusal or violation
        if cancel:
            self.request_cancel(CancelCause(kind="policy", reason=cancel_reason(violation)))

    def request_cancel(self, cause: CancelCause) -> None:
        """Cancel the run; only the first cause counts."""
        if self.cause is None:
            self.cause = cause

    def fail_adapter(self, what: str) -> None:
        """Fail the run, because of an event of its adapter that is wrong or cannot be recorded."""
        error = EventError(f"adapter `{self.identity.provider}` {what}")
        self.request_cancel(CancelCause(kind="fault", reason=str(error), error=error))

    def record_warnings(self) -> None:
        """Record the limits that have passed their `warn_at` since the last call."""
        for warning in () if self.faulted else self.monitor.warnings():
            self.record(warned(warning))

    def new_approval_id(self) -> str:
        """A new id, which begins with the run's."""
        self._approvals += 1
        return f"{self.identity.run_id}.{self._approvals}"

    def skip_approval_id(self, approval_id: str) -> None:
        """Do not use this id again."""
        number = approval_id.removeprefix(f"{self.identity.run_id}.")
        if number.isdecimal():
            self._approvals = max(self._approvals, int(number))

    def keep_signal(self, request: ApprovalRequest) -> None:
        """Keep a request for approval of a call that was not held, so that it can be answered."""
        self.signals[request.approval_id] = request
        if len(self.signals) > SIGNALS_KEPT:
            del self.signals[next(iter(self.signals))]

    @property
    def seq(self) -> int:
        """The seq of the latest event recorded."""
        return self._seq

    def _signal(self, violation: Violation, event: ev.Event | None) -> None:
        """Record a request for approval of a call that could not be held."""
        who, seen = self.identity, event if isinstance(event, ev.ToolEvent) else None
        call = ToolCall(
            id=violation.tool_call_id or "", name=violation.tool_name or "", input=seen.tool_input if seen else {}
        )
        ids = (self.new_approval_id(), who.run_id, who.session_id)
        request = event_factory.request_for([violation], call, ids=ids, at=self.at)
        request = replace(request, ran=isinstance(event, ev.ToolCallStarted))
        self.keep_signal(request)
        self.record(event_factory.requested(request))


_OF_CALLS = frozenset(kind for kind in ev.EVENT_TYPES.values() if "tool_input" in kind.__struct_fields__)


def own_input(event: Any) -> Any:
    """The event of a call with an input of its own: stores and observers may change what they are given."""
    return replace(event, tool_input=copied(event.tool_input))


_encode = msgspec.json.Encoder().encode
MOST_BYTES = 4 * 1024 * 1024
"""About how large one event may be; `omitted_chars` counts what was cut beyond it."""

_CUT = ("content", "delta", "tool_output", "error", "message", "provider_error", "output", "metadata", "raw")
"""Fields that may be cut: no rule depends on them, and no call runs with them."""

_NODES = 2_000
"""A value of more parts is measured by encoding it."""

_SMALL = 64
_SURELY_WITHIN = MOST_BYTES // 2
"""An event encoded in this many bytes is within bounds: in memory it takes at most `_SMALL` more for each of
`_NODES`.
"""

_BASE = frozenset(ev.Event.__struct_fields__)


def estimated_size(event: ev.Event) -> int:
    """About how many bytes an event takes, in memory as in the record."""
    total = 256
    for value in _content_of(type(event))(event):
        if value:
            total += len(value) if type(value) is str else _estimate_size(value)
    return total


def sized(event: ev.Event) -> tuple[ev.Event, bytes | None, int]:
    """A stamped event as it is recorded, cut to the bounds; its encoding if it has one; about how many bytes it
    takes.
    """
    event, line = _as_recorded(event)
    if line is not None and len(line) <= _SURELY_WITHIN:
        return event, line, len(line)
    cut = within_bounds(event)
    return cut, line if cut is event else _as_recorded(cut)[1], estimated_size(cut)


def within_bounds(event: ev.Event) -> ev.Event:
    """The event with its largest fields cut, as text, until it is small enough."""
    too_much = estimated_size(event) - MOST_BYTES
    changes: dict[str, Any] = {}
    omitted = 0
    fields = [name for name in _CUT if getattr(event, name, None)]
    for name in sorted(fields, key=lambda name: _estimate_size(getattr(event, name)), reverse=True):
        if too_much <= 0:
            break
        changes[name], left_out = _cut(event, name, too_much)
        omitted += left_out
        too_much -= left_out
    return msgspec.structs.replace(event, omitted_chars=omitted, **changes) if changes else event


def _cut(event: ev.Event, name: str, too_much: int) -> tuple[Any, int]:
    """A field with its last characters cut off, and how many those are."""
    value = getattr(event, name)
    if isinstance(value, dict) and name in ("metadata", "raw"):  # these are read back as mappings
        return ({"type": event.type} if name == "raw" else {}), _encoded_size(value)
    text = value if isinstance(value, str) else _encode(value).decode()
    kept = max(len(text) - too_much, 0)
    return text[:kept], len(text) - kept


@cache
def _content_of(kind: type[ev.Event]) -> Callable[[ev.Event], tuple[Any, ...]]:
    """A function that reads the fields whose size an agent determines."""
    fields = (field for field in msgspec.structs.fields(kind) if field.name not in _BASE)
    names = [field.name for field in fields if field.type in (Any, str, str | None, dict[str, Any])]
    if len(names) < 2:
        return lambda event: tuple(getattr(event, name) for name in names)
    return attrgetter(*names)


def _as_recorded(event: ev.Event) -> tuple[ev.Event, bytes | None]:
    try:
        return ev.as_recorded(event)
    except UNREADABLE:
        return event, None  # the store says what is wrong with it


def _estimate_size(value: Any) -> int:
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


class RecordCounts:
    """Counts a run's recorded messages, by the code of the event that reports their bound, and its other events;
    `over` once those pass their bound, and `full` once that was reported.
    """

    __slots__ = ("_bounds", "_bytes", "_events", "_full", "_used", "full", "over")

    def __init__(self, bounds: RecordBounds) -> None:
        self._bounds = bounds
        self._used: dict[str, tuple[int, int]] = {}
        self._full: frozenset[str] = frozenset()  # an empty set takes 0.2 KiB of each idle run
        self._events = self._bytes = 0
        self.over = self.full = False

    def is_full_of(self, event: ev.Event) -> bool:
        """Whether no more messages like this one are recorded."""
        return _code_of(event) in self._full

    def recorded_for(self, event: ev.Event) -> ev.Event | None:
        """The event to record for a message: itself, then once the report that the bound is reached, then None."""
        if self.is_full_of(event):
            return None
        code = _code_of(event)
        messages, size = self._used.get(code, (0, 0))
        if messages < self._bounds.max_messages and size + _message_size(event) <= self._bounds.max_message_bytes:
            return event
        whose = "users" if code == ev.USER_MESSAGES_FULL else "the agent"
        bounds = f"{counted(self._bounds.max_messages, 'message')}, {counted(self._bounds.max_message_bytes, 'byte')}"
        return ev.ErrorOccurred(
            code=code, message=f"no more messages of {whose} are recorded in this run: it may record {bounds}"
        )

    def overflow(self) -> ev.ErrorOccurred | None:
        """The error of too many events other than messages, once they are `over` their bound; given once."""
        if self.full:
            return None
        self.full, bounds = True, self._bounds
        most = f"{counted(bounds.max_events, 'event')} besides messages, {counted(bounds.max_event_bytes, 'byte')}"
        return ev.ErrorOccurred(
            code=RECORD_FULL, message=f"the run ends, and no more of it is recorded: it may record {most}"
        )

    def count(self, event: ev.Event, size: int) -> None:
        """Count an event that is recorded, of about so many bytes."""
        if type(event) in MESSAGES:
            code = _code_of(event)
            messages, before = self._used.get(code, (0, 0))
            self._used[code] = messages + 1, before + _message_size(event)
            return
        if isinstance(event, ev.ErrorOccurred):
            if event.code in (ev.USER_MESSAGES_FULL, MESSAGES_FULL):
                self._full |= {event.code}
            self.full = self.full or event.code == RECORD_FULL
        self._events += 1
        self._bytes += size
        if self._events > self._bounds.max_events or self._bytes > self._bounds.max_event_bytes:
            self.over = True


def _code_of(event: Any) -> str:
    return ev.USER_MESSAGES_FULL if event.role == "user" else MESSAGES_FULL


def _message_size(event: ev.Event) -> int:
    return min(estimated_size(event), MOST_BYTES)
