"""What a record takes on disk: a store's file, and its export as lines of JSON."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from proctor.adapters.stores import SQLiteStore
from proctor.policies import encode_event
from proctor.policies.events import Event, RunCompleted
from proctor.supervisor import Launch, Supervisor

from .agents import Agent
from .rows import Row, Size
from .workload import events_of, ordinary, steps

MILLION = 1_000_000


def run(size: Size) -> list[Row]:
    """MiB of a million events, short calls with short results; what yours say is added to that."""
    calls = size.of(10_000, 20)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        lines = anyio.run(_record, path, calls)
        events, stored = len(lines), path.stat().st_size
    text = b"\n".join(lines)
    return [
        _row("SQLite file", stored, events),
        _row("the same events as lines of JSON", len(text), events),
    ]


def _row(work: str, found: int, events: int) -> Row:
    return Row(f"{work}, a million events", found / events * MILLION / 1024 / 1024, "MiB")


async def _record(path: Path, calls: int) -> list[bytes]:
    """Supervise a session into a file; returns its events as they are exported."""
    session = events_of(steps(0, calls))

    async def play(launch: Launch) -> AsyncIterator[Event]:
        for event in session:
            yield event
        yield RunCompleted(output="done")

    async with SQLiteStore(path) as store:
        async with Supervisor(store) as supervisor:
            handle = await supervisor.start(Agent(play), "go", policies=[ordinary(10).policy])
            await handle.wait()
        return [encode_event(event) async for event in store.read(handle.session_id)]
