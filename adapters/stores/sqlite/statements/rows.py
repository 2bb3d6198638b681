"""Event rows, made where they are appended, inserted by one statement in the writer's thread.

With a busy event loop a thread that wants the interpreter lock back can wait 5 ms for it, and sqlite3 gives it
up once a statement. So the writer's thread gets rows that are ready, and hands over those of many appends as
three values: where each part begins, the columns as JSON, and the bytes of the events one after another.
"""

from __future__ import annotations

import sqlite3

import msgspec

from proctor.supervisor.store.chain import SIZE

from ...tables.batch import Gathered
from .run_lines import COLUMNS, UPDATES, apply_each, changes

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
_encode = msgspec.json.Encoder().encode


class Rows(Gathered):
    """The rows of one transaction, through a view of the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        connection.execute(_VIEW)
        connection.execute(_TRIGGER)

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
