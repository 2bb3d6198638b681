"""The calls of a session, and the client's questions about them, answered by the gate. On an error the call is
denied.

Other hooks may change a call's input while ours evaluates it. So the input is compared with the evaluated one again:
when the client asks for permission, after all hooks, and after the call has run.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

from proctor.policies.events import Event
from proctor.policies.events.calls import ToolCall, same_input, tell_model_default
from proctor.supervisor.ports.adapter import GateAnswer

from ...kit.call_book import CallBook, ClientCall
from ...kit.client_tools import plain_output
from ...kit.gate import CallGate, trace_of

REWRITTEN = "something changed its input after it was evaluated"


class ClaudeCalls(CallBook[ClientCall]):
    """The open calls of one session, and its subagents by the call that started them."""

    def __init__(self) -> None:
        super().__init__(ClientCall)
        self._turns: dict[str, int] = {}
        self._agents: dict[str, str] = {}
        self._refusals: dict[str, list[str]] = {}
        self._unasked: dict[str, ToolCall] = {}

    def mentioned(self, call_id: str, name: str, *, turn: int, parent: str | None) -> ClientCall:
        """Note a call that the model requested; a subagent's belongs to the turn of the call that started it."""
        call = self.request(call_id)
        call.name = call.name or name
        call.parent = call.parent or parent
        call.turn = call.turn or (self._turns.get(parent, 0) if parent else turn)
        self._turns[call_id] = call.turn
        return call

    def agent_started(self, agent_id: str, call_id: str) -> None:
        """Note which call started a subagent."""
        self._agents[agent_id] = call_id

    def turn_of(self, call_id: str, agent_id: str | None) -> int | None:
        """The turn a call belongs to; None before it was in the stream."""
        if agent_id is not None:
            return self._turns.get(self._agents[agent_id], 0) if agent_id in self._agents else None
        call = self.get(call_id)
        return call.turn if call is not None else None

    def proposed(self, call_id: str, name: str, tool_input: dict[str, Any], agent_id: str | None) -> ClientCall:
        """Note that a call is proposed to the gate."""
        parent = self._agents.get(agent_id) if agent_id else None
        call = self.mentioned(call_id, name, turn=0, parent=parent)
        if not call.allowed:
            call.proposed, call.input = True, tool_input
        return call

    def allowed(self, call_id: str, tool_input: dict[str, Any]) -> None:
        """Note that the gate allowed a call, with this input."""
        call = self.request(call_id)
        call.allowed, call.input = True, tool_input

    def refused(self, call_id: str, tell_model: str) -> None:
        """Note that the gate denied a call: a result with this text is not an outcome."""
        self._refusals.setdefault(call_id, []).append(tell_model)

    def permitted(self, call_id: str | None) -> ClientCall | None:
        """The call that the gate allowed under an id, or None."""
        call = self.get(call_id)
        return call if call is not None and call.allowed else None

    def outcome(self, block: dict[str, Any]) -> Iterator[Event]:
        """The events of a tool result.

        A call that ran without the gate is first reported as started, so that it is evaluated.
        """
        call_id = str(block.get("tool_use_id"))
        content = plain_output(block.get("content"))
        failed = bool(block.get("is_error"))
        if failed and self._is_refusal(call_id, content):
            return
        call = self.drop(call_id) or ClientCall(id=call_id)
        if failed and call.name and not call.proposed:
            self._unasked[call_id] = call.as_tool_call()
        if not failed and not call.allowed:
            yield call.started()
        yield call.ended(content, failed=failed)

    def pop_unasked(self, call_id: str) -> ToolCall | None:
        """A failed call that was never proposed to the gate, as the client denied it by itself; or None."""
        return self._unasked.pop(call_id, None)

    def _is_refusal(self, call_id: str, content: Any) -> bool:
        """Whether a failure is the gate's own denial; several calls may have had the same id."""
        texts, call = self._refusals.get(call_id, []), self.get(call_id)
        matching = next((text for text in texts if text in str(content)), None)
        if matching is None and (not texts or (call is not None and call.allowed)):
            return False
        texts.remove(matching if matching is not None else texts[0])
        if call is not None and not call.allowed:
            self.drop(call_id)
        return True


@dataclass(eq=False)
class Hooks:
    """The hooks of one session.

    `wait_until_judged` returns when all output of the client before the call was reported, and raises if the client
    never reports the call. `changed` gets a call that ran with another input than the evaluated one. `decision` is
    the answer to an allowed call: `allow`; `ask`: the client asks for permission; None: its own permissions decide.
    """

    _gate: CallGate
    _calls: ClaudeCalls
    _wait_until_judged: Callable[[str, str | None], Awaitable[None]]
    _changed: Callable[[ClientCall], Awaitable[None]]
    _decision: str | None
    _log: Any

    async def before(self, request: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """PreToolUse: whether a call may run."""
        name = str(request["tool_name"])
        try:
            return self._output(await self._decided(request, call_id or str(request["tool_use_id"])))
        except Exception as error:
            # INVARIANT: the exception's text never reaches the model, as the client would tell it
            self._log.error("claude.gate_failed", tool_name=name, tool_call_id=call_id, error=trace_of(error))
            return self._output(GateAnswer(allowed=False, tell_model=tell_model_default(name)))

    async def permitted(self, name: str, tool_input: dict[str, Any], context: Any) -> Any:
        """Answer the client's request for permission, after every hook: its input must be the evaluated one."""
        call = self._calls.permitted(context.tool_use_id)
        if call is not None and call.name == name and same_input(call.input, tool_input):
            return PermissionResultAllow()
        if call is not None:
            call.allowed = False
            refused = self._gate.reject(call.as_tool_call(), REWRITTEN)
            self._calls.refused(str(context.tool_use_id), refused.tell_model or "")
        return PermissionResultDeny(message=tell_model_default(name))

    async def after(self, ran: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """PostToolUse and PostToolUseFailure: compare the input that a call ran with."""
        call_id = call_id or str(ran["tool_use_id"])
        call, tool_input = self._calls.permitted(call_id), dict(ran["tool_input"])
        if call is None or same_input(call.input, tool_input):
            return {}
        await self._changed(msgspec.structs.replace(call, input=tool_input))
        return {"continue_": False, "stopReason": "stopped"}

    async def _decided(self, request: Any, call_id: str) -> GateAnswer:
        name, tool_input, agent_id = str(request["tool_name"]), dict(request["tool_input"]), request.get("agent_id")
        await self._wait_until_judged(call_id, agent_id)
        turn = self._calls.turn_of(call_id, agent_id) or 0
        noted = self._calls.proposed(call_id, name, tool_input, agent_id)
        call = ToolCall(id=call_id, name=name, input=tool_input, turn=turn, parent_tool_call_id=noted.parent)
        answer = await self._gate.propose(call)
        if answer.allowed:
            self._calls.allowed(call_id, tool_input if answer.input is None else answer.input)
        else:
            self._calls.refused(call_id, answer.tell_model or "")
        return answer

    def _output(self, answer: GateAnswer) -> dict[str, Any]:
        output: dict[str, Any] = {"hookEventName": "PreToolUse"}
        if not answer.allowed:
            output["permissionDecision"] = "deny"
            output["permissionDecisionReason"] = answer.tell_model
        elif self._decision is not None:
            output["permissionDecision"] = self._decision
        if answer.allowed and answer.input is not None:
            output["updatedInput"] = answer.input
        stop = {"continue_": False, "stopReason": "stopped"} if answer.stop else {}
        return {**stop, "hookSpecificOutput": output}
