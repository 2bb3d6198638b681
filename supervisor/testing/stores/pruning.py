"""How the record of a session is removed, and what stays in its place."""

from __future__ import annotations

from typing import Any

from proctor.policies.stream.events import (
    PolicyViolated,
    RecordPruned,
    RunCompleted,
    RunStarted,
    ToolApprovalRequested,
)
from proctor.supervisor.ports.adapters import Store
from proctor.supervisor.ports.facts import RunInfo

from .checks import StoreChecks, message, stored

_LEFT = RecordPruned(session_id="s", by="ana", reason="old")


async def _fill(store: Store) -> None:
    """A session of two runs that are over, and another one."""
    for run_id in ("r1", "r2"):
        ids: Any = {"run_id": run_id, "session_id": "s"}
        request = ToolApprovalRequested(approval_id=f"{run_id}.1", input_digest="d", tool_name="t", **ids)
        await store.append([RunStarted(**ids), request, PolicyViolated(**ids), RunCompleted(**ids)])
    await store.append([message("t", "other", run_id="r3")])


class PruningChecks(StoreChecks):
    """How the record of a session is removed, and what stays in its place."""

    async def test_one_event_stays_where_a_record_was(self) -> None:
        """It says what was removed; its events, runs and approvals are gone, those of others are not."""
        async with self.open_store() as store:
            await _fill(store)
            entries = [entry async for entry in store.log() if entry.session_id == "s"]
            left = await store.prune(_LEFT, up_to=8)

            assert left is not None
            assert (left.seq, left.first_seq, left.last_seq, left.events) == (9, 1, 8, 8)
            assert (left.runs, left.violations, left.by, left.reason) == (2, 2, "ana", "old")
            assert left.head == entries[-1].digest.hex()
            assert await stored(store, "s") == [left]
            assert [run.run_id for run in await store.runs()] == ["r3"]
            assert await store.run("r1") is None
            assert await store.approvals(waiting=False) == []
            assert [entry.session_id async for entry in store.log()] == ["t", "s"]

    async def test_numbers_go_on_after_a_record_was_removed(self) -> None:
        """No seq and no place is given twice, in this session or after all of them are gone."""
        async with self.open_store() as store:
            await _fill(store)
            before = await store.place()
            assert await store.prune(_LEFT, up_to=8) is not None
            [late] = await store.append([message("s", "late")])
            again = await store.prune(_LEFT, up_to=10)

            assert late.seq == 10
            assert again is not None
            assert (again.seq, again.first_seq, again.events, again.runs) == (11, 9, 2, 0)
            assert await store.last_seq("s") == 11
            assert (await store.place()).position > before.position
            assert [entry.seq async for entry in store.log(after=before.position)] == [11]
        if self.durable:
            async with self.open_store() as store:
                assert [event.seq for event in await store.append([message("s", "a"), message("u", "b")])] == [12, 1]

    async def test_a_record_that_goes_on_is_not_removed(self) -> None:
        """A run that was created or runs; events that came since; a session there is not."""
        async with self.open_store() as store:
            await _fill(store)
            assert await store.prune(_LEFT, up_to=7) is None
            await store.create_run(RunInfo(run_id="r4", session_id="s"))
            assert await store.prune(_LEFT, up_to=8) is None
            await store.append([RunStarted(run_id="r4", session_id="s")])
            assert await store.prune(_LEFT, up_to=9) is None
            assert await store.prune(RecordPruned(session_id="nobody"), up_to=0) is None

            assert await store.last_seq("s") == 9
            assert len(await store.runs()) == 4

    async def test_what_is_left_of_a_record_is_brought_to_another_store_under_its_number(self) -> None:
        """And tied to what was removed: it has the digest that it had."""
        async with self.open_store() as store:
            left = RecordPruned(session_id="s", seq=9, first_seq=1, last_seq=8, events=8, head="ab" * 32)
            assert await store.append([left, message("s", "after")]) == [left, *await stored(store, "s", after=9)]
            [first, second] = [entry async for entry in store.log()]

            assert (first.seq, second.seq) == (9, 10)
            assert await stored(store, "s", after=8) == await stored(store, "s")
            assert await store.last_seq("s") == 10
            assert first.digest == _digest(bytes.fromhex(left.head), first.data)
            assert second.digest == _digest(first.digest, second.data)

    async def test_what_is_stored_can_be_measured(self) -> None:
        """Sessions, runs by status, events."""
        async with self.open_store() as store:
            await _fill(store)
            size = await store.size()
            await store.prune(_LEFT, up_to=8)
            await store.compact()
            after = await store.size()

            assert (size.sessions, size.runs, size.events) == (2, {"completed": 2, "running": 1}, 9)
            assert (after.sessions, after.runs, after.events) == (2, {"running": 1}, 2)
            assert size.bytes > 0


def _digest(before: bytes, data: bytes) -> bytes:
    from proctor.supervisor.store.chain import link

    return link(before, data)
