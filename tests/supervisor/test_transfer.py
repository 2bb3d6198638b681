"""An import beside what is there already: runs of the same name, and records compared with few readers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from proctor.policies.events import Event
from proctor.supervisor import MemoryStore, RunInfo, StoreError, export_lines, import_lines
from proctor.supervisor.testing.store_fixture import message

pytestmark = pytest.mark.anyio


async def lines_of(store: MemoryStore) -> list[bytes]:
    """What an export gives."""
    return [line async for line in export_lines(store)]


async def with_run(session_id: str) -> MemoryStore:
    """A store with one run of four events."""
    store = MemoryStore()
    await store.create_run(RunInfo(run_id="r", session_id=session_id))
    await store.append([message(session_id, str(n), run_id="r") for n in range(4)])
    return store


async def test_a_run_that_is_there_in_the_same_session_is_left_as_it_is() -> None:
    """The import goes on; in another session it is another run, and nothing of it is stored."""
    lines = await lines_of(await with_run("s"))
    same = await import_lines(await with_run("s"), lines)
    with pytest.raises(StoreError) as raised:
        await import_lines(await with_run("t"), lines)

    assert (same.runs, same.events, same.already_there) == (0, 0, 4)
    assert raised.value.kind == "run_exists"


async def test_a_run_that_is_taken_and_cannot_be_found_is_refused() -> None:
    """It went away meanwhile: nobody knows whose it was."""

    class Forgets(MemoryStore):
        async def run(self, run_id: str) -> RunInfo | None:
            return None

    store = Forgets()
    await store.create_run(RunInfo(run_id="r", session_id="s"))
    with pytest.raises(StoreError, match="exists"):
        await import_lines(store, await lines_of(await with_run("s")))


async def test_what_a_line_says_of_a_runs_state_is_not_taken() -> None:
    """A run is created as one is that was never started."""
    [head, run, *_] = await lines_of(await with_run("s"))
    store = MemoryStore()
    await import_lines(store, [head, run.replace(b'"run_id"', b'"status":"completed","calls":7,"run_id"', 1)])
    stored = await store.run("r")

    assert stored is not None
    assert (stored.status, stored.calls) == ("created", 0)


async def test_records_are_compared_by_one_reader_a_session_at_a_time() -> None:
    """Where a line is left out it is opened anew, and the one before is closed first; all are at the end."""

    class Counted(MemoryStore):
        open = most = opened = 0

        async def read(self, session_id: str, **how: Any) -> AsyncGenerator[Event]:
            self.open, self.opened = self.open + 1, self.opened + 1
            self.most = max(self.most, self.open)
            try:
                read: Any = super().read(session_id, **how)
                async with aclosing(read) as events:
                    async for event in events:
                        yield event
            finally:
                self.open -= 1

    store = Counted()
    await store.append([message("s", str(n)) for n in range(9)])
    lines = await lines_of(store)
    store.most = store.opened = 0
    await import_lines(store, [lines[0], *lines[1::2]])

    assert (store.opened, store.most, store.open) == (5, 1, 0)
