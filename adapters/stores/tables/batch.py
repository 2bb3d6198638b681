"""What one append stores: rows made in the event loop of whoever appends, before the thread that writes has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from proctor.policies.stream.events import EVENT_TYPES, TERMINAL, Event, at_ms
from proctor.supervisor.store.admission import AFTER_THE_END, CALLS, unit_start
from proctor.supervisor.store.codec import NEWS, lines_of, to_record
from proctor.supervisor.store.tally import COUNTED, RunTally

Columns: TypeAlias = tuple[str | None, str, int | None, int, int]
"""event_id, type and at of a row, then where its event begins among the bytes of its part, and its length."""

_TAGS = {kind: tag for tag, kind in EVENT_TYPES.items()}
_encode = msgspec.json.Encoder().encode


class Part:
    """Events of one run, one after another: `news` are those that can change what is known of it, the first
    among them; `tally` is what they change in its row. `calls` are those that start or end a call, `answers` says
    that all may come after the run's end, and `behind` is an end that they come after in one append.
    """

    __slots__ = (
        "answers",
        "behind",
        "calls",
        "columns",
        "encoded",
        "news",
        "records",
        "run_id",
        "seq",
        "session_id",
        "tally",
    )

    def __init__(self, first: Event, seq: int) -> None:
        self.session_id = first.session_id
        self.run_id = first.run_id
        self.seq = seq
        self.news: list[Event] = []
        self.columns: list[Columns] = []
        self.records: list[bytes] = []
        self.encoded = b""
        self.tally: RunTally | None = None
        self.calls: list[Event] = []
        self.answers = True
        self.behind: Event | None = None

    def count(self, event: Event) -> None:
        """Count an event of `COUNTED`."""
        self.tallied().take(event)

    def tallied(self) -> RunTally:
        """Its tally, made where there is none."""
        self.tally = self.tally or RunTally()
        return self.tally


class Batch:
    """What one append stores: `events` with their seqs, and the parts they make.

    Args:
        events: what is to be stored.
        next_seq: the seq of the next event of each session; of one that is not named, its first event's own.

    Raises:
        StoreError: one of the events cannot be stored.
    """

    __slots__ = ("_ended", "events", "first_seq", "parts", "unit_start")

    def __init__(self, events: Sequence[Event], next_seq: Mapping[str, int] | None = None) -> None:
        self.events: list[Event] = []
        self.parts: list[Part] = []
        self.first_seq: dict[str, int] = {}
        self.unit_start = unit_start(events) if events else 0
        self._ended: dict[str, Event] = {}
        seqs = dict(next_seq or ())
        lines = lines_of(events)
        start = 0
        while start < len(events):
            first = events[start]
            seq = seqs.get(first.session_id) or first.seq or 1
            self.first_seq.setdefault(first.session_id, seq)
            start = self._add_part(events, lines, start, seq)
            seqs[first.session_id] = seq + len(self.parts[-1].columns)

    def _add_part(self, events: Sequence[Event], lines: Sequence[bytes | None], start: int, seq: int) -> int:
        """Make a part of the events from `start` on; returns where the next one begins."""
        first = events[start]
        session_id, run_id, provider = first.session_id, first.run_id, first.provider
        part = Part(first, seq)
        records = part.records
        at = moment = None
        offset = 1
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
            elif kind in TERMINAL and run_id:
                self._ended[run_id] = event
            if kind in NEWS or not records:
                part.news.append(stamped)
            if kind in COUNTED:
                part.count(stamped)
            if event.at is not at:
                at = event.at
                moment = None if at is None else at_ms(at)
            length = len(data)
            part.columns.append((event.event_id or None, _TAGS.get(kind) or event.type, moment, offset, length))
            records.append(data)
            self.events.append(stamped)
            offset += length
        part.encoded = _encode(part.columns)
        self.parts.append(part)
        return start + len(records)


class Gathered:
    """What one transaction inserts: parts, each with the key of its session and the digests of its records, and what
    they change in the rows of runs.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[int, Part, list[bytes]]] = []
        self._tallies: dict[str, RunTally] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, key: int, part: Part, digests: list[bytes]) -> None:
        """Have the rows of a part inserted."""
        self._parts.append((key, part, digests))
        if part.tally is not None and part.run_id:
            before = self._tallies.get(part.run_id)
            self._tallies[part.run_id] = part.tally if before is None else before.then(part.tally)

    def of_run(self, run_id: str, start: int) -> list[tuple[int, bytes]]:
        """The seqs and records of a run that wait to be inserted, from a seq on."""
        parts = [part for _, part, _ in self._parts if part.run_id == run_id]
        rows = ((seq, data) for part in parts for seq, data in enumerate(part.records, part.seq))
        return [row for row in rows if row[0] >= start]

    def clear(self) -> None:
        """Forget them."""
        self._parts.clear()
        self._tallies.clear()
