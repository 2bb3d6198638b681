"""What is known of each tool call of a session, from its first mention to its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proctor.policies.events import Event
from proctor.policies.events.calls import ToolCall

from ...kit.call_book import CallBook, ClientCall


class ClaudeCalls(CallBook[ClientCall]):
    """The calls of one session that are not over, and the sub-agents by the call that started them."""

    def __init__(self) -> None:
        super().__init__(ClientCall)
        self._turns: dict[str, int] = {}
        self._agents: dict[str, str] = {}
        self._refusals: dict[str, list[str]] = {}
        self._unasked: dict[str, ToolCall] = {}

    def mentioned(self, call_id: str, name: str, *, turn: int, parent: str | None) -> ClientCall:
        """Note a call the model asked for; a sub-agent's belongs to the turn of the call that started it."""
        call = self.request(call_id)
        call.name = call.name or name
        call.parent = call.parent or parent
        call.turn = call.turn or (self._turns.get(parent, 0) if parent else turn)
        self._turns[call_id] = call.turn
        return call

    def agent_started(self, agent_id: str, call_id: str) -> None:
        """Note which call started a sub-agent."""
        self._agents[agent_id] = call_id

    def turn_of(self, call_id: str, agent_id: str | None) -> int | None:
        """The turn a call belongs to, or None while the stream has not told."""
        if agent_id is not None:
            return self._turns.get(self._agents[agent_id], 0) if agent_id in self._agents else None
        call = self.get(call_id)
        return call.turn if call is not None else None

    def proposed(self, call_id: str, name: str, tool_input: dict[str, Any], agent_id: str | None) -> ClientCall:
        """The gate is asked for a call."""
        parent = self._agents.get(agent_id) if agent_id else None
        call = self.mentioned(call_id, name, turn=0, parent=parent)
        if not call.allowed:
            call.proposed, call.input = True, tool_input
        return call

    def allowed(self, call_id: str, tool_input: dict[str, Any]) -> None:
        """The gate let a call run, with this input."""
        call = self.request(call_id)
        call.allowed, call.input = True, tool_input

    def refused(self, call_id: str, tell_model: str) -> None:
        """The gate refused a call: the client gives the model these words, which are not an outcome."""
        self._refusals.setdefault(call_id, []).append(tell_model)

    def permitted(self, call_id: str | None) -> ClientCall | None:
        """The call that the gate let run under an id, or None."""
        call = self.get(call_id)
        return call if call is not None and call.allowed else None

    def outcome(self, block: dict[str, Any]) -> Iterator[Event]:
        """The events of a tool result.

        A call that ran without the gate's leave is reported as started first, so that it is judged.
        """
        call_id = str(block.get("tool_use_id"))
        content = plain_content(block.get("content"))
        failed = bool(block.get("is_error"))
        if failed and self._is_refusal(call_id, content):
            return
        call = self.drop(call_id) or ClientCall(id=call_id)
        if failed and call.name and not call.proposed:
            self._unasked[call_id] = call.asked()
        if not failed and not call.allowed:
            yield call.started()
        yield call.ended(content, failed=failed)

    def take_unasked(self, call_id: str) -> ToolCall | None:
        """A call that failed although the gate was never asked about it: the client refused it by itself."""
        return self._unasked.pop(call_id, None)

    def _is_refusal(self, call_id: str, content: Any) -> bool:
        """Whether a failure is the gate's own refusal come back; several calls may have had one id."""
        texts, call = self._refusals.get(call_id, []), self.get(call_id)
        matching = next((text for text in texts if text in str(content)), None)
        if matching is None and (not texts or (call is not None and call.allowed)):
            return False
        texts.remove(matching if matching is not None else texts[0])
        if call is not None and not call.allowed:
            self.drop(call_id)
        return True


def plain_content(content: Any) -> Any:
    """A result's content: its text where it is nothing but one text, else the blocks as they came."""
    match content:
        case [{"type": "text", "text": str(text)}]:
            return text
        case _:
            return content
