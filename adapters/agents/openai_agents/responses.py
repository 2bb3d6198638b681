"""A model's response as events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents.items import ModelResponse

from proctor.policies.stream.events import (
    Event,
    MessageReceived,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallStarted,
)

from ...kit.values.jsonable import plain

HOSTED = frozenset(("web_search", "file_search", "code_interpreter", "image_generation", "mcp"))
"""Calls that the model's provider has run when its response arrives."""
LOCAL = frozenset(("function", "custom_tool", "local_shell", "apply_patch"))
"""Calls that code of the caller's runs, which asks the gate itself."""
_NOT_INPUT = ("id", "type", "status", "call_id")


def usage_of(response: ModelResponse, model: str | None) -> TokenUsageUpdated | None:
    """The tokens that a response used; None if it does not say."""
    usage = response.usage
    if not usage.input_tokens and not usage.output_tokens:
        return None
    return TokenUsageUpdated(
        scope="delta",
        model=model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=getattr(usage.input_tokens_details, "cached_tokens", 0) or 0,
        cache_write_tokens=getattr(usage.input_tokens_details, "cache_write_tokens", 0) or 0,
        reasoning_tokens=getattr(usage.output_tokens_details, "reasoning_tokens", 0) or 0,
    )


def events_of(
    response: ModelResponse, *, turn: int, parent: str | None, local_shell: bool = False
) -> Iterator[Event]:
    """The messages of a response, and its calls that never ask: those of hosted tools and of computers.

    `local_shell`: a `shell_call` runs on this machine, not where the model is.
    """
    for item in response.output:
        fields = plain(item)
        if not isinstance(fields, dict):
            continue
        kind = str(fields.get("type", ""))
        if kind == "message":
            texts = [part.get("text") or part.get("refusal") or "" for part in fields.get("content") or ()]
            yield MessageReceived(content="\n".join(texts))
        elif kind.endswith("_call"):
            kind = kind.removesuffix("_call")
            if kind not in LOCAL and not (local_shell and kind == "shell"):
                yield from _ungated(fields, kind, turn, parent)


def _ungated(fields: dict[str, Any], kind: str, turn: int, parent: str | None) -> Iterator[Event]:
    call_id = str(fields.get("call_id") or fields.get("id"))
    name = str(fields["name"]) if kind == "mcp" and fields.get("name") else kind
    given = {key: value for key, value in fields.items() if key not in _NOT_INPUT and value is not None}
    yield ToolCallStarted(
        tool_call_id=call_id, tool_name=name, tool_input=given, turn=turn, parent_tool_call_id=parent
    )
    if kind in HOSTED:
        output = fields.get("output") or fields.get("results") or fields.get("result") or fields.get("status")
        yield ToolCallCompleted(tool_call_id=call_id, tool_name=name, tool_output=output)
