"""What the client asks before it acts, put to the gate."""

from __future__ import annotations

from typing import Any, Final

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import ToolCallFailed
from proctor.supervisor.ports import GateAnswer, Launch

from ...kit.event_stream import EventStream
from ...kit.gate import StrictGate
from ...kit.jsonrpc import METHOD_NOT_FOUND, RpcError
from . import approvals
from .approvals import Proposal
from .items import leaves
from .rollout import Rollouts
from .running import RunningCalls
from .sandboxing import Bounds
from .translation import Translation

_WITHHELD: Final = GateAnswer(allowed=False)


class Questions:
    """Answers the client's requests.

    Args:
        launch: what is run, with the gate that holds its calls.
        said: what the client reported.
        stream: where events go.
        rollouts: the client's own records.
        calls: the calls that run.
        bounds: the sandbox around the calls.
    """

    def __init__(
        self,
        launch: Launch,
        said: Translation,
        stream: EventStream,
        rollouts: Rollouts,
        calls: RunningCalls,
        bounds: Bounds,
    ) -> None:
        self._gate = StrictGate(launch.gate, stream)
        self._said = said
        self._stream = stream
        self._rollouts = rollouts
        self._calls = calls
        self._bounds = bounds

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request. Raises RpcError for one that is not known."""
        thread = str(params.get("threadId") or self._said.threads.own)
        match method:
            case approvals.COMMAND:
                return self._decided(await self._ask_gate(await self._command(params, thread), thread), thread)
            case approvals.FILE_CHANGE:
                return self._decided(await self._ask_gate(self._patch(params), thread), thread)
            case approvals.ELICITATION:
                proposal = approvals.mcp_proposal(params, self._said.announced(thread))
                return approvals.elicitation_decision(await self._ask_gate(proposal, thread))
            case approvals.PERMISSIONS:
                return approvals.NO_PERMISSIONS
        raise RpcError(METHOD_NOT_FOUND, f"`{method}` is not answered here")

    async def _command(self, params: dict[str, Any], thread: str) -> Proposal | None:
        written: dict[str, Any] | None = {}
        if self._bounds.sandboxed:
            written = await (await self._rollouts.of(thread)).arguments(str(params.get("itemId")))
        return approvals.command_proposal(params, written)

    def _patch(self, params: dict[str, Any]) -> Proposal | None:
        item = self._said.running.get(str(params.get("itemId")))
        outside = item is not None and (self._bounds.folder is None or leaves(item, str(self._bounds.folder)))
        escalated = (self._bounds.sandboxed and outside) or params.get("grantRoot") is not None
        return approvals.patch_proposal(item, escalated=escalated)

    def _decided(self, answer: GateAnswer, thread: str) -> dict[str, Any]:
        # `cancel` ends the turn of the thread that asks, which for a sub-agent is not the turn of the run
        return approvals.decision(answer, may_cancel=self._said.threads.is_own(thread))

    async def _ask_gate(self, proposal: Proposal | None, thread: str) -> GateAnswer:
        if proposal is None:
            return _WITHHELD
        self._said.proposed.add(proposal.id)
        await self._catch_up(thread)
        turn, parent = self._said.place(thread)
        call = ToolCall(
            id=proposal.id, name=proposal.name, input=proposal.input, turn=turn, parent_tool_call_id=parent
        )
        answer = await self._gate(call)
        rewritten = answer.input is not None and answer.input != call.input
        if answer.allowed and not rewritten and (proposal.escalated is False or not self._bounds.confined):
            self._said.let_run.add(call.id)
            return answer
        self._said.over.add(proposal.id)
        if answer.allowed:
            self._stream.post(_not_run(call, "rewritten" if rewritten else "sandbox"))
        return GateAnswer(allowed=False, stop=answer.stop)

    async def _catch_up(self, thread: str) -> None:
        """Report everything before a call, on which it is judged."""
        await self._calls.catch_up(thread)
        if self._said.threads.is_own(thread):
            for event in self._said.response_begins():
                self._stream.post(event)
        await self._stream.settled()


def _not_run(call: ToolCall, why: str) -> ToolCallFailed:
    reasons = {
        "sandbox": "not run: it would leave the sandbox, or the client did not say that it would not",
        "rewritten": "not run: the client cannot run a call with another input",
    }
    return ToolCallFailed(tool_call_id=call.id, tool_name=call.name, error={"message": reasons[why]})
