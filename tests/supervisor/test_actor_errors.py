"""An error of ours, or of the program's own log, leaves no agent and no caller behind."""

from __future__ import annotations

from typing import Any, NoReturn

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from proctor.policies.events import MessageReceived
from proctor.policies.events.calls import ToolCall
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Supervisor, run_once
from proctor.supervisor.run.journal import Journal, RunRecorder
from proctor.supervisor.run.tasks import DetachedTask
from proctor.supervisor.testing import Ask, FakeAdapter, Pause
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def log_that_raises() -> None:
    def refuse(*_: Any) -> NoReturn:
        raise OSError("the log is full")

    structlog.configure(processors=[refuse])


async def test_a_log_that_raises_hurts_no_run(log_that_raises: None, permissive: Policy) -> None:
    """What it could not take goes to Python's own logging."""
    result = await run_once(FakeAdapter([MessageReceived(content="x")]), "go", policies=[permissive])

    assert result.status == "completed"


@pytest.mark.parametrize("errand", ["hurry", "flush"])
async def test_a_run_whose_errand_breaks_ends_with_its_agent(
    errand: str, monkeypatch: pytest.MonkeyPatch, permissive: Policy
) -> None:
    """The caller hears of it; another run, and the supervisor, go on."""

    async def breaks(recorder: RunRecorder) -> None:
        raise LookupError("a mistake of ours")

    adapter = FakeAdapter([MessageReceived(content="x"), Pause()])
    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(MemoryStore()) as supervisor:
            handle = await supervisor.start(adapter, "go", policies=[permissive])
            async with supervisor.subscribe(run_id=handle.run_id) as events:
                async for event in events:
                    if isinstance(event, MessageReceived):
                        break
            monkeypatch.setattr(RunRecorder, errand, breaks)
            await handle.cancel()
            with pytest.raises(LookupError, match="a mistake of ours"):
                await handle.wait()
            monkeypatch.undo()
            other = await supervisor.start(FakeAdapter(), "go", policies=[permissive])
            assert (await other.wait()).status == "completed"

    assert adapter.closed == len(adapter.launches) == 1


async def breaks(*_: Any) -> NoReturn:
    raise LookupError("a mistake of ours")


async def test_a_run_that_breaks_stops_its_agent_by_itself(
    monkeypatch: pytest.MonkeyPatch, permissive: Policy
) -> None:
    """Nobody need cancel it, and the log says what broke."""
    go_on = anyio.Event()
    adapter = FakeAdapter([Ask(name="read", first=go_on.wait), Pause()])
    with anyio.fail_after(PATIENCE_S), capture_logs() as logged:
        async with Supervisor(MemoryStore()) as supervisor:
            handle = await supervisor.start(adapter, "go", policies=[permissive])
            await anyio.wait_all_tasks_blocked()
            monkeypatch.setattr(RunRecorder, "flush", breaks)
            go_on.set()
            with pytest.raises(LookupError, match="a mistake of ours"):
                await handle.wait()

    assert adapter.closed == len(adapter.launches) == 1
    assert [entry["error"] for entry in logged if entry["event"] == "run.broken"] == [
        "LookupError: a mistake of ours"
    ]


async def test_a_run_that_breaks_as_it_begins_starts_no_agent(
    monkeypatch: pytest.MonkeyPatch, permissive: Policy
) -> None:
    """Nothing of it would be recorded."""
    adapter = FakeAdapter([Ask(name="read"), Pause()])
    monkeypatch.setattr(RunRecorder, "flush", breaks)
    with anyio.fail_after(PATIENCE_S), pytest.raises(LookupError, match="a mistake of ours"):
        await run_once(adapter, "go", policies=[permissive])

    assert adapter.launches == []


@pytest.mark.parametrize(("part", "step"), [(Journal, "drained"), (DetachedTask, "released")])
async def test_a_run_whose_own_task_breaks_tells_its_caller_why(
    part: type, step: str, monkeypatch: pytest.MonkeyPatch, permissive: Policy
) -> None:
    """Before its agent is started, and after that has ended."""
    adapter = FakeAdapter([MessageReceived(content="x")])
    monkeypatch.setattr(part, step, breaks)
    with anyio.fail_after(PATIENCE_S), pytest.raises(LookupError, match="a mistake of ours"):
        await run_once(adapter, "go", policies=[permissive])

    assert adapter.closed == len(adapter.launches)


async def test_a_caller_at_the_gate_of_a_run_that_breaks_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch, permissive: Policy
) -> None:
    """Their call is not on record, and never will be."""
    adapter = FakeAdapter([MessageReceived(content="x"), Pause()])
    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(MemoryStore()) as supervisor:
            handle = await supervisor.start(adapter, "go", policies=[permissive])
            await anyio.wait_all_tasks_blocked()
            monkeypatch.setattr(RunRecorder, "flush", breaks)
            answer = await adapter.launches[0].gate(ToolCall(id="c", name="read"))
            with pytest.raises(LookupError):
                await handle.wait()

    assert (answer.allowed, answer.stop) == (False, True)
