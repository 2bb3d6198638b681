"""Each row has the digest of the record before it and its own bytes, whoever wrote it and by which way."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite.schema import MIGRATIONS
from proctor.policies.events import Event, MessageReceived

pytestmark = pytest.mark.anyio
CHAINED = next(n for n, (name, _) in enumerate(MIGRATIONS, 1) if name.startswith("records tied"))


def message(session_id: str, text: str, **more: Any) -> Event:
    return MessageReceived(session_id=session_id, content=text, **more)


def digests(path: Path) -> dict[tuple[str, int], bytes]:
    """Of every row, by session and seq; each is checked against the one before."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT session_id, seq, data, digest FROM events JOIN sessions ON key = session_key ORDER BY key, seq"
        ).fetchall()
    found: dict[tuple[str, int], bytes] = {}
    for session_id, seq, data, digest in rows:
        before = found.get((session_id, seq - 1)) or sha256(b"proctor record\0" + session_id.encode()).digest()
        assert digest == sha256(before + data).digest()
        found[session_id, seq] = digest
    return found


async def test_every_way_of_writing_ties_records_together(tmp_path: Path) -> None:
    """One statement for many sessions, what does not fit one, repeated events, another process in between."""
    path = tmp_path / "s.db"
    async with SQLiteStore(path) as one, SQLiteStore(path) as other:
        await one.append([message("s", "a"), message("t", "b"), message("s", "c", event_id="e")])
        await other.append([message("s", "d"), message("u", "nul \0 in an id", event_id="x\0y")])
        await one.append([message("s", "again", event_id="e"), message("s", "f")])
        await other.append([message("s", "g"), message("t", "h")])

    assert len(digests(path)) == 8


async def test_an_older_store_gets_its_digests_when_it_is_opened(tmp_path: Path) -> None:
    """They are those it would have had, so that what is written next follows."""
    path = tmp_path / "s.db"
    async with SQLiteStore(path) as store:
        await store.append([message(session_id, str(n)) for session_id in "st" for n in range(1500)])
    before = digests(path)
    with closing(sqlite3.connect(path)) as connection:
        for table in ("blocks", "budget_parts", "budget_shares", "budgets", "seals"):  # of later steps
            connection.execute(f"DROP TABLE {table}")
        connection.execute("CREATE TABLE notes (name TEXT)")  # until a later step
        for column in ("attempts", "calls_in_flight", "seal"):
            connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        connection.execute("ALTER TABLE owners DROP COLUMN seal")
        connection.execute("ALTER TABLE events DROP COLUMN digest")
        connection.execute(f"PRAGMA user_version = {CHAINED - 1}")
        connection.commit()
    async with SQLiteStore(path) as store:
        await store.append([message("s", "next")])

    after = digests(path)
    assert {place: after[place] for place in before} == before
    assert len(after) == len(before) + 1
