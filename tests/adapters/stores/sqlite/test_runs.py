"""Runs recorded in a file that fills up, is locked, is shared, or whose process is killed; and the cost of
operations.
"""

import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_processes import spec
from owning_processes import process
from stored_rows import stored_events, stored_rows

from proctor.adapters.fleet.queue import enqueue, waiting
from proctor.adapters.operations.service import OperatorService
from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite.file import connect
from proctor.adapters.stores.tables.budgets import listed
from proctor.adapters.stores.tables.queries import newest_runs
from proctor.policies import events as ev
from proctor.policies.limits import BudgetAccount
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, StoreError, Supervisor, answer, run_once, withdraw_created
from proctor.supervisor.ports.budget_ledger import Reservation
from proctor.supervisor.ports.processes import machine
from proctor.supervisor.ports.stored_types import ApprovalAnswer, Owner, RunFilter, RunInfo
from proctor.supervisor.testing.fakes import Ask, FakeAdapter, Pause, Step
from proctor.supervisor.testing.store_fixture import kind_of_refusal
from tests.whole_records import place_of

pytestmark = pytest.mark.anyio
OPEN = Policy(name="open")


async def run(store: SQLiteStore, steps: Sequence[Step]) -> Any:
    return await run_once(FakeAdapter(steps), "go", policies=[OPEN], store=store, session_id="s")


def check_gapless(events: Sequence[ev.Event]) -> None:
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_whose_process_was_killed_is_continued(tmp_path: Path, backend: str) -> None:
    """Every event that observers got is stored, in order, and the session's next run follows it."""
    path = str(tmp_path / "record.db")
    with process(path, "hold", "600") as owner:
        owner.until("ran held c0")
        owner.process.kill()
        confirmed = [line.split(" ", 1)[1] for line in owner.rest() if line.startswith("ack ")]

    async def go_on() -> None:
        async with SQLiteStore(path) as store:
            before = await stored_events(store)
            result = await run(store, [ev.MessageReceived(content="hello again")])
            events = await stored_events(store)
            runs = await store.runs()

        check_gapless(events)
        assert confirmed == [place_of(event) for event in before[: len(confirmed)]]
        assert len(confirmed) > 3
        end = events[len(before)]
        assert isinstance(end, ev.RunFailed)
        assert end.error["code"] == "owner_lost"
        assert list(result.events) == events[len(before) + 1 :]
        assert [run.status for run in runs] == ["completed", "failed"]

    anyio.run(go_on, backend=backend)


async def test_a_full_disk_ends_the_run_and_keeps_its_earlier_events(tmp_path: Path) -> None:
    """No unrecorded call runs, and the caller gets the reason."""
    steps: list[Step] = [
        step for n in range(40) for step in (ev.MessageReceived(content="x" * 20_000), Ask(id=f"c{n}", name="read"))
    ]
    async with SQLiteStore(tmp_path / "record.db", max_bytes=400_000) as store:
        with pytest.raises(StoreError, match="is full") as raised:
            await run(store, steps)
        events = await stored_events(store)

    check_gapless(events)
    assert list(raised.value.partial.events) == events
    assert sum(isinstance(event, ev.TERMINAL) for event in events) <= 1


async def test_a_file_locked_during_a_run_denies_the_call_and_ends_the_run(tmp_path: Path) -> None:
    """Once it is unlocked, the log gets its end."""
    path = tmp_path / "record.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    async def lock() -> None:
        other.execute("BEGIN IMMEDIATE")

    async with SQLiteStore(path, busy_timeout_s=0.05) as store:
        adapter = FakeAdapter([Ask(id="c1", name="read", first=lock), Ask(id="c2", name="read")])
        with pytest.raises(StoreError, match="is locked by another process"):
            await run_once(adapter, "go", policies=[OPEN], store=store, session_id="s")
        other.execute("ROLLBACK")
        other.close()
        result = await run(store, [])
        events = await stored_events(store)
        runs = await store.runs()

    assert adapter.ran == []
    check_gapless(events)
    assert result.status == "completed"
    assert [run.status for run in runs] == ["completed", "failed"]
    assert list(result.events) == events[-len(result.events) :]


async def test_a_session_with_two_writers_is_recorded_without_gap_and_published_as_stored(tmp_path: Path) -> None:
    """Another writer sometimes takes the seq that a run expects."""
    path = tmp_path / "record.db"
    async with SQLiteStore(path) as store, SQLiteStore(path) as other:

        async def meddle() -> None:
            await other.append([ev.MessageReceived(session_id="s", content="theirs")])

        result = await run(store, [Ask(id=f"c{n}", name="read", first=meddle, meanwhile=meddle) for n in range(20)])
        events = await stored_events(store)

    check_gapless(events)
    assert list(result.events) == [event for event in events if event.run_id == result.run_id]
    assert len(events) == len(result.events) + 40


