"""What lists show of a run, in its row: how events change it, as statements for one run and for many at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proctor.supervisor.store.tally import FIGURES, RunTally, ms_of, owners

from ...tables.run_changes import FIGURED, IN_FLIGHT, Change

_encode = msgspec.json.Encoder().encode
_N = len(FIGURES)


def _start(tally: RunTally) -> tuple[Any, ...] | None:
    event = tally.started
    return None if event is None else (event.seq, ms_of(event), *owner_columns(event.metadata))


STARTED = Change(
    "started_seq = {1}, started_ms = {2}, tenant = coalesce(tenant, {3}), labels = coalesce(labels, {4})",
    "started_seq IS NULL",
    _start,
)
CHANGES = (STARTED, *FIGURED, IN_FLIGHT)
COLUMNS = tuple(f"change_{n}" for n in range(len(CHANGES)))
"""Of the view that takes a batch: each holds rows of one kind of change, as JSON."""


def _of_many(change: Change, column: str) -> str:
    places = [f"json_extract(line.value, '$[{n}]')" for n in range(1 + 2 * _N)]
    sets = change.sets.format(*places, greater="max")
    return (
        f"UPDATE runs SET {sets} FROM json_each(new.{column}) AS line WHERE run_id = {places[0]} AND {change.where}"
    )


def _of_one(change: Change) -> str:
    places = [f"?{n + 1}" for n in range(1 + 2 * _N)]
    sets = change.sets.format(*places, greater="max")
    return f"UPDATE runs SET {sets} WHERE run_id = ?1 AND {change.where}"


UPDATES = ";\n".join(_of_many(change, column) for change, column in zip(CHANGES, COLUMNS, strict=True))
"""What a trigger on that view does."""


def changes(tallies: Mapping[str, RunTally]) -> list[bytes]:
    """A value for each of `COLUMNS`."""
    return [_encode(_rows(change, tallies)) for change in CHANGES]


def apply_each(connection: sqlite3.Connection, tallies: Mapping[str, RunTally]) -> None:
    """Make the same changes by statements of their own."""
    for change in CHANGES:
        connection.executemany(_of_one(change), _rows(change, tallies))


def _rows(change: Change, tallies: Mapping[str, RunTally]) -> list[tuple[Any, ...]]:
    rows: Iterable[tuple[str, tuple[Any, ...] | None]] = ((run_id, change.row(t)) for run_id, t in tallies.items())
    return [(run_id, *row) for run_id, row in rows if row is not None]


def owner_columns(spec: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The tenant, and the labels as JSON."""
    tenant, labels = owners(spec)
    return tenant, _encode(labels).decode() if labels else None
