"""State shared by the parts of a run machine: the record being written, the findings, and the order to cancel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from proctor.policies.errors import EventError, Violation
from proctor.policies.events import (
    ErrorOccurred,
    Event,
    MessageEvent,
    MessageSent,
    MessageStreamed,
    RunStarted,
    SessionCreated,
    SessionResumed,
    ToolCallStarted,
    ToolEvent,
    ToolOutcome,
    TurnEvent,
)
from proctor.policies.events.calls import ToolCall

from ..ports.stored_types import ApprovalRequest
from ..redaction import Redactor
from . import event_factory
from .event_factory import labelled, reach, violated, warned
from .interface import AdapterEnded, Command, Judge
from .validation import BOUNDS, RecordCounts, sized

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from .interface import Begin


class AnswerDue(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The proposal of this key is to be answered."""

    key: int


class ApprovalDue(msgspec.Struct, frozen=True, tag=True, gc=False):
    """This request for approval is to be shown, if its call still waits."""

    approval_id: str


class CancelDue(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The adapter is to be cancelled, if it has not ended."""

    reason: str


class EndDue(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The run is over: its caller is to be told, or the store asked once more."""


Deferred: TypeAlias = AnswerDue | ApprovalDue | CancelDue | EndDue
"""What becomes a command once the record is durable."""


@dataclass(slots=True, eq=False)
class Outbox:
    """Collects what one input leads to. `unwritten` are the events nobody has taken away to store them, exact until
    then; what is taken has its secrets redacted.

    # INVARIANT: what was handed to `after_record` comes out only when every event recorded before it is
    # durable, or when the store has failed.
    """

    _redactor: Redactor
    broken: bool = False
    unwritten: list[Event] = field(default_factory=list)
    unwritten_bytes: int = 0
    _lines: list[bytes] = field(default_factory=list)
    _ready: list[Command] = field(default_factory=list)
    _waiting: list[tuple[int, Deferred]] | None = None
    _taken: int = 0
    _stored: int = 0

    def take_record(self) -> list[Event]:
        """The events to store next."""
        taken, lines = self.unwritten, self._lines
        self.unwritten, self._lines, self.unwritten_bytes = [], [], 0
        self._taken += len(taken)
        return self._redactor.events(taken, lines)

    def put(self, event: Event, line: bytes | None, size: int) -> None:
        """Record an event of about so many bytes; `line` is it encoded, None where that cannot be."""
        self.unwritten.append(event)
        if line is not None:
            self._lines.append(line)
        self.unwritten_bytes += size

    def at_once(self, command: Command) -> None:
        """Have a command carried out whatever becomes of the record."""
        self._ready.append(command)

    def after_record(self, deferred: Deferred) -> None:
        """Have a command carried out when all recorded so far is durable."""
        if self._waiting is None:
            self._waiting = []
        self._waiting.append((self._taken + len(self.unwritten), deferred))

    def stored(self, count: int) -> None:
        """The first `count` of the events recorded are durable."""
        self._stored = max(self._stored, count)

    def take(self, command_of: Callable[[Deferred], Command | None]) -> Sequence[Command]:
        """The commands that may be carried out now; `command_of` makes one of what was deferred, if it is wanted."""
        waiting = self._waiting
        while waiting and (self.broken or waiting[0][0] <= self._stored):
            command = command_of(waiting.pop(0)[1])
            if command is not None:
                self._ready.append(command)
        if not self._ready:
            return ()
        ready, self._ready = self._ready, []
        return ready


OfTurn = TypeVar("OfTurn", TurnEvent, ToolEvent, ToolCall)


_EPOCH = datetime.fromtimestamp(0, UTC)


SIGNALS_KEPT = 1024
"""How many of a run's latest signals for approval can be answered while it goes on."""


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a run: the ids on every record, and whether the adapter can hold every call.

    `turns_before` is the number of model responses the session had before this run, `events_before` that of
    its events. `user` started it.
    """

    run_id: str
    session_id: str
    provider: str
    gates_all: bool = False
    turns_before: int = 0
    events_before: int = 0
    user: str | None = None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why the run is being cancelled."""

    kind: Literal["policy", "user", "caller", "approval", "store", "fault", "lost"]
    reason: str
    person: str = ""
    error: Exception | None = None


def lost(error: Exception) -> Cause:
    """The run's owner is gone."""
    return Cause(kind="lost", reason=str(error), error=error)


def because(violation: Violation) -> str:
    """Why a policy refuses a run, for operators."""
    expected = violation.details.get("expected")
    wanted = f"; expected {expected}" if expected else ""
    return f"policy `{violation.policy}`: {violation.message or violation.kind}{wanted}"


@dataclass(slots=True, eq=False)
class RunState:
    """The record, the findings and the one cause of cancelling of a run. `faulted`: the judge has raised
    and is asked no more. `ending` is how the adapter ended, once it has.

    # INVARIANT: the judge observes each event as it is stored, in the order it is stored, so that folding the
    # record again gives the same state. Secrets are the one difference: judged as they are, stored as placeholders.
    """

    identity: RunIdentity
    judge: Judge
    redactor: Redactor
    counts: RecordCounts = field(default_factory=lambda: RecordCounts(BOUNDS))
    outbox: Outbox = field(init=False)
    findings: list[Violation] = field(default_factory=list)
    cause: Cause | None = None
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

    def tell_time(self, now_ms: int) -> None:
        """Time never goes backwards within a run."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
            self.at = datetime.fromtimestamp(now_ms / 1000, UTC)

    def stamp(self, event: Event) -> Event:
        """The event with the ids and the time of this run, and the seq it will have if nobody else records
        in this session: a store need not copy it then to give it one.
        """
        who = self.identity
        self._seq += 1
        return replace(
            event, run_id=who.run_id, session_id=who.session_id, provider=who.provider, at=self.at, seq=self._seq
        )

    def begin(self, input: Begin) -> None:
        """Record that the run starts, and what it is asked."""
        self.record(SessionCreated() if input.first else SessionResumed())
        self.begun = True
        self.record(RunStarted(model=input.model, tools=input.tools, metadata=input.metadata))
        if input.prompt is not None:
            self.record(MessageSent(content=input.prompt))

    def numbered(self, counted: OfTurn) -> OfTurn:
        """With its turn as the session counts it: a provider counted its responses from 1 in each run."""
        before = self.identity.turns_before
        return replace(counted, turn=counted.turn + before) if before and counted.turn else counted

    def record(self, event: Event) -> None:
        """Stamp and store an event, have it judged, and follow what is found; not a message beyond the bounds. Other
        events beyond theirs end the run.
        """
        if isinstance(event, MessageEvent | MessageStreamed):
            recorded = self.counts.recorded_for(event)
            if recorded is None:
                return
            event = recorded
        stamped = self._put(event)
        if not self.faulted:
            found = self.judge.observe(stamped)
            if found:
                self.follow(found, stamped)
        elif isinstance(stamped, ToolEvent | ToolOutcome):
            self.judge.calls.apply(stamped)
        if (full := self.counts.overflow()) is not None and self.ending is None:
            self.record(full)
            self.record_is_full(full)

    def record_is_full(self, full: ErrorOccurred) -> None:
        """The run fails of it."""
        self.order_cancel(Cause(kind="fault", reason=full.message, error=EventError(full.message)))

    def _put(self, event: Event) -> Event:
        stamped, line, size = sized(self.stamp(event))
        self.outbox.put(stamped, line, size)
        self.counts.count(stamped, size)
        return stamped

    def follow(self, found: Sequence[Violation], event: Event | None = None, *, ended: bool = False) -> None:
        """Record violations of what already happened and enforce them as far as that goes.

        Args:
            found: the violations.
            event: what they were found on, if it was an event.
            ended: the run is over, so a violation can refuse its result and no longer interrupt it.
        """
        for violation in found:
            how = reach(violation, gates_all=self.identity.gates_all and not ended)
            stops = how in ("cancel", "escalate")
            interrupts = stops and self.cause is None and not ended
            self.note(labelled(violation, "interrupted" if interrupts else "observed"), escalated=how == "escalate")
            if stops:
                self.refuse_run(violation, cancel=not ended)
            elif how == "signal":
                self._signal(violation, event)

    def note(self, violation: Violation, *, escalated: bool = False) -> None:
        """Store a violation and keep it for the report."""
        self.findings.append(violation)
        stamped = self._put(violated(violation, escalated=escalated))
        if not self.faulted:
            self.judge.observe(stamped)

    def refuse_run(self, violation: Violation, *, cancel: bool = True) -> None:
        """A policy refuses this run: its result will be an error, and it is cancelled if it still goes on; not where
        something else has ended it before.
        """
        if self.cause is None or self.cause.kind == "policy":
            self.refusal = self.refusal or violation
        if cancel:
            self.order_cancel(Cause(kind="policy", reason=because(violation)))

    def order_cancel(self, cause: Cause) -> None:
        """The first cause stands; later ones change nothing."""
        if self.cause is None:
            self.cause = cause

    def blame_adapter(self, what: str) -> None:
        """The adapter handed over something that cannot be true, or cannot be recorded: the run fails."""
        error = EventError(f"adapter `{self.identity.provider}` {what}")
        self.order_cancel(Cause(kind="fault", reason=str(error), error=error))

    def hand_over_warnings(self) -> None:
        """Record the limits that came near since last asked."""
        for warning in () if self.faulted else self.judge.warnings():
            self.record(warned(warning))

    def new_approval_id(self) -> str:
        """An id that tells the run it belongs to (see `control.approvals.run_of`)."""
        self._approvals += 1
        return f"{self.identity.run_id}.{self._approvals}"

    def recall_approval(self, approval_id: str) -> None:
        """An id that was given already is not given again."""
        number = approval_id.removeprefix(f"{self.identity.run_id}.")
        if number.isdecimal():
            self._approvals = max(self._approvals, int(number))

    @property
    def seq(self) -> int:
        """The seq of the latest event recorded."""
        return self._seq

    def _signal(self, violation: Violation, event: Event | None) -> None:
        """Record that somebody should have approved this, since the agent could not be held."""
        who, seen = self.identity, event if isinstance(event, ToolEvent) else None
        call = ToolCall(
            id=violation.tool_call_id or "", name=violation.tool_name or "", input=seen.tool_input if seen else {}
        )
        ids = (self.new_approval_id(), who.run_id, who.session_id)
        request = event_factory.request_for([violation], call, ids=ids, at=self.at)
        request = replace(request, ran=isinstance(event, ToolCallStarted))
        self.signals[request.approval_id] = request
        if len(self.signals) > SIGNALS_KEPT:
            del self.signals[next(iter(self.signals))]
        self.record(event_factory.requested(request))
