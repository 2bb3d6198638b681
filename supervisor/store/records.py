"""What every store makes of an event: its bytes, its digest in the chain, its effect on the run's row, and whether it
is admitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from proctor.policies import events as ev
from proctor.policies.errors import EventError
from proctor.policies.events.run_context import FIGURES, Usage

from ..errors import StoreError
from ..ports.stored_types import GOING_ON, LogEntry, RunInfo, RunStatus

Status: TypeAlias = Literal["completed", "failed", "cancelled"]
MAX_DEPTH = 300
"""Deepest nesting of a stored event; a deeper one could not be read back within a deep call stack."""

MAX_BYTES = 256 * 1024 * 1024
"""The largest record that every store can keep and read again."""

_SHALLOW = 2 * MAX_DEPTH
"""A record of fewer bytes cannot be nested too deep."""

ENDINGS: dict[type[ev.Event], Status] = {
    ev.RunCompleted: "completed",
    ev.RunFailed: "failed",
    ev.RunCancelled: "cancelled",
}

NEWS = frozenset(
    kind
    for kind in ev.EVENT_TYPES.values()
    if kind in ENDINGS or issubclass(kind, (ev.SessionEvent, ev.ApprovalEvent))
)
"""Events that can change a store's line of a session, a run or an approval, though the event before had the same ids
and provider.
"""

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


def status_after(event: ev.Event) -> RunStatus:
    """The status of a run whose latest news is this event."""
    return ENDINGS.get(type(event), "running")


def run_after(status: RunStatus, provider: str, event: ev.Event) -> tuple[RunStatus, str] | None:
    """A run's status and provider after an event; None if they do not change, as after its end."""
    if status not in GOING_ON:
        return None
    after = status_after(event), provider or event.provider
    return None if after == (status, provider) else after


def session_after(provider: str, own_id: str | None, event: ev.Event) -> tuple[str, str | None] | None:
    """A session's provider, and the provider's own id of it, after an event; None if they do not change."""
    found = event.provider_session_id if isinstance(event, ev.SessionEvent) else None
    after = provider or event.provider, found or own_id
    return None if after == (provider, own_id) else after


def lines_of(events: Sequence[ev.Event]) -> Sequence[bytes | None]:
    """The lines that events are already encoded as, if known."""
    return events.lines if isinstance(events, ev.Encoded) else [None] * len(events)


def to_record(event: ev.Event, seq: int, line: bytes | None = None) -> tuple[ev.Event, bytes]:
    """Stamp an event with its seq, if it has another, and encode it; `line` is the given event, encoded.

    Raises StoreError if it could not be read back.
    """
    if not event.session_id:
        raise StoreError(f"`{event.type}` event has no session_id; give it one first", kind="bad_record")
    stamped = event if event.seq == seq else replace(event, seq=seq)
    try:
        data = line if line is not None and stamped is event else ev.encode_event(stamped)
        if type(event) is ev.Unrecognized:
            ev.decode_event(data)
    except RecursionError:
        raise _too_deep(event) from None
    except (TypeError, ValueError, OverflowError, EventError) as error:
        what = str(error)[:200]
        raise StoreError(f"`{event.type}` event cannot be stored as JSON: {what}", kind="bad_record") from None
    if len(data) > MAX_BYTES:
        raise StoreError(
            f"`{event.type}` event takes {len(data):,} bytes; at most {MAX_BYTES:,} can be stored", kind="bad_record"
        )
    if len(data) > _SHALLOW and _depth(data) > MAX_DEPTH:
        raise _too_deep(event)
    return stamped, data


def _too_deep(event: ev.Event) -> StoreError:
    message = f"`{event.type}` event is nested more than {MAX_DEPTH} levels deep; store a shortened one"
    return StoreError(message, kind="bad_record")


def from_record(data: bytes, *, session_id: str, seq: int) -> ev.Event:
    """Decode a stored event. Raises StoreError(kind="corrupt") naming the record that cannot be read."""
    try:
        return ev.decode_event(data)
    except EventError as error:
        raise StoreError(f"record {seq} of session `{session_id}` cannot be read: {error}", kind="corrupt") from error


