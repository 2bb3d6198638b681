"""Who ends runs waits until they have ended, and who comes to the gate too late is told to stop."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from proctor.policies.events import TERMINAL, TokenUsageUpdated
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import Capabilities
from proctor.policies.policy import Policy
from proctor.policies.rules import Check
from proctor.supervisor import GateAnswer, MemoryStore, Supervisor, run_once
from proctor.supervisor.run.actor import GateWaiters
from proctor.supervisor.testing import Ask, FakeAdapter, Pause
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


class SlowToEnd(MemoryStore):
    """Takes its time over the end of a run."""

    async def append(self, events: Any, **owned: Any) -> Any:
        """Store events."""
        if any(isinstance(event, TERMINAL) for event in events):
            for _ in range(20):
                await checkpoint()
        return await super().append(events, **owned)


async def statuses(store: MemoryStore) -> list[str]:
    return [run.status for run in await store.runs()]


async def test_cancel_all_returns_when_every_run_has_ended(permissive: Policy) -> None:
    """Their ends are stored, and their clients released."""
    store, adapter = SlowToEnd(), FakeAdapter([Pause()], deaf=1, rung_s=0.01)
    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(store) as supervisor:
            handles = [await supervisor.start(adapter, "go", policies=[permissive]) for _ in range(3)]
            await supervisor.cancel_all()
            ended = [handle.done for handle in handles]
            stored = await statuses(store)

    assert ended == [True] * 3
    assert stored == ["cancelled"] * 3
    assert adapter.closed == len(adapter.launches)


async def test_a_supervisor_is_left_when_every_run_has_ended(permissive: Policy) -> None:
    """Also where it is left by an error."""
    store, adapter = SlowToEnd(), FakeAdapter([Pause()], deaf=1, rung_s=0.01)
    with anyio.fail_after(PATIENCE_S):
        try:
            async with Supervisor(store) as supervisor:
                for _ in range(3):
                    await supervisor.start(adapter, "go", policies=[permissive])
                raise KeyError
        except KeyError:
            stored = await statuses(store)

    assert stored == ["cancelled"] * 3
    assert adapter.closed == len(adapter.launches)


async def test_a_supervisor_is_left_when_its_runs_have_completed(permissive: Policy) -> None:
    """It waits for them."""
    store = SlowToEnd()
    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(store) as supervisor:
            await supervisor.start(FakeAdapter([Pause(0.01)]), "go", policies=[permissive])

    assert await statuses(store) == ["completed"]


async def test_a_late_caller_at_the_gate_is_told_to_stop(permissive: Policy) -> None:
    """After the run is over a call is refused, and nothing more is to be asked for."""
    adapter = FakeAdapter([Ask(name="read")])
    await run_once(adapter, "go", policies=[permissive])
    late = await adapter.launches[0].gate(ToolCall(id="late", name="read"))

    assert (late.allowed, late.stop) == (False, True)
    assert late.tell_model


@pytest.mark.parametrize("answer", [True, False])
async def test_an_asynchronous_check_decides_its_call(answer: bool) -> None:
    """Through the gate of a live run: a yes permits, a no refuses."""

    async def check(call: Any) -> bool:
        await checkpoint()
        return answer

    policy = Policy(name="p", rules=(Check(check=check, tool="bash", id="asked"),), on_violation="deny")
    adapter = FakeAdapter([Ask(name="bash"), Ask(name="read")])
    with anyio.fail_after(PATIENCE_S):
        result = await run_once(adapter, "go", policies=[policy])

    assert [call.name for call in adapter.ran] == (["bash", "read"] if answer else ["read"])
    assert result.status == "completed"


@pytest.mark.parametrize(("reported", "recorded"), [("own", "own"), (None, "the run's")])
async def test_a_reports_own_model_is_kept(reported: str | None, recorded: str, permissive: Policy) -> None:
    """What it costs depends on it; one that names none is of the run's."""
    can_do = Capabilities(gate="all", usage="per_turn", model="the run's")
    adapter = FakeAdapter([TokenUsageUpdated(input_tokens=1, model=reported)], capabilities=can_do)
    result = await run_once(adapter, "go", policies=[permissive])
    (usage,) = [event for event in result.events if isinstance(event, TokenUsageUpdated)]

    assert usage.model == recorded


async def test_a_caller_at_a_closed_gate_is_told_to_stop() -> None:
    """Also where nobody is left who could answer."""
    answers: list[Any] = []
    waiters = GateWaiters(answers.append, lambda: 1)
    waiters.close()
    with anyio.fail_after(PATIENCE_S):
        answer = await waiters.hold(ToolCall(id="c", name="read"))

    assert (answer.allowed, answer.stop, answers) == (False, True, [])
    assert answer.tell_model


async def test_a_caller_at_a_gate_that_closes_is_told_to_stop() -> None:
    """The answer that they wait for never comes."""
    answers: list[GateAnswer] = []

    async def ask() -> None:
        answers.append(await waiters.hold(ToolCall(id="c", name="read")))

    waiters = GateWaiters(lambda input: None, lambda: 1)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            waiters.close()

    assert [(answer.allowed, answer.stop) for answer in answers] == [(False, True)]


async def test_a_gate_keeps_nothing_of_a_call_that_was_answered() -> None:
    """A run may last for millions of calls."""

    class Large:
        pass

    waiters = GateWaiters(lambda input: waiters.answer(input.key, GateAnswer(allowed=True)), lambda: 1)  # type: ignore[attr-defined]
    large = Large()
    gone = weakref.ref(large)
    await waiters.hold(ToolCall(id="c", name="read", input={"content": large}))
    del large
    gc.collect()

    assert gone() is None