async def test_a_lease_of_an_earlier_boot_has_expired(tmp_path: Path) -> None:
    """The clock restarted. A lease of an owner in another container is still valid."""
    boot, _, namespaces = machine().partition("/")
    async with SQLiteStore(tmp_path / "record.db") as store:
        owners = [
            await store.register(Owner(owner_id="o", machine=where), lease_s=3600)
            for where in (f"another/{namespaces}", f"{boot}/1/1")
        ]
        refusals = [
            await kind_of_refusal(store.create_run(RunInfo(run_id=f"r{n}", session_id=f"s{n}"), epoch=owner.epoch))
            for n, owner in enumerate(owners)
        ]

    assert refusals == ["fenced", None]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_file_stores_everything_that_a_memory_store_does(tmp_path: Path) -> None:
    """Text with NUL, and an event of many megabytes among small ones, in one write."""
    large = "y" * (65 * 1024 * 1024)
    batch = [
        ev.MessageReceived(session_id="s", content=text, event_id=text[:9])
        for text in ("a\x00b", "\x00", large, "é\u2028")
    ]
    async with SQLiteStore(tmp_path / "record.db") as store:
        appended = await store.append(batch)
        again = await store.append([batch[2], batch[0]])
        events = await stored_events(store)

    assert events == appended == await MemoryStore().append(batch)
    assert again == [events[2], events[0]]


async def test_an_unreadable_run_is_listed_and_blocks_no_other(tmp_path: Path) -> None:
    """The list marks it. It can neither start nor end."""
    async with SQLiteStore(tmp_path / "runs.db") as store, Supervisor(store) as supervisor:
        await enqueue(store, spec(), run_id="bad")
        stored_rows(store.path, "UPDATE runs SET spec = x'00' WHERE run_id = 'bad'")
        queued = await enqueue(store, spec())
        assert [each.run_id for each in await waiting(store, most=9)] == [queued.run_id]

        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[OPEN])
        outcomes = await supervisor.switch.kill(by="ana", everything=True, wait_s=0.5)
        await store.create_run(RunInfo(run_id="old", session_id="old", created_at=datetime.now(UTC)))
        shown = {run.run_id: run.prompt for run in (await OperatorService(store).runs()).runs}
        withdrawn = await withdraw_created(store, older_than=timedelta(0))

    assert [run.run_id for run in withdrawn] == ["old"]
    assert [(one.run_id, one.status, one.ended) for one in outcomes] == [
        ("bad", "created", False),
        (queued.run_id, "cancelled", True),
        (handle.run_id, "cancelled", True),
    ]
    assert shown["bad"].startswith("run `bad` in the list was changed, or is of another version: ")


UNREADABLE = r"approval \d+, of session `s`, was changed, or is of another"


@pytest.mark.parametrize("change", ["answer = x'00'", "answered_at = 'x'", "seq = 1"])
async def test_an_approval_that_cannot_be_read_is_listed_with_the_others_and_not_answered(
    change: str, tmp_path: Path
) -> None:
    asks: dict[str, Any] = {
        "run_id": "r",
        "session_id": "s",
        "tool_call_id": "c",
        "tool_name": "bash",
        "input_digest": "d",
    }
    async with SQLiteStore(tmp_path / "runs.db") as store:
        requested = [ev.ToolApprovalRequested(**asks, approval_id=id) for id in ("a", "b")]
        await store.append([ev.RunStarted(run_id="r", session_id="s"), *requested])
        stored_rows(store.path, f"UPDATE approvals SET {change} WHERE approval_id = 'a'")
        stored_rows(store.path, "UPDATE runs SET spec = x'00'")
        with pytest.raises(StoreError, match=UNREADABLE):
            await answer(store, "a", ApprovalAnswer(granted=True, by="ana"))
        shown = (await OperatorService(store).approvals()).approvals

    assert [(one.approval_id, one.call.name) for one in shown] == [("a", "unreadable"), ("b", "bash")]
    assert re.match(UNREADABLE, shown[0].reason or "")


