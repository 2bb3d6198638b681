"""What the formats have in common: a call's input, a result's output, a message's text."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.policies.stream.events import Event, MessageReceived, MessageSent

_anything = msgspec.json.Decoder()


def parsed(value: Any) -> Any:
    """A text that is JSON as the value it holds; anything else as it came."""
    if not isinstance(value, str):
        return value
    try:
        return _anything.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return value


def tool_input(value: Any) -> dict[str, Any]:
    """A call's arguments as an object: what is none (free text, a list) stands under `input`."""
    found = parsed(value)
    if isinstance(found, dict):
        return found
    return {} if found is None or found == "" else {"input": value}


def text_of(content: Any) -> Any:
    """The text of content blocks, joined by line ends; content without any text as it came."""
    if not isinstance(content, list):
        return content
    blocks = (block for block in content if isinstance(block, dict))
    texts = [text for block in blocks if isinstance(text := block.get("text"), str)]
    return "\n".join(texts) if texts else content


def message_kind(role: str) -> type[Event]:
    """Assistants are received from; everybody else is sent to the model."""
    return MessageReceived if role == "assistant" else MessageSent
