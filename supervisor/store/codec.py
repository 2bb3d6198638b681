"""An event as every store keeps it: one line of JSON that is known to be readable again."""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from proctor.policies.errors import EventError
from proctor.policies.events import (
    EVENT_TYPES,
    ApprovalEvent,
    RecordPruned,
    RunCancelled,
    RunCompleted,
    RunFailed,
    SessionEvent,
    Unrecognized,
)
from proctor.policies.events.codec import Encoded, decode_event, encode_event

from ..errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from proctor.policies.events import Event

    from ..ports.stored_types import LogEntry, RunStatus


Status: TypeAlias = Literal["completed", "failed", "cancelled"]


MAX_DEPTH = 300
"""Deepest nesting of a stored event; what is deeper could not be read back in a deep call stack."""


MAX_BYTES = 256 * 1024 * 1024
"""The largest record: every store can keep it, and read it again."""


_SHALLOW = 2 * MAX_DEPTH
"""A size in bytes below which nothing can be nested deeper."""


ENDINGS: dict[type[Event], Status] = {
    RunCompleted: "completed",
    RunFailed: "failed",
    RunCancelled: "cancelled",
}


NEWS = frozenset(
    kind for kind in EVENT_TYPES.values() if kind in ENDINGS or issubclass(kind, (SessionEvent, ApprovalEvent))
)
"""Events that can change a store's line of a session, a run or an approval, though the event before had the same ids
and provider.
"""


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


def status_after(event: Event) -> RunStatus:
    """The status of a run whose latest news is this event."""
    return ENDINGS.get(type(event), "running")


def lines_of(events: Sequence[Event]) -> Sequence[bytes | None]:
    """The lines that events are known to be encoded as."""
    return events.lines if isinstance(events, Encoded) else [None] * len(events)


def to_record(event: Event, seq: int, line: bytes | None = None) -> tuple[Event, bytes]:
    """Stamp an event with its seq, unless it has it already, and encode it; `line` is the event as it is, encoded.

    Raises StoreError when it could not be read back.
    """
    if not event.session_id:
        raise StoreError(f"`{event.type}` event has no session_id; give it one first", kind="bad_record")
    stamped = event if event.seq == seq else replace(event, seq=seq)
    try:
        data = line if line is not None and stamped is event else encode_event(stamped)
        if type(event) is Unrecognized:
            decode_event(data)
    except (TypeError, ValueError, OverflowError, RecursionError, EventError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise StoreError(f"`{event.type}` event cannot be stored as JSON: {what}", kind="bad_record") from None
    if len(data) > MAX_BYTES:
        raise StoreError(
            f"`{event.type}` event takes {len(data):,} bytes; at most {MAX_BYTES:,} can be stored", kind="bad_record"
        )
    if len(data) > _SHALLOW and _depth(data) > MAX_DEPTH:
        raise StoreError(
            f"`{event.type}` event is nested more than {MAX_DEPTH} levels deep; store a shortened one",
            kind="bad_record",
        )
    return stamped, data


def from_record(data: bytes, *, session_id: str, seq: int) -> Event:
    """Decode a stored event. Raises StoreError(kind="corrupt") naming the record that cannot be read."""
    try:
        return decode_event(data)
    except EventError as error:
        raise StoreError(f"record {seq} of session `{session_id}` cannot be read: {error}", kind="corrupt") from error


def event_of(entry: LogEntry) -> Event:
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


def head_below(event: Event, before: bytes) -> bytes:
    """The digest before a session's first record, `before`, unless the record of pruning tells it."""
    if isinstance(event, RecordPruned) and event.seq > 1:
        with suppress(ValueError):
            return bytes.fromhex(event.head) or before
    return before


def link(before: bytes, record: bytes) -> bytes:
    """The digest of a record: it stands for the session up to there, byte for byte."""
    return sha256(before + record).digest()


def links(before: bytes, records: Iterable[bytes]) -> list[bytes]:
    """The digests of records that follow one another."""
    made: list[bytes] = []
    for record in records:
        before = sha256(before + record).digest()
        made.append(before)
    return made
