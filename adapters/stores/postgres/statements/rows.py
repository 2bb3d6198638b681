"""Event rows, and what they change in the rows of runs: many of each are one statement."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec
from psycopg.types.json import Jsonb

from proctor.supervisor.store.chain import SIZE
from proctor.supervisor.store.tally import FIGURES, ms_of, owners

from ...tables.batch import Gathered, Part
from ...tables.run_changes import FIGURED, IN_FLIGHT
from ..connection.connecting import Connection
from ..connection.dialect import one_label
from ..connection.texts import kept

_MOST_BYTES = 64 * 1024 * 1024
"""Of the events in one statement, unless a single part has more."""
_MOST_ID_BYTES = 500
_encode = msgspec.json.Encoder().encode

# The SELECT of the highest position is right as whoever inserts has the order of the store to itself.
_INSERT = f"""INSERT INTO events (position, session_key, seq, run_id, event_id, type, at, data, digest)
    SELECT (SELECT coalesce(max(position), 0) FROM events) + (part.value->>5)::bigint + row.n,
        (part.value->>0)::bigint, (part.value->>1)::bigint + row.n - 1, part.value->>2,
        row.value->>0, row.value->>1, (row.value->>2)::bigint,
        substr(%s::bytea, (part.value->>3)::int + (row.value->>3)::int, (row.value->>4)::int),
        substr(%s::bytea, ((part.value->>5)::int + row.n::int - 1) * {SIZE} + 1, {SIZE})
    FROM jsonb_array_elements(%s) AS part, jsonb_array_elements(part.value->4) WITH ORDINALITY AS row (value, n)"""

_START = """UPDATE runs SET started_seq = %s, started_ms = %s, tenant = coalesce(tenant, %s),
    labels = coalesce(labels, %s), label_texts = CASE WHEN labels IS NULL THEN %s::text[] ELSE label_texts END
    WHERE run_id = %s AND started_seq IS NULL"""
_PLACES = ("line->>0", *(f"(line->>{n})::float8" for n in range(1, 3 + 2 * len(FIGURES))))
_TEXTS = tuple(f"line->>{n}" for n in range(2))
_FIGURES = tuple(
    (
        change,
        f"UPDATE runs SET {change.sets.format(*places, greater='greatest')}"
        f" FROM jsonb_array_elements(%s) AS line WHERE run_id = line->>0 AND {change.where}",
    )
    for change, places in (*((change, _PLACES) for change in FIGURED), (IN_FLIGHT, _TEXTS))
)

_Part: TypeAlias = tuple[int, Part, list[bytes]]


class Rows(Gathered):
    """The rows of one transaction."""

    def insert(self, connection: Connection) -> None:
        """Insert all; to be done within a transaction that has the order of the store to itself."""
        several: list[_Part] = []
        size = 0
        for part in self._parts:
            weight = sum(map(len, part[1].records))
            if several and size + weight > _MOST_BYTES:
                connection.execute(_INSERT, _values(several))
                several, size = [], 0
            several.append(part)
            size += weight
        if several:
            connection.execute(_INSERT, _values(several))
        self._change_runs(connection)

    def _change_runs(self, connection: Connection) -> None:
        for run_id, tally in self._tallies.items():
            if tally.started is not None:
                start = (tally.started.seq, ms_of(tally.started), *owner_columns(tally.started.metadata), run_id)
                connection.execute(_START, start)
        for change, sql in _FIGURES:
            rows = [(kept(run_id), *row) for run_id, tally in self._tallies.items() if (row := change.row(tally))]
            if rows:
                connection.execute(sql, (Jsonb(rows, _encode),))


def _values(parts: list[_Part]) -> tuple[Any, ...]:
    """The bytes of all records, those of their digests, and where each part begins among them, with its columns."""
    heads: list[tuple[Any, ...]] = []
    data = count = 0
    for key, part, _ in parts:
        heads.append((key, part.seq, kept(part.run_id), data, _columns(part), count))
        *_, offset, length = part.columns[-1]
        data += offset - 1 + length
        count += len(part.columns)
    records = b"".join([record for _, part, _ in parts for record in part.records])
    digests = b"".join([digest for _, _, made in parts for digest in made])
    return records, digests, Jsonb(heads, _encode)


def _columns(part: Part) -> msgspec.Raw:
    if b"\\" not in part.encoded and not any(columns[0] for columns in part.columns):
        return msgspec.Raw(part.encoded)
    rows = [(id and kept(short_id(id)), kept(type), *more) for id, type, *more in part.columns]
    return msgspec.Raw(_encode(rows))


def short_id(event_id: str) -> str:
    """An event's id as an index holds it, however long it is."""
    data = event_id.encode("utf-8", "surrogatepass")
    return event_id if len(data) <= _MOST_ID_BYTES else f"sha256:{sha256(data).hexdigest()}"


def owner_columns(spec: Mapping[str, Any]) -> tuple[str | None, bytes | None, list[str]]:
    """The tenant, the labels as JSON, and each label as one text that is looked for."""
    tenant, labels = owners(spec)
    return tenant, _encode(labels) if labels else None, [one_label(*label) for label in labels.items()]
