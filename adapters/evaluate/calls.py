"""Calls and inputs as a line of text shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.adapters.kit.values.printable import printable
from proctor.policies.stream.events import Event, ToolCallDenied, ToolCallFailed, ToolCallRequested, ToolCallStarted

_LONGEST = 40
_encoder = msgspec.json.Encoder()


class CallLine(msgspec.Struct, kw_only=True):
    """One call of a session: where it stands in it (from 1), what it was, what became of it."""

    position: int
    seq: int
    id: str
    name: str
    input: dict[str, Any]
    fate: str = ""

    @property
    def text(self) -> str:
        """The call as it would be written in a program, long arguments cut."""
        arguments = ", ".join(f"{name}={_short(value)}" for name, value in self.input.items())
        return f"{printable(self.name)}({printable(arguments)})"


def call_lines(events: list[Event]) -> list[CallLine]:
    """The calls of a session in order, each once."""
    lines: dict[str, CallLine] = {}
    for event in events:
        if isinstance(event, ToolCallRequested | ToolCallStarted):
            line = lines.get(event.tool_call_id)
            if line is None:
                line = lines[event.tool_call_id] = CallLine(
                    position=len(lines) + 1,
                    seq=event.seq,
                    id=event.tool_call_id,
                    name=event.tool_name,
                    input=event.tool_input,
                )
            line.fate = "never ran" if isinstance(event, ToolCallRequested) else ""
            line.input = event.tool_input
        elif isinstance(event, ToolCallFailed | ToolCallDenied) and event.tool_call_id in lines:
            lines[event.tool_call_id].fate = "failed" if isinstance(event, ToolCallFailed) else "denied"
    return list(lines.values())


def _short(value: Any) -> str:
    text = _encoder.encode(value).decode(errors="replace")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
