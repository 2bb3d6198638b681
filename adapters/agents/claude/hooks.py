"""The client's questions about each tool call, answered by the gate. Whatever goes wrong here refuses.

What is judged is what runs: other hooks may rewrite a call's input, and do so beside ours. So the input is compared
with the judged one again where the client asks for permission, after all hooks, and once more when it has run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

from proctor.policies.events.calls import ToolCall, same_input, tell_model_default
from proctor.supervisor.ports.adapter import GateAnswer, Launch

from ...kit.call_book import ClientCall
from ...kit.gate import GateLink, run_logger, trace_of
from .calls import ClaudeCalls

REWRITTEN = "something changed its input after it was judged"


class Hooks:
    """The hooks of one session.

    Args:
        launch: the run, for the log.
        gate: decides.
        calls: the calls of the session.
        caught_up: returns when everything the client said before the call was reported; raises when the client
            does not say.
        changed: called for a call that ran with another input than was judged.
        decision: what the client is told of an allowed call: `allow`, `ask` to be asked again for permission, or
            nothing, where its own permissions are to decide.
    """

    def __init__(
        self,
        launch: Launch,
        gate: GateLink,
        calls: ClaudeCalls,
        caught_up: Callable[[str, str | None], Awaitable[None]],
        changed: Callable[[ClientCall], Awaitable[None]],
        *,
        decision: str | None,
    ) -> None:
        self._gate = gate
        self._calls = calls
        self._caught_up = caught_up
        self._changed = changed
        self._decision = decision
        self._log = run_logger(launch)

    async def before(self, request: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """PreToolUse: whether a call may run."""
        name = str(request["tool_name"])
        try:
            return self._output(await self._judged(request, call_id or str(request["tool_use_id"])))
        except Exception as error:
            # INVARIANT: the exception's text never reaches the model, as the client would tell it
            self._log.error("claude.gate_failed", tool_name=name, tool_call_id=call_id, error=trace_of(error))
            return self._output(GateAnswer(allowed=False, tell_model=tell_model_default(name)))

    async def permitted(self, name: str, tool_input: dict[str, Any], context: Any) -> Any:
        """The client's question for permission, after every hook: the input must be the judged one still."""
        call = self._calls.permitted(context.tool_use_id)
        if call is not None and call.name == name and same_input(call.input, tool_input):
            return PermissionResultAllow()
        if call is not None:
            call.allowed = False
            refused = self._gate.not_run(call.asked(), REWRITTEN)
            self._calls.refused(str(context.tool_use_id), refused.tell_model or "")
        return PermissionResultDeny(message=tell_model_default(name))

    async def after(self, ran: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """PostToolUse and PostToolUseFailure: what a call ran with."""
        call_id = call_id or str(ran["tool_use_id"])
        call, tool_input = self._calls.permitted(call_id), dict(ran["tool_input"])
        if call is None or same_input(call.input, tool_input):
            return {}
        await self._changed(msgspec.structs.replace(call, input=tool_input))
        return {"continue_": False, "stopReason": "stopped"}

    async def _judged(self, request: Any, call_id: str) -> GateAnswer:
        name, tool_input, agent_id = str(request["tool_name"]), dict(request["tool_input"]), request.get("agent_id")
        await self._caught_up(call_id, agent_id)
        turn = self._calls.turn_of(call_id, agent_id) or 0
        noted = self._calls.proposed(call_id, name, tool_input, agent_id)
        call = ToolCall(id=call_id, name=name, input=tool_input, turn=turn, parent_tool_call_id=noted.parent)
        answer = await self._gate.ask(call)
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
