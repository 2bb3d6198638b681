"""Each row has the digest of the record before it and its own bytes, whoever wrote it and by which way."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, MessageReceived

pytestmark = pytest.mark.anyio


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
