"""A session's events as the SDK's input items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from proctor.policies.stream.events import Event

from ...kit.transcript import Said, conversation


def items_of(transcript: Iterable[Event]) -> list[dict[str, Any]]:
    """The conversation in those events as the SDK's input items."""
    items: list[dict[str, Any]] = []
    for part in conversation(transcript):
        if isinstance(part, Said):
            items.append({"role": part.role, "content": part.text})
            continue
        items += [{"role": "assistant", "content": text} for text in part.texts]
        for call in part.calls:
            arguments = msgspec.json.encode(call.input).decode()
            items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
        items += [
            {"type": "function_call_output", "call_id": call.id, "output": call.result or ""} for call in part.calls
        ]
    return items
