"""What is known of each tool call of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from proctor.policies.stream.events import Event, ToolCallCompleted, ToolCallFailed, ToolCallStarted


class KnownCall(msgspec.Struct, kw_only=True):
    """One call: what asked for it and what the gate said."""

    name: str = ""
    input: dict[str, Any] = {}
    turn: int = 0
    parent: str | None = None
    gated: bool = False
    refused: bool = False


class CallBook:
    """The calls of one session by id, and the sub-agents by the call that started them."""

    def __init__(self) -> None:
        self._calls: dict[str, KnownCall] = {}
        self._agents: dict[str, str] = {}

    def mentioned(self, call_id: str, name: str, *, turn: int, parent: str | None) -> KnownCall:
        """Note a call the model asked for; a sub-agent's belongs to the turn of the call that started it."""
        call = self._calls.setdefault(call_id, KnownCall())
        call.name = call.name or name
        call.parent = call.parent or parent
        call.turn = call.turn or (self._turn(parent) if parent else turn)
        return call

    def agent_started(self, agent_id: str, call_id: str) -> None:
        """Note which call started a sub-agent."""
        self._agents[agent_id] = call_id

    def turn_of(self, call_id: str, agent_id: str | None) -> int | None:
        """The turn a call belongs to, or None while the stream has not told."""
        if agent_id is not None:
            started_by = self._agents.get(agent_id)
            return None if started_by is None else self._turn(started_by)
        known = self._calls.get(call_id)
        return known.turn if known is not None else None

    def asked(self, call_id: str, name: str, tool_input: dict[str, Any], agent_id: str | None) -> KnownCall:
        """The gate is asked for a call."""
        parent = self._agents.get(agent_id) if agent_id else None
        call = self.mentioned(call_id, name, turn=0, parent=parent)
        call.gated, call.input = True, tool_input
        return call

    def refused(self, call_id: str) -> None:
        """The gate refused a call: what the client tells the model of it is no outcome."""
        self._calls[call_id].refused = True

    def outcome(self, block: dict[str, Any]) -> Iterator[Event]:
        """The events of a tool result.

        A call that ran without asking the gate is reported as started first, so that it is judged.
        """
        call_id = str(block.get("tool_use_id"))
        call = self._calls.get(call_id, KnownCall())
        if call.refused:
            return
        content = plain_content(block.get("content"))
        if block.get("is_error"):
            yield ToolCallFailed(tool_call_id=call_id, tool_name=call.name, error=content)
            return
        if not call.gated:
            call.gated = True
            yield ToolCallStarted(
                tool_call_id=call_id,
                tool_name=call.name,
                tool_input=call.input,
                turn=call.turn,
                parent_tool_call_id=call.parent,
            )
        yield ToolCallCompleted(tool_call_id=call_id, tool_name=call.name, tool_output=content)

    def _turn(self, call_id: str) -> int:
        known = self._calls.get(call_id)
        return known.turn if known is not None else 0


def plain_content(content: Any) -> Any:
    """A result's content: its text where it is nothing but one text, else the blocks as they came."""
    match content:
        case [{"type": "text", "text": str(text)}]:
            return text
        case _:
            return content
