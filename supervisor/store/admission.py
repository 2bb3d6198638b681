"""The rules by which every store admits events to the record of a run: each unit once, one end and nothing behind it,
one start a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from proctor.policies.events import (
    Event,
    ToolApprovalDenied,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallStarted,
)
from proctor.policies.events.codec import encode_event

from ..errors import StoreError

AFTER_THE_END = frozenset((ToolApprovalGranted, ToolApprovalDenied, ToolApprovalExpired))
"""The answer to a request for approval after its run was ended."""
CALLS = frozenset((ToolCallStarted, ToolCallCompleted, ToolCallFailed, ToolCallDenied))
"""The events that start a call, and those that end it."""
_HALF = 16
_MOST_IN_FLIGHT = 1000
_encode = msgspec.json.Encoder(order="deterministic").encode


class CallsInFlight:
    """The calls of one run that were started and are not over, each with a digest of what it does.

    Args:
        text: what `text` gave before.
    """

    __slots__ = ("_calls",)

    def __init__(self, text: str = "") -> None:
        whole = 2 * _HALF
        self._calls = {text[n : n + _HALF]: text[n + _HALF : n + whole] for n in range(0, len(text), whole)}

    @property
    def text(self) -> str:
        """All of it as one text."""
        return "".join(map("".join, self._calls.items()))

    def observe(self, event: Event) -> None:
        """Let one of `CALLS` start or end its call. Raises StoreError for the start of one that is in flight; with
        another input it is the same call, judged again.
        """
        call_id = _digest(event.tool_call_id)  # type: ignore[attr-defined]  # every event of `CALLS` has one
        if not isinstance(event, ToolCallStarted):
            self._calls.pop(call_id, None)
            return
        does = _digest(_encode((event.tool_name, event.tool_input)))
        if self._calls.get(call_id) == does:
            raise StoreError(
                f"call `{event.tool_call_id}` of run `{event.run_id}` was started and is not over: it starts once",
                kind="call_started",
            )
        self._calls[call_id] = does
        if len(self._calls) > _MOST_IN_FLIGHT:  # of an agent that never says how its calls went
            del self._calls[next(iter(self._calls))]


def unit_start(events: Sequence[Event]) -> int:
    """The seq at which a unit of events of one run was to be stored first; 0 for what is no such unit."""
    first = events[0]
    of_one = all(event.run_id == first.run_id and event.session_id == first.session_id for event in events)
    return first.seq if first.run_id and of_one else 0


def stored_before(events: Sequence[Event], stored: Iterable[Event], *, epoch: int) -> list[Event | None]:
    """For each event of a unit the record that it has already, None where it has none: what an owner appends again
    because nobody answered is stored once.

    Args:
        events: the unit; an event with an id is left to its id.
        stored: what its run has from the unit's first seq on.
        epoch: of the owner.

    Raises:
        StoreError: the owner has stored something else there.
    """
    left = [event for event in stored if not event.event_id]
    found: list[Event | None] = []
    for event in events:
        again = None
        if left and not event.event_id:
            again = left.pop(0) if same_but_seq(left[0], event) else None
            if again is None and epoch:
                raise _other(event)
            left = left if again is not None else []
        found.append(again)
    return found


def same_but_seq(stored: Event, event: Event) -> bool:
    """Whether two events are one as they are recorded."""
    return type(stored) is type(event) and encode_event(replace(stored, seq=event.seq)) == encode_event(event)


def _other(event: Event) -> StoreError:
    return StoreError(
        f"run `{event.run_id}` has another record at {event.seq} of session `{event.session_id}` than its owner"
        " appends there: nothing of it is stored",
        kind="conflict",
    )


def _digest(value: str | bytes) -> str:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return sha256(data).hexdigest()[:_HALF]