def event_of(entry: LogEntry) -> ev.Event:
    """The event of an entry, decoded once. Raises as `from_record` does."""
    if entry.event is None:
        entry.event = from_record(entry.data, session_id=entry.session_id, seq=entry.seq)
    return entry.event


def _depth(data: bytes) -> int:
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return 0  # not deeper than that, and this is the cheap way to know
    depth = deepest = 0
    for token in _TOKENS.finditer(data):
        first = data[token.start()]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest


SIZE = 32
"""Bytes of a digest."""


def root(session_id: str) -> bytes:
    """The digest before a session's first record."""
    return sha256(b"proctor record\0" + session_id.encode("utf-8", "surrogatepass")).digest()


def head_below(event: ev.Event, before: bytes) -> bytes:
    """The digest before a record: `before`, or the one that a `record_pruned` names."""
    if isinstance(event, ev.RecordPruned) and event.seq > 1:
        with suppress(ValueError):
            return bytes.fromhex(event.head) or before
    return before


def link(before: bytes, record: bytes) -> bytes:
    """The digest of a record, over the whole session up to it."""
    return sha256(before + record).digest()


def links(before: bytes, records: Iterable[bytes]) -> list[bytes]:
    """The digests of consecutive records."""
    made: list[bytes] = []
    for record in records:
        before = sha256(before + record).digest()
        made.append(before)
    return made


COUNTERS: Final[Mapping[type[ev.Event], str]] = {ev.ToolCallStarted: "calls", ev.PolicyViolated: "violations"}
"""The events whose number is in a run's row, each with its column and field."""
COUNTED = frozenset((*COUNTERS, ev.RunStarted, ev.TokenUsageUpdated, ev.RunCompleted, ev.RunFailed, ev.RunCancelled))
"""The events that change a run's row."""


class RunDelta:
    """How consecutive events of one run change its row.

    A total x becomes `settled`, if the run's end states it, else max(x + added, floor): an increment adds to both, a
    cumulative figure raises the floor. Figures after the end change nothing. `in_flight` are the calls in flight, if
    they have changed.
    """

    __slots__ = ("added", "counts", "ended", "floor", "in_flight", "settled", "started")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTERS.values(), 0)
        self.started: ev.RunStarted | None = None
        self.ended: ev.Event | None = None
        self.in_flight: str | None = None
        self.added: list[float] = [0] * len(FIGURES)
        self.floor: list[float] = [0] * len(FIGURES)
        self.settled: list[float | None] = [None] * len(FIGURES)

    def count(self, event: ev.Event) -> None:
        """Count one event of `COUNTED`, as it is stored."""
        counter = COUNTERS.get(type(event))
        if counter is not None:
            self.counts[counter] += 1
        elif isinstance(event, ev.RunStarted):
            self.started = self.started or event
        elif self.ended is not None:
            return
        elif isinstance(event, ev.TokenUsageUpdated):
            self._use(event)
        elif isinstance(event, ev.TERMINAL):
            self.ended = event
            self.settled = [_amount(event.usage.get(name)) for name in FIGURES]

    def then(self, later: RunDelta) -> RunDelta:
        """The changes of these events followed by the later ones."""
        both = RunDelta()
        both.counts = {name: n + later.counts[name] for name, n in self.counts.items()}
        both.started, both.ended = self.started or later.started, self.ended or later.ended
        both.in_flight = self.in_flight if later.in_flight is None else later.in_flight
        both.added, both.floor, both.settled = self.added, self.floor, self.settled
        if self.ended is None:
            both.added = [a + b for a, b in zip(self.added, later.added, strict=True)]
            raised = (a + b for a, b in zip(self.floor, later.added, strict=True))
            both.floor = [max(a, b) for a, b in zip(raised, later.floor, strict=True)]
            both.settled = later.settled
        return both

    def applied(self, run: RunInfo) -> RunInfo:
        """The run's row after these events."""
        changes: dict[str, Any] = {name: getattr(run, name) + n for name, n in self.counts.items()}
        if self.started is not None and not run.started_seq:
            tenant, labels = owners(self.started.metadata)
            changes |= {"started_seq": self.started.seq, "started_at": moment(ms_of(self.started))}
            changes |= {"tenant": tenant if run.tenant is None else run.tenant, "labels": run.labels or labels}
        if not run.ended_seq and (self.ended is not None or any(self.floor)):
            usage = Usage(**{name: self._total(n, getattr(run.usage, name)) for n, name in enumerate(FIGURES)})
            if usage != run.usage:
                changes["usage"] = usage
            if self.ended is not None:
                changes |= {"ended_seq": self.ended.seq, "ended_at": moment(ms_of(self.ended))}
        return replace(run, **changes)

    def _use(self, event: ev.TokenUsageUpdated) -> None:
        for n, name in enumerate(FIGURES):
            amount = _amount(getattr(event, name))
            if not amount:
                continue
            if event.scope == "cumulative":
                self.floor[n] = max(self.floor[n], amount)
            else:
                self.added[n] += amount
                self.floor[n] += amount

    def _total(self, n: int, before: float) -> Any:
        settled = self.settled[n]
        return settled if settled is not None else max(before + self.added[n], self.floor[n])


