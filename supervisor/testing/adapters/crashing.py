"""What every Adapter must do when its client dies or writes something that is not a message: say so, and leave
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import psutil

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import Event, RunCompleted
from proctor.supervisor.ports.adapters import GateAnswer

from ..patience import PATIENCE_S
from .checks import POLL_S, AdapterChecks, Agent, completed, has_failed
from .driving import Answering, Drive, Driven, Watching


class CrashingChecks(AdapterChecks):
    """The client dies at every phase, and writes garbage and half messages."""

    async def test_a_client_killed_in_the_middle_of_a_response_has_failed(self) -> None:
        """Its failure is reported once, in bounded time."""
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
        """Even if the gate allows it later."""
        agent = self.making("alpha")
        if agent.adapter.capabilities.gate == "none" or not self.has_client:
            return
        held, gone = anyio.Event(), anyio.Event()

        async def hold(call: ToolCall) -> GateAnswer:
            held.set()
            await gone.wait()
            return GateAnswer(allowed=True)

        async def when_held() -> None:
            await held.wait()

        await self._killed(agent, when_held, answer=hold, killed=gone)

        assert self.made() == []

    async def test_a_client_killed_while_a_call_runs_leaves_no_process(self) -> None:
        """What it had started is ended, although no client is left to do so."""
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
        """Half a message is no completion."""
        await self._cut(lives=False)

    async def test_a_client_that_goes_on_with_its_output_closed_has_failed(self) -> None:
        """Its process is alive, but nothing more can be read from it."""
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
        moment: Callable[[], Awaitable[None]],
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
