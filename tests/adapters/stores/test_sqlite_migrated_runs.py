"""An older store, brought up to date, lists its runs as a new one does."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import msgspec

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, take_step
from proctor.policies.events import (
    Event,
    MessageReceived,
    PolicyViolated,
    RunFailed,
    RunStarted,
    TokenUsageUpdated,
    ToolCallStarted,
    at_ms,
)
from proctor.policies.events.codec import encode_event
from proctor.supervisor.ports.stored_types import RunInfo

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def test_an_older_stores_runs_are_listed_as_if_they_were_new(tmp_path: Path) -> None:
    """Its events are counted on the way: the lines are those of a store that counted them one by one."""
    ids: Any = {"run_id": "r", "session_id": "s", "provider": "p"}
    context = {"tenant": "acme", "labels": {"env": "prod", "n": 1}}
    events: list[Event] = [
        RunStarted(at=AT, metadata={"context": context}, **ids),
        ToolCallStarted(tool_call_id="c", tool_name="t", **ids),
        PolicyViolated(**ids),
        TokenUsageUpdated(input_tokens=5, cost_usd=0.25, **ids),
        TokenUsageUpdated(scope="cumulative", input_tokens=3, output_tokens=9, **ids),
        TokenUsageUpdated(output_tokens=1, **ids),
        RunFailed(at=AT, usage={"input_tokens": 7, "cache_read_tokens": None}, **ids),
        TokenUsageUpdated(output_tokens=1000, **ids),
        MessageReceived(session_id="s", run_id="other", content="x"),
    ]
    created = RunInfo(run_id="c", session_id="s", created_at=AT, spec={"context": context})
    old = _of_version(tmp_path / "old.db", 3)
    old.execute("INSERT INTO sessions (session_id, provider) VALUES ('s', 'p')")
    for run_id, status in (("c", "created"), ("r", "failed"), ("other", "running")):
        spec = msgspec.json.encode(created.spec) if run_id == "c" else b"{}"
        provider = "p" if run_id == "r" else ""
        row = (run_id, provider, status, None if run_id == "other" else AT.isoformat(), spec)
        old.execute(
            "INSERT INTO runs (run_id, session_key, provider, status, created_at, spec) VALUES (?, 1, ?, ?, ?, ?)",
            row,
        )
    for seq, event in enumerate(events, 1):
        data = encode_event(msgspec.structs.replace(event, seq=seq))
        at = None if event.at is None else at_ms(event.at)
        old.execute("INSERT INTO events VALUES (1, ?, ?, NULL, ?, ?, ?)", (seq, event.run_id, event.type, at, data))
    old.close()

    async def lists() -> None:
        async with SQLiteStore(tmp_path / "old.db") as migrated, SQLiteStore(tmp_path / "new.db") as new:
            await new.create_run(created)
            await new.append([*events[:7], events[8]])  # a store of today refuses what comes after an end
            found = await migrated.runs()
            lost = [run.run_id for run in found if run.status == "lost"]
            unowned = [
                msgspec.structs.replace(run, owner=None, status="running") if run.run_id in lost else run
                for run in found
            ]
            assert unowned == await new.runs()
            assert lost == ["other"]
            assert [event.seq async for event in migrated.read("s")] == list(range(1, len(events) + 1))

    anyio.run(lists)


def _of_version(path: Path, version: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for _name, statements in MIGRATIONS[:version]:
        take_step(connection, statements)
    connection.execute(f"PRAGMA user_version = {version}")
    return connection