async def test_an_unreadable_command_does_not_hide_later_ones(tmp_path: Path) -> None:
    """It has another version, or was changed. An unreadable freeze blocks each start until all are lifted."""
    policies = [OPEN]
    async with SQLiteStore(tmp_path / "runs.db") as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=policies)
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.executemany("INSERT INTO instructions (data) VALUES (?)", [(b"\0",), (b'{"type":"new"}',)])
        await supervisor.switch.kill(by="ana", run_id=handle.run_id)
        assert (await handle.wait()).status == "cancelled"

        await supervisor.switch.block_starts(by="ana", reason="incident", tenant="acme")
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute("UPDATE instructions SET data = x'00' WHERE number = (SELECT number FROM blocks)")
        with pytest.raises(StoreError, match=r"command 4 was changed, or is of another version: "):
            await supervisor.start(FakeAdapter(), "go", policies=policies)
        with pytest.raises(StoreError, match="command 4 was changed"):
            await supervisor.switch.lift(by="ana", tenant="acme")
        await supervisor.switch.lift(by="ana", everything=True)
        handle = await supervisor.start(FakeAdapter(), "go", policies=policies)
        assert (await handle.wait()).status == "completed"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("status", [("created",), ("created", "running", "lost"), ("completed", "failed")])
async def test_the_cost_of_listing_runs_does_not_grow_with_the_ended_ones(
    status: tuple[Any, ...], tmp_path: Path
) -> None:
    """Each worker of a fleet lists the queued ones whenever an event is stored."""
    async with SQLiteStore(tmp_path / "runs.db", synchronous="OFF") as store:
        await store.create_run(RunInfo(run_id="first", session_id="s"))
        for n in range(400):
            await store.create_run(RunInfo(run_id=f"r{n}", session_id="s"))
    with closing(connect(tmp_path / "runs.db", "rw", busy_timeout_s=1.0)) as connection:
        connection.execute("UPDATE runs SET status = 'completed' WHERE run_id != 'first'")
        steps: list[None] = []
        connection.set_progress_handler(lambda: steps.append(None), 1)
        found = newest_runs(connection, limit=1, where=RunFilter(status=frozenset(status)))

    assert [run.run_id for run in found] == ["r399" if "completed" in status else "first"]
    assert len(steps) < 400


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_budgets_are_listed_in_three_queries_however_many_there_are(tmp_path: Path) -> None:
    """A remote database takes time for each, and the dashboard lists them whenever an event is stored."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        epoch = (await store.register(Owner(owner_id="o"), lease_s=3600)).epoch
        await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=epoch)
        keys = [BudgetAccount(budget="b", key=f"{n}", counts="cost_usd", window="day", max=9.0) for n in range(20)]
        await store.reserve("r", [Reservation(claim=key, used=2.0, want=1.0) for key in keys], epoch=epoch)
    queries: list[str] = []
    with closing(connect(tmp_path / "runs.db", "ro", busy_timeout_s=1.0)) as connection:
        connection.set_trace_callback(queries.append)
        found = listed(connection, lambda _: round(time.time() * 1000))

    assert [(one.used, one.reserved, one.runs) for one in found] == [(2.0, 1.0, 1)] * 20
    assert len(queries) == 3


def test_a_run_on_one_machine_without_budgets_costs_nothing_for_fleets_and_budgets(tmp_path: Path) -> None:
    """It imports none of their modules, makes no such queries, and leaves no such rows."""
    code = """
import sys
from collections import Counter
import anyio
from proctor.adapters import ScriptedAdapter
from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite.file import connect
from proctor.adapters.stores.tables.queries import newest_runs
from proctor.policies import parse_policies
from proctor.supervisor import run_once

COUNTS = Counter()


class Counted(SQLiteStore):
    def __getattribute__(self, name):
        if not name.startswith("_"):
            COUNTS[name] += 1
        return super().__getattribute__(name)


async def main():
    script = {"steps": [{"usage": {"cost_usd": 0.1}}, {"call": "bash", "input": {"command": "true"}}]}
    async with Counted(sys.argv[1]) as store:
        await run_once(ScriptedAdapter(script), "go", policies=parse_policies("name: p"), store=store)


anyio.run(main)
parts = ("psycopg", "asyncpg", "ray", "proctor.adapters.fleet", "proctor.adapters.stores.postgres")
print([name for name in sys.modules if name.split(".")[0] in parts or name.startswith(parts[3:])])
print([name for name in ("reserve", "settle", "budgets", "claim_run") if COUNTS[name]])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "runs.db")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n[]\n"
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        tables = ("budgets", "budget_parts", "budget_shares")
        assert [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables] == [(0,)] * 3
        assert connection.execute("SELECT run_id IS NOT NULL, attempts FROM runs").fetchall() == [(1, 0)]
