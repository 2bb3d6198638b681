"""The client's question before each tool call, answered by the gate. Whatever goes wrong here refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from proctor.policies.stream.calls import ToolCall, tell_model_default
from proctor.supervisor.ports import Gate, GateAnswer

from .calls import CallBook

_log = structlog.get_logger("proctor.adapters.agents.claude")


class GateHook:
    """A PreToolUse hook.

    Args:
        gate: decides.
        calls: the calls of the session.
        caught_up: returns when everything the client said before the call was dealt with.
        permit: whether an allowed call needs no further permission of the client's own.
    """

    def __init__(
        self,
        gate: Gate,
        calls: CallBook,
        caught_up: Callable[[str, str | None], Awaitable[None]],
        *,
        permit: bool,
    ) -> None:
        self._gate = gate
        self._calls = calls
        self._caught_up = caught_up
        self._permit = permit

    async def __call__(self, asked: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """Answer one question, in the client's words."""
        name = str(asked["tool_name"])
        try:
            return self._said(await self._judged(asked, call_id or str(asked["tool_use_id"])))
        except Exception:
            # INVARIANT: the exception's text never reaches the model, as the client would tell it
            _log.exception("claude.gate_failed", tool_name=name, tool_call_id=call_id)
            return self._said(GateAnswer(allowed=False, tell_model=tell_model_default(name)))

    async def _judged(self, asked: Any, call_id: str) -> GateAnswer:
        name, tool_input, agent_id = str(asked["tool_name"]), dict(asked["tool_input"]), asked.get("agent_id")
        await self._caught_up(call_id, agent_id)
        turn = self._calls.turn_of(call_id, agent_id) or 0
        parent = self._calls.asked(call_id, name, tool_input, agent_id).parent
        call = ToolCall(id=call_id, name=name, input=tool_input, turn=turn, parent_tool_call_id=parent)
        answer = GateAnswer(allowed=False)
        try:
            answer = await self._gate(call)
        finally:
            if not answer.allowed:
                self._calls.refused(call_id)
        if not answer.allowed and not answer.tell_model:
            return GateAnswer(allowed=False, stop=answer.stop, tell_model=tell_model_default(name))
        return answer

    def _said(self, answer: GateAnswer) -> dict[str, Any]:
        said: dict[str, Any] = {"hookEventName": "PreToolUse"}
        if not answer.allowed:
            said["permissionDecision"] = "deny"
            said["permissionDecisionReason"] = answer.tell_model
        elif self._permit:
            said["permissionDecision"] = "allow"
        if answer.allowed and answer.input is not None:
            said["updatedInput"] = answer.input
        stop = {"continue_": False, "stopReason": "stopped"} if answer.stop else {}
        return {**stop, "hookSpecificOutput": said}