def owners(spec: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The tenant and the labels in the stored context of a run or its start."""
    context = spec.get("context")
    given = context if isinstance(context, dict) else {}
    tenant, labels = given.get("tenant"), given.get("labels")
    return tenant if isinstance(tenant, str) else None, labels if isinstance(labels, dict) else {}


def ms_of(event: ev.Event) -> int | None:
    """An event's time in milliseconds since the epoch, or None."""
    return ev.at_ms(event.at) if event.at is not None else None


def moment(ms: int | None) -> datetime | None:
    """A stored time."""
    return datetime.fromtimestamp(ms / 1000, UTC) if ms is not None else None


def _amount(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18 else None


AFTER_THE_END = frozenset((ev.ToolApprovalGranted, ev.ToolApprovalDenied, ev.ToolApprovalExpired))
"""Answers to a request for approval can come after its run has ended."""
CALLS = frozenset((ev.ToolCallStarted, ev.ToolCallCompleted, ev.ToolCallFailed, ev.ToolCallDenied))
"""The events that start a call, and those that end it."""
_HALF = 16
_MOST_IN_FLIGHT = 1000
_encode = msgspec.json.Encoder(order="deterministic").encode


class CallsInFlight:
    """The calls of one run that are not over, each with a digest of what it does; `text` is an earlier `text`."""

    # Most calls end in the append that they start in, and are never digested.
    __slots__ = ("_earlier", "_fresh")

    def __init__(self, text: str = "") -> None:
        whole = 2 * _HALF
        self._earlier = {text[n : n + _HALF]: text[n + _HALF : n + whole] for n in range(0, len(text), whole)}
        self._fresh: dict[str, ev.ToolCallStarted] = {}

    @property
    def text(self) -> str:
        """These calls as one text, for the run's row."""
        fresh = ((_digest(call_id), _does(started)) for call_id, started in self._fresh.items())
        return "".join(map("".join, (*self._earlier.items(), *fresh)))

    def observe(self, event: ev.Event) -> None:
        """Apply one of `CALLS`. Raises StoreError for the start of a call in flight; a start with another input
        replaces the call's input.
        """
        call_id: str = event.tool_call_id  # type: ignore[attr-defined]  # every event of `CALLS` has one
        earlier = _digest(call_id) if self._earlier else ""
        if not isinstance(event, ev.ToolCallStarted):
            self._fresh.pop(call_id, None)
            self._earlier.pop(earlier, None)
            return
        before = self._fresh.get(call_id)
        does = self._earlier.get(earlier) if before is None else _does(before)
        if does is not None and does == _does(event):
            raise StoreError(
                f"call `{event.tool_call_id}` of run `{event.run_id}` was started and is not over: it starts once",
                kind="call_started",
            )
        if earlier in self._earlier:
            self._earlier[earlier] = _does(event)
        else:
            self._fresh[call_id] = event
        if len(self._earlier) + len(self._fresh) > _MOST_IN_FLIGHT:  # of an agent that never says how its calls went
            oldest: dict[str, Any] = self._earlier or self._fresh
            del oldest[next(iter(oldest))]


def _does(started: ev.ToolCallStarted) -> str:
    return _digest(_encode((started.tool_name, started.tool_input)))


class UnitPart:
    """Consecutive `events` of one run, and the `records` of them. `news` are the first and those that can change the
    rows of its session, run or approvals; `delta` is how they change its row. `calls` start or end a call, `answers`:
    all may come after the run's end, and `behind` is an end that precedes them in the same append.
    """

    __slots__ = ("answers", "behind", "calls", "delta", "events", "news", "records", "run_id", "seq", "session_id")

    def __init__(self, first: ev.Event, seq: int) -> None:
        self.session_id = first.session_id
        self.run_id = first.run_id
        self.seq = seq
        self.events: list[ev.Event] = []
        self.records: list[bytes] = []
        self.news: list[ev.Event] = []
        self.delta: RunDelta | None = None
        self.calls: list[ev.Event] = []
        self.answers = True
        self.behind: ev.Event | None = None

    def ensure_delta(self) -> RunDelta:
        """Its delta, created if missing."""
        self.delta = self.delta or RunDelta()
        return self.delta


class Unit:
    """One append: `events` with their seqs (`next_seq` of their session first, by default that of its first event),
    and the parts they make. Raises StoreError for an event that cannot be stored.
    """

    __slots__ = ("_ended", "events", "first_seq", "parts")

    def __init__(self, events: Sequence[ev.Event], next_seq: Mapping[str, int] | None = None) -> None:
        self.events: list[ev.Event] = []
        self.parts: list[UnitPart] = []
        self.first_seq: dict[str, int] = {}
        self._ended: dict[str, ev.Event] = {}
        seqs = dict(next_seq or ())
        lines = lines_of(events)
        start = 0
        while start < len(events):
            first = events[start]
            seq = seqs.get(first.session_id) or first.seq or 1
            self.first_seq.setdefault(first.session_id, seq)
            part = self._add_part(events, lines, start, seq)
            start += len(part.events)
            seqs[first.session_id] = seq + len(part.events)

    def _add_part(self, events: Sequence[ev.Event], lines: Sequence[bytes | None], start: int, seq: int) -> UnitPart:
        """Add a part of the events from `start` on."""
        first = events[start]
        session_id, run_id, provider = first.session_id, first.run_id, first.provider
        part = UnitPart(first, seq)
        for n in range(start, len(events)):
            event = events[n]
            if event.run_id is not run_id or event.session_id is not session_id or event.provider is not provider:
                break
            stamped, data = to_record(event, seq, lines[n])
            seq += 1
            kind = type(event)
            if kind not in AFTER_THE_END:
                part.answers = False
                part.behind = part.behind or self._ended.get(run_id)
            if kind in CALLS:
                part.calls.append(stamped)
            elif kind in ENDINGS and run_id:
                self._ended[run_id] = event
            if kind in NEWS or not part.events:
                part.news.append(stamped)
            if kind in COUNTED:
                part.ensure_delta().count(stamped)
            part.events.append(stamped)
            part.records.append(data)
        self.events += part.events
        self.parts.append(part)
        return part


def admit(unit: Unit, run_of: Callable[[str], tuple[RunStatus, str] | None]) -> None:
    """Complete a unit with each run's calls in flight. Raises StoreError for an event after a run's end, and for a
    second start of a call. `run_of` gives the status of a stored run, and its calls in flight.
    """
    calls: dict[str, CallsInFlight] = {}
    for part in unit.parts:
        status, in_flight = (part.run_id and run_of(part.run_id)) or ("created", "")
        if status not in GOING_ON and not part.answers:
            raise run_over(part.run_id, status)
        if part.behind is not None:
            raise run_over(part.run_id, status_after(part.behind))
        if part.calls and part.run_id:
            of_run = calls.setdefault(part.run_id, CallsInFlight(in_flight))
            for event in part.calls:
                of_run.observe(event)
            part.ensure_delta().in_flight = of_run.text


def run_over(run_id: str, status: str) -> StoreError:
    return StoreError(f"run `{run_id}` is over: it is {status}", kind="run_over")


def unit_start(events: Sequence[ev.Event]) -> int:
    """The seq at which a unit of events of one run was first appended; 0 for events that are no unit."""
    first = events[0]
    of_one = all(event.run_id == first.run_id and event.session_id == first.session_id for event in events)
    return first.seq if first.run_id and of_one else 0


def _stored_before(events: Sequence[ev.Event], stored: Iterable[ev.Event], *, epoch: int) -> list[ev.Event | None]:
    """For each event of a unit its record among those stored of the run from the unit's first seq on, or None: an
    unanswered append that is repeated is stored once. An event with an `event_id` is left out, as that identifies it.
    Raises StoreError if the owner has stored something else there.
    """
    left = [event for event in stored if not event.event_id]
    found: list[ev.Event | None] = []
    for event in events:
        again = None
        if left and not event.event_id:
            again = left.pop(0) if same_but_seq(left[0], event) else None
            if again is None and epoch:
                raise _other(event)
            left = left if again is not None else []
        found.append(again)
    return found


def append_rest(
    events: Sequence[ev.Event],
    stored: Iterable[ev.Event],
    append: Callable[[Sequence[ev.Event]], list[ev.Event]],
    *,
    epoch: int,
) -> list[ev.Event]:
    """Append the events of a unit that are not `stored` yet; returns all as stored."""
    again = _stored_before(events, stored, epoch=epoch)
    fresh = [event for event, one in zip(events, again, strict=True) if one is None]
    new = iter(append(fresh) if fresh else ())
    return [one or next(new) for one in again]


def append_new(
    events: Sequence[ev.Event],
    stored: Callable[[ev.Event], ev.Event | None],
    append: Callable[[Sequence[ev.Event]], list[ev.Event]],
) -> list[ev.Event]:
    """Append the events that are not `stored` yet, each id once; returns all as stored, as `append` does for the new
    ones.
    """
    if not any(event.event_id for event in events):
        return append(events)
    found: dict[tuple[str, str], ev.Event] = {}
    fresh: list[ev.Event] = []
    place: list[int | ev.Event] = []
    numbers: dict[tuple[str, str], int] = {}
    for event in events:
        id = (event.session_id, event.event_id)
        if event.event_id and id not in numbers and id not in found and (again := stored(event)):
            found[id] = again
        if id in found or id in numbers:
            place.append(found[id] if id in found else numbers[id])
            continue
        if event.event_id:
            numbers[id] = len(fresh)
        place.append(len(fresh))
        fresh.append(event)
    new = append(fresh if len(fresh) < len(events) else events)  # those may be encoded already
    return [new[item] if isinstance(item, int) else item for item in place]


def same_but_seq(stored: ev.Event, event: ev.Event) -> bool:
    """Whether two events are read the same, except for their `seq`: 1 in a field of fractions is read as 1.0."""
    if type(stored) is not type(event):
        return False
    return _as_read(replace(stored, seq=event.seq)) == _as_read(event)


def _as_read(event: ev.Event) -> bytes:
    return ev.encode_event(ev.decode_event(ev.encode_event(event)))


def _other(event: ev.Event) -> StoreError:
    return StoreError(
        f"run `{event.run_id}` has another record at {event.seq} of session `{event.session_id}` than its owner"
        " appends there: nothing of it is stored",
        kind="conflict",
    )


def _digest(value: str | bytes) -> str:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return sha256(data).hexdigest()[:_HALF]
