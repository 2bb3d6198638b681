"""Answers that must not seem to count: racing answers, and answers that nobody would read."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from answering import answered_by_a_process, kind, until_held

from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.supervisor import Cancel, MemoryStore, RunInfo, Supervisor, create_run, execute_run, run_once
from proctor.supervisor.testing import Ask, FakeAdapter
from proctor.supervisor.testing.store_approvals import requested

pytestmark = pytest.mark.anyio
ASKING = parse_policies("{name: p, rules: [{type: blocklist, tools: [bash], action: request_approval}]}")


async def test_of_answers_from_several_processes_one_counts(tmp_path: Path) -> None:
    """An approval and a denial race. The event log has the one whose author was told that it counts."""
    path = tmp_path / "record.db"
    adapter = FakeAdapter([Ask(id="c1", name="bash")])
    async with SQLiteStore(path) as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=ASKING)
        request = await until_held(supervisor)
        came: dict[str, str] = {}

        async def answered(by: str) -> None:
            came[by] = await answered_by_a_process(path, request.approval_id, by, granted=by != "eve")

        async with anyio.create_task_group() as tasks:
            for by in ("ana", "eve", "bob"):
                tasks.start_soon(answered, by)
        await handle.wait()
        approval = await store.approval(request.approval_id)
    (winner,) = [by for by, kind in came.items() if kind == "counts"]

    assert sorted(came.values()) == ["answered", "answered", "counts"]
    assert approval is not None
    assert approval.answer is not None
    assert (approval.answer.by, approval.recorded) == (winner, True)
    assert [call.id for call in adapter.ran] == ([] if winner == "eve" else ["c1"])


@pytest.mark.parametrize(("asks", "refused"), [("claude", "asks_itself"), ("", "owner_gone")])
async def test_an_answer_that_nobody_would_read_is_rejected(asks: str, refused: str) -> None:
    """The client asks its own user, or the run has no owner."""
    store = MemoryStore()
    await store.create_run(RunInfo(run_id="r", session_id="s", spec={"asks": asks}))
    await store.append([requested("r.1")])

    assert await kind(store, "r.1") == refused
    assert [approval.state for approval in await store.approvals()] == ["requested"]


async def test_a_clock_set_back_does_not_change_the_reach_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command to a session applies to the run that was active, and to no later one."""
    store = MemoryStore()
    policies = parse_policies("{name: open}")
    run_id = await create_run(store, "go", session_id="s")
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.0)
    await store.send_command(Cancel(scope="session", value="s", reason="enough"))
    first = await execute_run(store, FakeAdapter(), run_id, policies=policies)
    monkeypatch.setattr("time.time", lambda: 500_000_000.0)
    second = await run_once(FakeAdapter(), "go", policies=policies, store=store, session_id="s")

    assert (first.status, first.reason) == ("cancelled", "enough")
    assert second.status == "completed"
