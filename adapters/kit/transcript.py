"""A session's events as the conversation a model would be shown: what was said, asked for and answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from proctor.policies.events import (
    Event,
    MessageReceived,
    MessageSent,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
    ToolEvent,
    ToolOutcome,
)


class Said(msgspec.Struct, kw_only=True):
    """A message of a user or the system."""

    role: str
    text: str


class TranscriptCall(msgspec.Struct, kw_only=True):
    """One call of a response, with what came of it as the model is told."""

    id: str
    name: str
    input: dict[str, Any]
    result: str | None = None


class Response(msgspec.Struct, kw_only=True):
    """One response of the model: its texts, then its calls."""

    texts: list[str] = []
    calls: list[TranscriptCall] = []
    turn: int = 0


Part: TypeAlias = Said | Response

_SO_FAR: Final = "This conversation continues an earlier one, which follows, one part a line:"
_NOW: Final = "The new message:"


def conversation(transcript: Iterable[Event]) -> list[Part]:
    """The parts of a conversation in their order.

    Calls of sub-agents and calls without an outcome are left out, so that each call has its result.
    """
    parts: list[Part] = []
    calls: dict[tuple[str, str], TranscriptCall] = {}
    for event in transcript:
        if isinstance(event, MessageSent):
            parts.append(Said(role=event.role, text=text_of(event.content)))
        elif isinstance(event, MessageReceived):
            _response(parts, None).texts.append(text_of(event.content))
        elif isinstance(event, (ToolCallRequested, ToolCallStarted)):
            _take_call(parts, calls, event)
        elif isinstance(event, ToolOutcome):
            call = calls.get((event.run_id, event.tool_call_id))
            if call is not None:
                call.result = _result(event)
    return [part for part in map(_settled, parts) if part is not None]


def retold(transcript: Iterable[Event], prompt: str) -> str:
    """`prompt` after the conversation so far, `transcript`, for a client that can be given nothing but a prompt.

    Each part is a line of JSON, so that no tool's output reads as somebody's words.
    """
    parts = conversation(transcript)
    if not parts:
        return prompt
    lines = "\n".join(msgspec.json.encode(part).decode() for part in parts)
    return f"{_SO_FAR}\n\n{lines}\n\n{_NOW}\n\n{prompt}"


def text_of(content: Any) -> str:
    """The text of a message's content: text, or the texts of its blocks."""
    if isinstance(content, list):
        found = (block.get("text") for block in content if isinstance(block, dict))
        return "\n".join(text for text in found if isinstance(text, str))
    return content if isinstance(content, str) else as_text(content)


def as_text(value: Any) -> str:
    """A value as a model is shown it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _take_call(parts: list[Part], calls: dict[tuple[str, str], TranscriptCall], event: ToolEvent) -> None:
    key = (event.run_id, event.tool_call_id)
    if event.parent_tool_call_id is not None:
        return
    if key in calls:
        calls[key].input = event.tool_input
        return
    calls[key] = TranscriptCall(id=event.tool_call_id, name=event.tool_name, input=event.tool_input)
    _response(parts, event.turn).calls.append(calls[key])


def _response(parts: list[Part], turn: int | None) -> Response:
    """The response that goes on; `turn` is a call's, None stands for a text, which begins a response."""
    last = parts[-1] if parts else None
    if isinstance(last, Response):
        if turn is None and not last.calls:
            return last
        if turn is not None and (not last.calls or last.turn == turn):
            last.turn = turn
            return last
    parts.append(Response(turn=turn or 0))
    return parts[-1]  # type: ignore[return-value]


def _result(event: ToolOutcome) -> str | None:
    if isinstance(event, ToolCallCompleted):
        return as_text(event.tool_output)
    if isinstance(event, ToolCallFailed):
        return as_text(event.error)
    return event.tell_model or "" if isinstance(event, ToolCallDenied) else None


def _settled(part: Part) -> Part | None:
    if isinstance(part, Said):
        return part
    part.calls = [call for call in part.calls if call.result is not None]
    part.texts = [text for text in part.texts if text]
    return part if part.texts or part.calls else None
