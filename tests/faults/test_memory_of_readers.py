"""Reading an event log needs the same memory for three times as many events."""

import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import anyio
import pytest
from stored_rows import in_store

from proctor.adapters.cli import main
from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import MessageReceived, RunCompleted, RunStarted, SessionCreated
from proctor.supervisor import RunInfo, Store, Supervisor, export_lines, prune, run_once
from proctor.supervisor.testing import FakeAdapter

POLICIES = parse_policies("{name: open, limits: {max_tool_calls: 9}}")
FEW, MANY = 4_000, 12_000
"""Events of about a KiB each: 4 and 12 MiB."""
CAPACITY = 5 * 512 * 1024
"""Bytes by which a peak may differ: a page of events, not a third of the log."""
BATCH = 500
Reader = Callable[[Store], Awaitable[object]]


async def filled(path: Path, count: int) -> None:
    """A store with one session of one ended run."""
    ids: dict[str, Any] = {"run_id": "r", "session_id": "s", "provider": "fake"}
    async with SQLiteStore(path) as store:
        await store.create_run(RunInfo(run_id="r", session_id="s", provider="fake", spec={"prompt": "go"}))
        await store.append([SessionCreated(**ids), RunStarted(**ids)])
        for first in range(0, count, BATCH):
            await store.append([MessageReceived(content=f"{n} " * 250, **ids) for n in range(first, first + BATCH)])
        await store.append([RunCompleted(output="done", **ids)])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One store with few events, one with many."""
    folder = tmp_path_factory.mktemp("stores")
    few, many = folder / "few.db", folder / "many.db"
    anyio.run(filled, few, FEW)
    anyio.run(filled, many, MANY)
    return few, many


def peak(read: Callable[[], object]) -> int:
    """The most bytes that Python used meanwhile."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def resumed(store: Store) -> None:
    await run_once(FakeAdapter(), "go on", policies=POLICIES, store=store, session_id="s", continuation="none")


async def followed(store: Store) -> None:
    async with Supervisor(store) as supervisor, supervisor.subscribe(run_id="r") as events:
        async for _ in events:
            pass


async def followed_all(store: Store) -> None:
    async with Supervisor(store) as supervisor, supervisor.subscribe(after="start") as events:
        async for event in events:
            if isinstance(event, RunCompleted):
                return


async def exported(store: Store) -> None:
    async for _ in export_lines(store):
        pass


async def pruned_as_dry_run(store: Store) -> None:
    from datetime import timedelta

    await prune(store, older_than=timedelta(0), dry_run=True)


READERS: list[Reader] = [followed, followed_all, exported, pruned_as_dry_run, resumed]


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_needs_no_more_memory_for_a_longer_log(reader: Reader, stores: tuple[Path, Path]) -> None:
    """It reads page by page, and keeps only totals."""
    in_store(stores[0], reader)  # imports and caches are not counted
    few, many = (peak(lambda path=path: in_store(path, reader)) for path in stores)  # type: ignore[misc]

    assert many - few < CAPACITY


@pytest.mark.parametrize("words", [("tail", "-n", "5"), ("show", "r", "--json"), ("runs",), ("audit", "verify")])
def test_a_command_needs_no_more_memory_for_a_longer_log(words: tuple[str, ...], stores: tuple[Path, Path]) -> None:
    """Except for its output."""

    class Nowhere(StringIO):
        def write(self, text: str) -> int:
            return len(text)

    def called(path: Path) -> None:
        with redirect_stdout(Nowhere()), pytest.raises(SystemExit) as raised:
            main([*words, "--store", str(path)])
        assert raised.value.code in (0, None)

    called(stores[0])
    few, many = (peak(lambda path=path: called(path)) for path in stores)  # type: ignore[misc]

    assert many - few < CAPACITY
