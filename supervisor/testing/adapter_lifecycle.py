"""The contract of every Adapter at its end, whatever it is doing: end, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from uuid import uuid4

import anyio
import psutil

from proctor.policies.events import TERMINAL, Event, MessageReceived, MessageStreamed, RunCompleted, TurnStarted
from proctor.policies.events.calls import ToolCall

from ..errors import ProviderError
from ..ports.adapter import GateAnswer, Launch, Provider
from .adapter_fixture import POLL_S, AdapterChecks, Agent, Answering, Drive, Driven, Watching, completed, has_failed
from .fakes import PATIENCE_S


class CancellingChecks(AdapterChecks):
    """Cancels at every phase. Each cancel takes a bounded time, and afterwards no process of the run is alive."""

    async def test_it_can_be_cancelled_before_it_does_anything(self) -> None:
        done = await self._cancelled(self.silent() or self.making("alpha"), _at_once)

        assert not any(isinstance(event, RunCompleted) for event in done.events) or done.steps_taken == []

    async def test_it_can_be_cancelled_while_a_call_is_held(self) -> None:
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
        assert done.steps_taken
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
                step = provider.cancel_steps()[0]
                with anyio.move_on_after(step.bound_s), suppress(ProviderError):
                    await step.act()

        assert [event.type for event in seen if isinstance(event, TERMINAL)] == ["run_completed"]
        assert self.processes() == []

    async def test_leaving_the_context_releases_everything(self) -> None:
        """Without the cancel steps: the reader of the stream just goes away."""
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


class CrashingChecks(AdapterChecks):
    """The client dies at every phase, and writes garbage and half messages."""

    async def test_a_client_killed_in_the_middle_of_a_response_has_failed(self) -> None:
        if not self.has_client:
            return None
        agent = self.silent()
        if agent is None:
            return self.lacking("silent")
        begun = anyio.Event()

        def watch(event: Event) -> bool:
            begun.set()
            return False

        await self._killed(agent, begun.wait, watch=watch)

    async def test_a_client_killed_while_a_call_is_held_runs_nothing(self) -> None:
        agent = self.making("alpha")
        if agent.adapter.capabilities.gate == "none" or not self.has_client:
            return
        held, gone = anyio.Event(), anyio.Event()

        async def hold(call: ToolCall) -> GateAnswer:
            held.set()
            await gone.wait()
            return GateAnswer(allowed=True)

        await self._killed(agent, held.wait, answer=hold, killed=gone)

        assert self.made() == []

    async def test_a_client_killed_while_a_call_runs_leaves_no_process(self) -> None:
        if not self.has_client:
            return None
        agent = self.staying()
        if agent is None:
            return self.lacking("staying")
        done = await self._killed(agent, self.up)

        assert completed(done) == []

    async def test_a_line_that_is_no_message_harms_nothing_or_fails_the_run(self) -> None:
        """Nothing is lost in silence: a run that completes has done everything."""
        agent = self.garbling("alpha", "beta")
        if agent is None:
            return self.lacking("garbling") if self.has_client else None
        done = await self.run(agent)

        if any(isinstance(event, RunCompleted) for event in done.events):
            assert self.made() == self.effects("alpha", "beta")
        else:
            assert has_failed(done)
        assert self.processes() == []

    async def test_a_client_that_dies_in_the_middle_of_a_message_has_failed(self) -> None:
        await self._cut(lives=False)

    async def test_a_client_that_goes_on_with_its_output_closed_has_failed(self) -> None:
        await self._cut(lives=True)

    async def _cut(self, *, lives: bool) -> None:
        agent = self.truncating(lives=lives)
        if agent is None:
            return self.lacking("truncating") if self.has_client else None
        assert has_failed(await self.run(agent))
        assert self.processes() == []

    async def _killed(
        self,
        agent: Agent,
        moment: Callable[[], Awaitable[object]],
        *,
        watch: Watching | None = None,
        answer: Answering | None = None,
        killed: anyio.Event | None = None,
    ) -> Driven:
        """Run an agent whose client is killed once `moment` returns; it has failed and nothing of it is left."""
        drive = Drive(agent.adapter, answer=answer, cancel_when=watch)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drive.run, agent.prompt)
                await moment()
                await self._kill()
                if killed is not None:
                    killed.set()
        assert has_failed(drive.done)
        assert self.processes() == []
        return drive.done

    async def _kill(self) -> None:
        client = self.client()
        assert client, "the client does not run in the workspace, or is not a child of this process"
        below = [process for process in self._living() if process.info["ppid"] in {killed.pid for killed in client}]
        for process in client:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        # What was killed may be the guardian of the client, which dies with it, a moment later.
        while {*client, *below} & {*self._living()}:  # noqa: ASYNC110
            await anyio.sleep(POLL_S)
