"""A cancel ends the real client, whatever it was doing, with its own interrupt where there is a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from proctor.adapters.agents.codex import session
from proctor.adapters.agents.codex.connection import CodexConnection
from proctor.policies.events import RunCancelled, ToolCallFailed
from proctor.policies.limits import Limits
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, Supervisor
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.codex, pytest.mark.usefixtures("patient")]
SLEEPER = "echo up > {signal}; sleep 80000 & sleep 80000"


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], anyio.Event]:
    """Make an event that is set when the client got a request a given number of times; its answer is withheld."""

    def watch(wanted: str, times: int) -> anyio.Event:
        was_requested = anyio.Event()
        seen: list[str] = []
        ask = CodexConnection.request

        async def watched(connection: CodexConnection, method: str, params: Any, **how: Any) -> dict[str, Any]:
            seen.append(method)
            answer = await ask(connection, method, params, **how)
            if seen.count(wanted) == times:
                was_requested.set()
                await anyio.sleep_forever()
            return answer

        monkeypatch.setattr(CodexConnection, "request", watched)
        return was_requested

    return watch


@pytest.mark.parametrize(
    ("method", "times"),
    [
        ("initialize", 1),  # while it is prepared
        ("initialize", 2),
        ("thread/start", 1),
        ("turn/start", 1),
    ],
)
async def test_a_cancel_before_there_is_a_turn_closes_the_client(
    bench: Any, asking: Callable[[str, int], anyio.Event], method: str, times: int
) -> None:
    """At each step of its start; the run is recorded as cancelled."""
    bench.api.reply(endless=True)
    bench.run_ids.append("run-early")
    was_requested = asking(method, times)
    policy = Policy(name="p", limits=Limits(max_tool_calls=5))
    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(MemoryStore()) as supervisor:
            handle = await supervisor.start(bench.adapter(), "go", policies=[policy], run_id="run-early")
            await was_requested.wait()
            await handle.cancel(reason="enough")
            result = await handle.wait()

    assert result.status == "cancelled"
    (ended,) = (event for event in result.events if isinstance(event, RunCancelled))
    assert ended.evidence == {"rungs": [{"rung": "abandon"}]}
    assert bench.survivors() == []


async def test_a_cancel_before_the_client_says_that_the_turn_began_waits_for_that(bench: Any) -> None:
    """The client refuses an interrupt until then."""
    bench.api.reply(endless=True)
    async with bench.watched() as run:
        await run.interrupt()

    assert bench.survivors() == []


async def test_a_cancel_ends_a_turn_whose_request_nobody_answers(bench: Any) -> None:
    """The provider does not even begin to respond."""
    bench.api.reply(mute=True)
    async with bench.watched() as run:
        await bench.api.wait_for_requests()
        await run.interrupt()


async def test_a_cancel_ends_a_turn_that_is_being_retried(bench: Any) -> None:
    """The client waits before it asks again."""
    for _ in range(4):
        bench.api.reply(status=500)
    async with bench.watched() as run:
        await bench.api.wait_for_requests()
        await run.interrupt()


async def test_a_cancel_ends_the_command_that_runs_with_all_it_started(bench: Any, pipe: Any) -> None:
    """The interrupt alone leaves commands running, so they are cleaned up after it."""
    bench.api.reply(bench.api.shell("c1", SLEEPER.format(signal=pipe), yield_time_ms=30000))
    async with bench.watched() as run:
        await pipe.heard()
        await run.interrupt()

    assert [event.tool_call_id for event in run.seen if isinstance(event, ToolCallFailed)] == ["c1"]
    assert len(bench.api.requests) == 1
    assert bench.survivors() == []


async def test_a_cancel_between_two_responses_interrupts(bench: Any, pipe: Any) -> None:
    """A command left running in the background is ended too."""
    bench.api.reply(bench.api.shell("c1", SLEEPER.format(signal=pipe), yield_time_ms=250))
    bench.api.reply(mute=True)
    async with bench.watched() as run:
        await pipe.heard()
        await bench.api.wait_for_requests(2)
        await run.interrupt()

    assert bench.survivors() == []


async def test_a_second_walk_down_the_ladder_interrupts_no_second_time(bench: Any) -> None:
    """The client never answers a second interrupt of one turn."""
    bench.api.reply(bench.api.text("thinking"), endless=True)
    async with bench.watched() as run:
        await run.responding.wait()
        first = await run.provider.cancel_steps()[0].act()
        second = await run.provider.cancel_steps()[0].act()
        await run.ended.wait()

    assert [first, second] == [{"interrupted_by": "ladder"}] * 2


async def test_a_client_that_never_begins_its_turn_is_closed(
    bench: Any, stand_in: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt is given up, and its input closed."""
    for bound in ("INTERRUPT_S", "CLEAN_UP_S"):
        monkeypatch.setattr(session, bound, 0.05)
    async with bench.watched(adapter=bench.adapter(codex_path=stand_in(""))) as run:
        taken = await run.cancel()

    assert [(step["rung"], "error" in step) for step in taken][:2] == [("interrupt", True), ("close", False)]
    assert run.error is None
