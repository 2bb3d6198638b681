"""What a transaction knows of sessions and runs, and how events change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from proctor.policies.stream.events import Event, RecordPruned, SessionEvent, at_ms
from proctor.supervisor.ports.facts import GOING_ON, RunInfo
from proctor.supervisor.store import chain
from proctor.supervisor.store.codec import status_after

RUN_COLUMNS: Final = "run_id, provider, status, created_at, created_ms, spec"
"""What a row of a run has of it in every database, see `run_columns`."""
KnownRun: TypeAlias = tuple[str, str, int, str]
"""Of a run: its status, its provider, the epoch of the owner that has claimed it, and its calls in flight."""
_encode = msgspec.json.Encoder().encode


class KnownSession:
    """What a transaction knows of a session: `head` is the digest of its latest record, `key` is 0 until stored."""

    __slots__ = ("head", "key", "last_seq", "provider", "provider_session_id")

    def __init__(
        self, key: int, last_seq: int | None, head: bytes, provider: str = "", provider_session_id: str | None = None
    ) -> None:
        self.key = key
        self.last_seq = last_seq or 0
        self.head = head
        self.provider = provider
        self.provider_session_id = provider_session_id

    def next_seq(self, session_id: str, events: Sequence[Event]) -> int:
        """The seq of the first of these events that is the session's."""
        if not self.last_seq:
            first = next(event for event in events if event.session_id == session_id)
            if isinstance(first, RecordPruned) and first.seq > 0:  # what is pruned elsewhere
                self.head = chain.head_below(first, self.head)
                return first.seq
        return self.last_seq + 1

    def link(self, seq: int, records: Sequence[bytes]) -> list[bytes]:
        """Go on to records, the first of this seq; returns their digests."""
        digests = chain.links(self.head, records)
        self.last_seq, self.head = seq + len(digests) - 1, digests[-1]
        return digests

    def learn(self, event: Event) -> bool:
        """Whether the session's provider, or its id of the session, is another after the event."""
        found = event.provider_session_id if isinstance(event, SessionEvent) else None
        if not ((event.provider and not self.provider) or (found and found != self.provider_session_id)):
            return False
        self.provider = self.provider or event.provider
        self.provider_session_id = found or self.provider_session_id
        return True


def run_after(run: KnownRun, event: Event) -> KnownRun | None:
    """What an event makes of a run; None where it changes nothing, as of a run that is over."""
    status, provider, epoch, in_flight = run
    if status not in GOING_ON:
        return None
    status_now = status_after(event)
    if status_now == status and (provider or not event.provider):
        return None
    return status_now, provider or event.provider, epoch, in_flight


def run_columns(run: RunInfo) -> tuple[Any, ...]:
    """The values of `RUN_COLUMNS`. Raises what the encoder does where the spec is not JSON."""
    at = run.created_at
    return run.run_id, run.provider, run.status, at and at.isoformat(), at and at_ms(at), _encode(run.spec)


def append_new(
    events: Sequence[Event], stored: Callable[[Event], Event | None], append: Callable[[list[Event]], list[Event]]
) -> list[Event]:
    """Append the events that are not stored yet, each id once; returns all as they are stored.

    Args:
        events: what is to be stored.
        stored: an event's record, by its session and id.
        append: appends those that are new, and returns them as they will be stored.
    """
    found: dict[tuple[str, str], Event] = {}
    fresh: list[Event] = []
    place: list[int | Event] = []
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
    new = append(fresh)
    return [new[item] if isinstance(item, int) else item for item in place]
