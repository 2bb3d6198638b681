"""The messages a GenAI span carries: what was sent to the model, and what it answered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ..values import parsed
from .spans import Span

_NUMBERED = re.compile(r"(?:gen_ai\.(?P<side>prompt|completion))\.(?P<n>\d+)\.(?P<field>role|content)$")


class SpanMessage(msgspec.Struct, kw_only=True):
    """One message: text, calls it asks for (id, name, arguments), results it brings (id, value)."""

    role: str
    text: str = ""
    calls: list[tuple[str, str, Any]] = []
    results: list[tuple[str, Any]] = []


def sent(span: Span) -> list[SpanMessage]:
    """What the model was given, oldest first."""
    return _structured(span, "gen_ai.input.messages") or _numbered(span, "prompt") or _from_events(span)


def answered(span: Span) -> list[SpanMessage]:
    """What the model answered."""
    return _structured(span, "gen_ai.output.messages") or _numbered(span, "completion")


def _structured(span: Span, attribute: str) -> list[SpanMessage]:
    carriers = [span.attributes, *(attributes for _, attributes in span.events)]
    found = next((carrier[attribute] for carrier in carriers if attribute in carrier), None)
    messages = parsed(found)
    if not isinstance(messages, list):
        return []
    return [_message(message) for message in messages if isinstance(message, dict)]


def _message(message: dict[str, Any]) -> SpanMessage:
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, str):
        parts = [{"type": "text", "content": parts}]
    parts = _objects(parts)
    texts = [part.get("content", part.get("text")) for part in parts if part.get("type") == "text"]
    return SpanMessage(
        role=str(message.get("role", "")),
        text="\n".join(text for text in texts if isinstance(text, str)),
        calls=[*_calls(parts), *_older_calls(message)],
        results=[*_results(parts), *_older_results(message)],
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _calls(parts: list[dict[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    for part in parts:
        if part.get("type") == "tool_call":
            yield str(part.get("id") or ""), str(part.get("name", "")), part.get("arguments")


def _older_calls(message: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for call in _objects(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict):
            yield str(call.get("id") or ""), str(function.get("name", "")), function.get("arguments")


def _results(parts: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        if part.get("type") == "tool_call_response":
            yield str(part.get("id") or ""), part.get("response", part.get("result"))


def _older_results(message: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if message.get("tool_call_id"):
        yield str(message["tool_call_id"]), message.get("content")


def _numbered(span: Span, side: str) -> list[SpanMessage]:
    """Messages spread over attributes: `gen_ai.prompt.0.role`, `gen_ai.prompt.0.content`."""
    fields: dict[int, dict[str, str]] = {}
    for name, value in span.attributes.items():
        match = _NUMBERED.match(name)
        if match and match["side"] == side:
            fields.setdefault(int(match["n"]), {})[match["field"]] = str(value)
    return [
        SpanMessage(role=message.get("role", ""), text=message.get("content", ""))
        for _, message in sorted(fields.items())
    ]


def _from_events(span: Span) -> list[SpanMessage]:
    """Messages as span events: `gen_ai.user.message`."""
    return [
        SpanMessage(role=name.split(".")[1], text=str(attributes.get("content", "")))
        for name, attributes in span.events
        if name in ("gen_ai.user.message", "gen_ai.system.message", "gen_ai.assistant.message")
    ]
