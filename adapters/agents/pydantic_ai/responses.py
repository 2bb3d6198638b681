"""A model's response as events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_ai.messages import ModelResponse, NativeToolCallPart, NativeToolReturnPart, TextPart, ThinkingPart

from proctor.policies.stream.events import Event, MessageReceived, ToolCallCompleted, ToolCallStarted

from ...kit.values.jsonable import plain


def events_of(response: ModelResponse, turn: int) -> Iterator[Event]:
    """The messages of a response, and the calls that the model's provider ran itself, which nobody could hold."""
    blocks = list(_blocks(response))
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if blocks:
        yield MessageReceived(content="\n".join(texts) if len(texts) == len(blocks) else blocks)
    for part in response.parts:
        if isinstance(part, NativeToolCallPart):
            yield ToolCallStarted(
                tool_call_id=part.tool_call_id,
                tool_name=part.tool_name,
                tool_input=plain(part.args_as_dict()),
                turn=turn,
            )
        elif isinstance(part, NativeToolReturnPart):
            yield ToolCallCompleted(
                tool_call_id=part.tool_call_id, tool_name=part.tool_name, tool_output=plain(part.content)
            )


def _blocks(response: ModelResponse) -> Iterator[dict[str, Any]]:
    for part in response.parts:
        if isinstance(part, TextPart) and part.content:
            yield {"type": "text", "text": part.content}
        elif isinstance(part, ThinkingPart) and part.content:
            yield {"type": "thinking", "thinking": part.content}
