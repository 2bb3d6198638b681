"""Event rows: made in the event loop of whoever appends, inserted by one statement in the writer's thread.

With a busy event loop a thread that wants the interpreter lock back can wait 5 ms for it, and sqlite3 gives it
up once a statement. So the writer's thread gets rows that are ready, and hands over those of many appends as
three values: where each part begins, the columns as JSON, and the bytes of the events one after another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from proctor.policies.stream.events import EVENT_TYPES, Event, at_ms
from proctor.supervisor.store.chain import SIZE
from proctor.supervisor.store.codec import NEWS, lines_of, to_record
from proctor.supervisor.store.tally import COUNTED, Tally

from .run_lines import COLUMNS, UPDATES, apply_each, changes

Columns: TypeAlias = tuple[str | None, str, int | None, int, int]
"""event_id, type and at of a row, then where its event begins among the bytes of its part, and its length."""

_EVENT_COLUMNS = "events (session_key, seq, run_id, event_id, type, at, data, digest)"
# A view takes a whole batch, so that its events and what they change in the rows of runs are one statement.
_TAKES = ("parts", "rows", "data", "digests", *COLUMNS)
_VIEW = f"CREATE TEMP VIEW batch AS SELECT {', '.join(f'NULL AS {name}' for name in _TAKES)}"
# LIMIT: what it limits is computed once a part.
_TRIGGER = f"""CREATE TEMP TRIGGER batch_is_stored INSTEAD OF INSERT ON batch BEGIN
    INSERT INTO {_EVENT_COLUMNS}
    SELECT part.key, part.seq + row.key, part.run_id, json_extract(row.value, '$[0]'),
        json_extract(row.value, '$[1]'), json_extract(row.value, '$[2]'),
        substr(new.data, part.data + json_extract(row.value, '$[3]'), json_extract(row.value, '$[4]')),
        substr(new.digests, part.digests + row.key * {SIZE}, {SIZE})
    FROM (SELECT json_extract(value, '$[0]') AS key, json_extract(value, '$[1]') AS seq,
        json_extract(value, '$[2]') AS run_id, json_extract(value, '$[3]') AS data,
        json_extract(value, '$[6]') AS digests,
        CAST(substr(new.rows, json_extract(value, '$[4]'), json_extract(value, '$[5]')) AS TEXT) AS columns
        FROM json_each(new.parts) LIMIT -1) AS part, json_each(part.columns) AS row;
    {UPDATES}; END"""
# OR ROLLBACK: without it the statement keeps an undo log.
_LINES = ", ".join(f"?{n}" for n in range(6, 6 + len(COLUMNS)))
_INSERT = f"""INSERT OR ROLLBACK INTO batch SELECT ?1, ?2, ?3, ?4, {_LINES}
    WHERE (SELECT data_version FROM pragma_data_version) = ?5"""
_INSERT_ONE = f"INSERT OR ROLLBACK INTO {_EVENT_COLUMNS} VALUES (?,?,?,?,?,?,?,?)"
_MOST_BYTES = 64 * 1024 * 1024
_NUL = b"\\u0000"
"""SQLite's JSON functions cut text off at this character."""
_TAGS = {kind: tag for tag, kind in EVENT_TYPES.items()}
_encode = msgspec.json.Encoder().encode


class Part:
    """Events of one run, one after another: `news` are those that can change what is known of it, the first
    among them; `tally` is what they change in its row.
    """

    __slots__ = ("columns", "encoded", "news", "records", "run_id", "seq", "session_id", "tally")

    def __init__(self, first: Event, seq: int) -> None:
        self.session_id = first.session_id
        self.run_id = first.run_id
        self.seq = seq
        self.news: list[Event] = []
        self.columns: list[Columns] = []
        self.records: list[bytes] = []
        self.encoded = b""
        self.tally: Tally | None = None

    def count(self, event: Event) -> None:
        """Count an event of `COUNTED`."""
        if self.tally is None:
            self.tally = Tally()
        self.tally.take(event)


class Batch:
    """What one append stores: `events` with their seqs, and the parts they make.

    Args:
        events: what is to be stored.
        next_seq: the seq of the next event of each session; of one that is not named, its first event's own.

    Raises:
        StoreError: one of the events cannot be stored.
    """

    __slots__ = ("events", "first_seq", "parts")

    def __init__(self, events: Sequence[Event], next_seq: Mapping[str, int] | None = None) -> None:
        self.events: list[Event] = []
        self.parts: list[Part] = []
        self.first_seq: dict[str, int] = {}
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


class Rows:
    """The rows of one transaction: parts, each with the key of its session and the digests of its records, and what
    they change in those of runs.
    """

    __slots__ = ("_parts", "_tallies")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._parts: list[tuple[int, Part, list[bytes]]] = []
        self._tallies: dict[str, Tally] = {}
        connection.execute(_VIEW)
        connection.execute(_TRIGGER)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, key: int, part: Part, digests: list[bytes]) -> None:
        """Have the rows of a part inserted."""
        self._parts.append((key, part, digests))
        if part.tally is not None and part.run_id:
            before = self._tallies.get(part.run_id)
            self._tallies[part.run_id] = part.tally if before is None else before.then(part.tally)

    def clear(self) -> None:
        """Forget them."""
        self._parts.clear()
        self._tallies.clear()

    def insert(self, connection: sqlite3.Connection, data_version: int) -> bool:
        """Insert all, if no other connection has written since that version; False when none was inserted.

        Rows that do not fit one statement are not inserted either: see `insert_each`.
        """
        heads: list[tuple[int, int, str, int, int, int, int]] = []
        data = columns = count = 0
        for key, part, _ in self._parts:
            heads.append((key, part.seq, part.run_id, data, columns + 1, len(part.encoded), count * SIZE + 1))
            _, _, _, offset, length = part.columns[-1]
            data += offset - 1 + length
            columns += len(part.encoded)
            count += len(part.columns)
        encoded = b"".join([part.encoded for _, part, _ in self._parts])
        parts = _encode(heads)
        lines = changes(self._tallies)
        if data > _MOST_BYTES or any(_NUL in json for json in (encoded, parts, *lines)):
            return False
        bytes = b"".join([record for _, part, _ in self._parts for record in part.records])
        digests = b"".join([digest for _, _, made in self._parts for digest in made])
        before = connection.total_changes
        connection.execute(
            _INSERT, (parts.decode(), encoded, bytes, digests, data_version, *(line.decode() for line in lines))
        )
        return connection.total_changes >= before + count

    def insert_each(self, connection: sqlite3.Connection) -> None:
        """Insert them one by one; to be done within a transaction."""
        for key, part, digests in self._parts:
            each = zip(part.columns, part.records, digests, strict=True)
            rows = [
                (key, seq, part.run_id, event_id, type, at, record, digest)
                for seq, ((event_id, type, at, _, _), record, digest) in enumerate(each, part.seq)
            ]
            connection.executemany(_INSERT_ONE, rows)
        apply_each(connection, self._tallies)
