"""The gate as an adapter asks it that has no other way to hear of its failure."""

from __future__ import annotations

from proctor.policies.stream.calls import ToolCall
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports import Gate, GateAnswer

from .event_stream import EventStream


class StrictGate:
    """Puts calls to the gate; `stopped` says whether an answer was the last one.

    A gate that fails permits nothing, and the run cannot go on without it: the stream ends with why.
    """

    def __init__(self, gate: Gate, stream: EventStream) -> None:
        self._gate = gate
        self._stream = stream
        self.stopped = False

    async def __call__(self, call: ToolCall) -> GateAnswer:
        """The gate's answer."""
        try:
            answer = await self._gate(call)
        except Exception as error:
            self._stream.close(ProviderError(f"the gate failed: {error}"))
            answer = GateAnswer(allowed=False, stop=True)
        self.stopped = self.stopped or answer.stop
        return answer
