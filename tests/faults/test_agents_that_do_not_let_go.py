"""Agents that ignore every cancel: the run ends in bounded time, reports it, and allows nothing more."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from proctor.policies import Limits, Policy, ToolCall
from proctor.policies.events import TERMINAL, Event, MessageReceived, RunCancelled, RunCompleted, RunFailed
from proctor.supervisor import CancelStep, Launch, MemoryStore, ProviderError, Supervisor
from proctor.supervisor.testing.fakes import FakeAdapter

OPEN = Policy(name="open", limits=Limits(max_tool_calls=1000))


class Stubborn(FakeAdapter):
    """Ignores its cancel at one point, while streaming, in its exit or in a cancel step, until it is `let_go`."""

    def __init__(self, where: str) -> None:
        super().__init__(name="stubborn")
        self.where = where
        self.let_go = False
        self.late: list[bool] = []
        self.streams, self.over = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Any]:
        try:
            yield StubbornProvider(self, launch)
        finally:
            if "exit" in self.where:
                await self.hold_on()

    async def hold_on(self) -> None:
        """Swallow every cancel."""
        while not self.let_go:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.5)
            with suppress(BaseException):
                await anyio.lowlevel.checkpoint()


class StubbornProvider:
    def __init__(self, adapter: Stubborn, launch: Launch) -> None:
        self._adapter = adapter
        self._launch = launch

    async def events(self) -> AsyncIterator[Event]:
        yield MessageReceived(content="hello")
        if self._adapter.where in ("natural exit", "closed stream"):
            try:
                yield RunCompleted(output="done")
            finally:
                if self._adapter.where == "closed stream":
                    await self._adapter.hold_on()
            return
        self._adapter.streams.set()
        if "stream" in self._adapter.where:
            await self._adapter.hold_on()
            answer = await self._launch.gate(ToolCall(id="late", name="bash"))
            self._adapter.late.append(answer.allowed)
            self._adapter.over.set()
            yield MessageReceived(content="late")
        await anyio.sleep_forever()

    def cancel_steps(self) -> Sequence[CancelStep]:
        async def act() -> dict[str, Any] | None:
            if "rung" in self._adapter.where:
                await self._adapter.hold_on()
            return None

        return [CancelStep(name=name, act=act, bound_s=self._adapter.rung_s) for name in ("interrupt", "kill")]


@pytest.mark.trio
@pytest.mark.parametrize("where", ["stream", "exit", "rung", "stream and exit", "stream, exit and rung"])
async def test_the_caller_of_a_cancelled_run_gets_its_result(where: str, autojump_clock: object) -> None:
    """Within the timeouts of the cancel steps and ten seconds. The one terminal event lists the steps."""
    adapter = Stubborn(where)
    store = MemoryStore()
    with trio.fail_after(60):
        async with Supervisor(store) as supervisor:
            handle = await supervisor.start(adapter, "go", policies=[OPEN], session_id="s")
            await trio.sleep(1)
            began = trio.current_time()
            await handle.cancel(reason="enough")
            result = await handle.wait()
            assert trio.current_time() - began <= 2 * 1.0 + 10.5
    assert result.status == "cancelled"
    events = [event async for event in store.read("s")]
    [end] = [event for event in events if isinstance(event, TERMINAL)]
    assert isinstance(end, RunCancelled)
    left_behind = {"rung": "release", "released": False} in end.evidence["rungs"]
    assert left_behind == (where != "rung")
    adapter.let_go = True
    await trio.sleep(2)
    assert adapter.late == [False] * ("stream" in where)
    assert [event async for event in store.read("s")] == events


@pytest.mark.trio
@pytest.mark.parametrize("where", ["natural exit", "closed stream"])
async def test_an_agent_that_has_ended_and_does_not_exit_has_failed(where: str, autojump_clock: object) -> None:
    """The caller gets the reason, and the result so far."""
    adapter = Stubborn(where)
    store = MemoryStore()
    with trio.fail_after(60):
        async with Supervisor(store) as supervisor:
            handle = await supervisor.start(adapter, "go", policies=[OPEN], session_id="s")
            with pytest.raises(ProviderError, match="not released") as raised:
                await handle.wait()
    assert raised.value.partial.output == "done"
    end = [event async for event in store.read("s")][-1]
    assert isinstance(end, RunFailed)
    assert "not released" in str(end.error)
    adapter.let_go = True


@pytest.mark.trio
async def test_other_runs_are_not_delayed(autojump_clock: object) -> None:
    """A run beside a stubborn one ends normally, and so does the supervisor."""
    stubborn = Stubborn("stream, exit and rung")
    with trio.fail_after(60):
        async with Supervisor(MemoryStore(), max_running=1) as supervisor:
            held = await supervisor.start(stubborn, "go", policies=[OPEN])
            await held.cancel()
            other = await supervisor.start(FakeAdapter(), "go", policies=[OPEN])
            assert (await other.wait()).status == "completed"
    stubborn.let_go = True


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_bounds_hold_on_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """With shorter timeouts, in real time."""
    monkeypatch.setattr("proctor.supervisor.run.tasks.RELEASE_S", 0.05)
    adapter = Stubborn("stream, exit and rung")
    adapter.rung_s = 0.05
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN], session_id="s")
        await adapter.streams.wait()
        await handle.cancel()
        assert (await handle.wait()).status == "cancelled"
    adapter.let_go = True
    await adapter.over.wait()
    assert adapter.late == [False]
