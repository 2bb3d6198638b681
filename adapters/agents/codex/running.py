"""The calls that run, and how each of them ends: as the client says, as it recorded, or with the run."""

from __future__ import annotations

import anyio

from proctor.policies.stream.events import ToolCallFailed

from ...kit.event_stream import EventStream
from .items import tool_name
from .rollout import Rollouts
from .translation import Translation


class RunningCalls:
    """The calls that run.

    Args:
        said: what the client reported.
        stream: where events go.
        rollouts: the client's own records.
    """

    def __init__(self, said: Translation, stream: EventStream, rollouts: Rollouts) -> None:
        self._said = said
        self._stream = stream
        self._rollouts = rollouts
        self._change = anyio.Event()

    def ids(self) -> list[str]:
        """Which they are; a call that is held or was refused does not run."""
        run = self._said.let_run | self._said.unasked
        return [call_id for call_id in self._said.running if call_id in run]

    async def catch_up(self, thread: str) -> None:
        """Report what the client recorded of a thread and did not say yet."""
        rollout = await self._rollouts.of(thread)
        await rollout.read()
        outputs, run = rollout.take_outputs(), self.ids()
        ended = {call_id: outputs[call_id] for call_id in run if call_id in outputs}
        for event in self._said.recorded(thread, rollout.usage, ended):
            self._stream.post(event)

    async def look_up(self) -> None:
        """Report the outcomes that the client recorded, in all the records that were read before."""
        if self.ids():
            for thread in self._rollouts.known():
                await self.catch_up(thread)

    def changed(self) -> None:
        """Take note that the client reported something."""
        self._change.set()

    async def settled(self) -> None:
        """Wait until none runs."""
        while self.ids():
            self._change = anyio.Event()
            await self._change.wait()

    def end(self) -> None:
        """Report of those that still run that they do not outlive the run."""
        for call_id in self.ids():
            item = self._said.running.pop(call_id)
            ended = {"message": "ended with the run, its outcome unknown"}
            self._stream.post(ToolCallFailed(tool_call_id=call_id, tool_name=tool_name(item), error=ended))
