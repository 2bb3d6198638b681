"""Ways to an answer that nobody gave: twice, late, for another input, by somebody else, or to nobody."""

import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from answering import kind, until_held

from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.supervisor import Cancel, MemoryStore, RunInfo, Supervisor, create_run, execute_run, run_once
from proctor.supervisor.testing import Ask, FakeAdapter
from proctor.supervisor.testing.store_approvals import requested

pytestmark = pytest.mark.anyio
ASKING = parse_policies("{name: p, rules: [{type: blocklist, tools: [bash], action: request_approval}]}")
ANSWERS = """
import sys, anyio
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import ApprovalAnswer, ApprovalError, answer

async def main(path, approval_id, by):
    async with SQLiteStore(path) as store:
        try:
            await answer(store, approval_id, ApprovalAnswer(granted=by != "eve", by=by))
            print("counts", by)
        except ApprovalError as error:
            print(error.kind, by)

anyio.run(main, *sys.argv[1:])
"""


async def test_of_answers_from_several_processes_one_counts(tmp_path: Path) -> None:
    """A yes and a no race; what the record says is what the one who was first was told."""
    path = tmp_path / "record.db"
    adapter = FakeAdapter([Ask(id="c1", name="bash")])
    async with SQLiteStore(path) as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=ASKING)
        request = await until_held(supervisor)
        lines: list[str] = []

        async def answered(by: str) -> None:
            command = [sys.executable, "-c", ANSWERS, str(path), request.approval_id, by]
            lines.append((await anyio.run_process(command, stderr=subprocess.STDOUT)).stdout.decode().strip())

        async with anyio.create_task_group() as tasks:
            for by in ("ana", "eve", "bob"):
                tasks.start_soon(answered, by)
        await handle.wait()
        approval = await store.approval(request.approval_id)
    (winner,) = [line.split()[1] for line in lines if line.startswith("counts")]

    assert sorted(line.split()[0] for line in lines) == ["answered", "answered", "counts"]
    assert approval is not None
    assert approval.answer is not None
    assert (approval.answer.by, approval.recorded) == (winner, True)
    assert [call.id for call in adapter.ran] == ([] if winner == "eve" else ["c1"])


async def test_an_answer_to_another_input_a_late_one_and_one_to_nothing_do_not_count() -> None:
    """Each gets its own error, and none of them makes the call run."""
    store = MemoryStore()
    adapter = FakeAdapter([Ask(id="c1", name="bash", input={"command": "ls"})])
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=ASKING)
        request = await until_held(supervisor)
        early = [
            await kind(store, request.approval_id, input_digest="0" * 64),
            await kind(store, f"{request.run_id}.2"),
            await kind(store, "nothing.1"),
        ]
        await handle.cancel()
        await handle.wait()
        late = await kind(store, request.approval_id)

    assert early == ["other_input", "unknown", "unknown"]
    assert late == "withdrawn"
    assert adapter.ran == []


async def test_an_answer_to_a_client_that_asks_its_person_itself_is_refused() -> None:
    """Nobody would read it: it must not look as if it counted."""
    store = MemoryStore()
    await store.create_run(RunInfo(run_id="r", session_id="s", spec={"asks": "claude"}))
    await store.append([requested("r.1")])

    assert await kind(store, "r.1") == "asks_itself"
    assert [approval.state for approval in await store.approvals()] == ["requested"]


async def test_an_answer_to_a_run_that_nobody_owns_is_refused() -> None:
    """It stays unanswered, and is not taken for answered later."""
    store = MemoryStore()
    await store.append([requested("r.1")])

    assert await kind(store, "r.1") == "owner_gone"
    assert [approval.state for approval in await store.approvals()] == ["requested"]


async def test_a_clock_that_is_set_back_changes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order to the session concerns the run that was there, and none that comes after it, by no clock."""
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
