"""What every Adapter must do when it is ended, whatever it is doing: end, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from uuid import uuid4

import anyio
import anyio.lowlevel

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import (
    TERMINAL,
    Event,
    MessageReceived,
    MessageStreamed,
    RunCompleted,
    TurnStarted,
)
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapters import GateAnswer, Launch, Provider

from ..patience import PATIENCE_S
from .checks import AdapterChecks, Agent, completed
from .driving import Drive, Driven


class CancellingChecks(AdapterChecks):
    """Cancels at every phase. Each cancel takes a bounded time, and afterwards no process of the run is alive."""

    async def test_it_can_be_cancelled_before_it_does_anything(self) -> None:
        """The ladder works from the start."""
        done = await self._cancelled(self.silent() or self.making("alpha"), _at_once)

        assert not any(isinstance(event, RunCompleted) for event in done.events) or done.rungs == []

    async def test_it_can_be_cancelled_while_a_call_is_held(self) -> None:
        """The held call does not run, not even later."""
        agent = self.making("alpha")
        if agent.adapter.capabilities.gate == "none":
            return
        held = anyio.Event()

        async def hold(call: ToolCall) -> GateAnswer:
            held.set()
            await anyio.sleep_forever()
            raise AssertionError

        done = await self._cancelled(agent, held.wait, answer=hold)

        assert self.made() == []
        assert not any(isinstance(event, RunCompleted) for event in done.events), "the cancel was swallowed"

    async def test_it_can_be_cancelled_while_a_call_runs(self) -> None:
        """Processes that ignore signals and left their session are gone; the call has not completed."""
        agent = self.staying()
        if agent is None:
            return self.lacking("staying", declares=self.making("alpha").adapter.capabilities.cancel_kills_children)
        done = await self._cancelled(agent, self.up)

        assert completed(done) == []
        self.saw(agent.adapter.capabilities, cancel_kills_children=True)

    async def test_it_can_be_cancelled_while_it_streams_and_then_is_silent(self) -> None:
        """In the middle of a response that never ends, without waiting for an event."""
        agent = self.silent()
        if agent is None:
            return self.lacking("silent")
        speaking = anyio.Event()

        def watch(event: Event) -> bool:
            if isinstance(event, (MessageReceived, MessageStreamed, TurnStarted)):
                speaking.set()
            return speaking.is_set()

        with anyio.fail_after(PATIENCE_S):
            done = await Drive(agent.adapter, cancel_when=watch).run(agent.prompt)

        assert speaking.is_set()
        assert done.rungs
        assert not any(isinstance(event, RunCompleted) for event in done.events)
        assert self.processes() == []

    async def test_a_cancel_after_the_end_finds_nothing_to_do(self) -> None:
        """The end and a cancel may cross: then the first step is harmless and bounded."""
        agent = self.making("alpha")
        launch = Launch(run_id=f"late-{uuid4().hex}", session_id="s", prompt=agent.prompt, gate=_allow)
        await agent.adapter.prepare()
        with anyio.fail_after(PATIENCE_S):
            async with agent.adapter.open(launch) as provider:
                seen = [event async for event in provider.events()]
                rung = provider.ladder()[0]
                with anyio.move_on_after(rung.bound_s), suppress(ProviderError):
                    await rung.act()

        assert [event.type for event in seen if isinstance(event, TERMINAL)] == ["run_completed"]
        assert self.processes() == []

    async def test_leaving_the_context_releases_everything(self) -> None:
        """Without the ladder: the reader of the stream just goes away."""
        agent = self.staying()
        moment: Callable[[], Awaitable[object]] = self.up if agent else _soon
        agent = agent or self.making("alpha")
        launch = Launch(run_id=f"left-{uuid4().hex}", session_id="s", prompt=agent.prompt, gate=_allow)
        await agent.adapter.prepare()
        with anyio.fail_after(PATIENCE_S):
            async with agent.adapter.open(launch) as provider, anyio.create_task_group() as tasks:
                tasks.start_soon(_read, provider)
                await moment()
                tasks.cancel_scope.cancel()

        assert self.processes() == []

    async def test_leaving_the_context_by_a_cancel_releases_everything(self) -> None:
        """Clean-up continues although the task that opened the session is cancelled."""
        agent = self.staying()
        if agent is None:
            return self.lacking("staying")
        launch = Launch(run_id=f"cut-{uuid4().hex}", session_id="s", prompt=agent.prompt, gate=_allow)
        await agent.adapter.prepare()

        async def opened() -> None:
            async with agent.adapter.open(launch) as provider:
                await _read(provider)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(opened)
                await self.up()
                tasks.cancel_scope.cancel()

        assert self.processes() == []

    async def test_one_instance_serves_two_runs_at_once(self) -> None:
        """Nothing is shared between them, and each asks its own gate."""
        agent = self.making("alpha")
        gated = agent.adapter.capabilities.gate != "none"
        one, other = Drive(agent.adapter), Drive(agent.adapter)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for drive in (one, other):
                    tasks.start_soon(drive.run, agent.prompt)

        assert [drive.done.types[-1] for drive in (one, other)] == ["run_completed"] * 2
        assert [bool(drive.done.proposed) for drive in (one, other)] == [gated] * 2
        assert len(one.done.proposed) == len(other.done.proposed)

    async def _cancelled(self, agent: Agent, moment: Callable[[], Awaitable[object]], **gate: object) -> Driven:
        drive = Drive(agent.adapter, **gate)  # type: ignore[arg-type]
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drive.run, agent.prompt)
                await moment()
                drive.cancel()
        assert self.processes() == []
        return drive.done


async def _allow(call: ToolCall) -> GateAnswer:
    return GateAnswer(allowed=True)


async def _read(provider: Provider) -> None:
    async with aclosing(provider.events()) as events:  # type: ignore[type-var]
        async for _ in events:
            continue


async def _at_once() -> None:
    """No waiting at all."""


async def _soon() -> None:
    for _ in range(50):
        await anyio.lowlevel.checkpoint()
