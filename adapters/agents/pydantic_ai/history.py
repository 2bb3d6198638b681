"""A session's events as message history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from proctor.policies.stream.events import Event

from ...kit.transcript import Response, Said, conversation


def messages_of(transcript: Sequence[Event]) -> list[ModelMessage]:
    """The conversation in those events as the framework's messages."""
    messages: list[ModelMessage] = []
    for part in conversation(transcript):
        if isinstance(part, Said):
            prompt = SystemPromptPart(part.text) if part.role == "system" else UserPromptPart(part.text)
            messages.append(ModelRequest(parts=[prompt]))
        else:
            messages.extend(_exchange(part))
    return messages


def _exchange(response: Response) -> list[ModelMessage]:
    parts: list[Any] = [TextPart(text) for text in response.texts]
    parts += [ToolCallPart(call.name, call.input, tool_call_id=call.id) for call in response.calls]
    returns = [
        ToolReturnPart(tool_name=call.name, content=call.result, tool_call_id=call.id) for call in response.calls
    ]
    answered: list[ModelMessage] = [ModelRequest(parts=returns)] if returns else []
    return [ModelResponse(parts=parts), *answered]
