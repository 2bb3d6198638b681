"""What each client calls its tools, by the portable names of what they do: one file a client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proctor.policies.stream.events import Event, RunStarted, ToolCallRequested, ToolCallStarted
from proctor.policies.stream.tools import Tool, recorded
from proctor.policies.values.globs import matcher

from . import acp, amp, anywhere, claude, codex, frameworks

CLIENTS: dict[str, tuple[Tool, ...]] = {
    "acp": acp.TOOLS,
    "amp": amp.TOOLS,
    "claude": claude.TOOLS,
    "claude-agent-acp": acp.TOOLS,
    "codex": codex.TOOLS,
    "codex-acp": acp.TOOLS,
    "gemini": acp.TOOLS,
    "openai-agents": frameworks.OPENAI_AGENTS,
    "opencode": acp.TOOLS,
    "pydantic-ai": frameworks.PYDANTIC_AI,
}
"""The tools of the clients that are known, by the names that events have as `provider`."""


_OF_MANY_CLIENTS = ("sessions", "otel")
_OF_DEVELOPERS = ("function", "openai-agents", "pydantic-ai")
"""Whose agents have tools of their developers', which go by what such tools mostly are."""

KNOWN = frozenset(
    name.casefold() for tools in CLIENTS.values() for each in tools for name in (each.name, *each.synonyms)
)
"""What any of them calls a tool."""


def tools_of(provider: str) -> tuple[Tool, ...]:
    """The tools of a client; empty where the client is not known: each tool then goes by its own name only."""
    return CLIENTS.get(provider.casefold(), ())


def meant(tools: Iterable[Tool], pattern: str) -> tuple[str, ...]:
    """The client's names of the tools all of whose calls go by a name that a pattern matches."""
    matches = matcher([pattern])
    return tuple(each.name for each in tools if any(map(matches, (each.name, *each.synonyms, *each.acts))))


def recorded_tools(events: Sequence[Event], format: str = "") -> tuple[Tool, ...]:
    """The tools of the client whose session these events are: as the record has them, else as is known of it.

    A record in a `format` that many clients write (`sessions`, `otel`) is read by what tools are mostly called, and
    so are the tools of developers, as they are live.
    """
    for event in events:
        if isinstance(event, RunStarted) and (written := event.metadata.get("portable_tools")):
            return _with_others(recorded(written), events, event.provider)
    found = next(((event.provider, tools) for event in events if (tools := tools_of(event.provider))), None)
    if found is not None:
        return _with_others(found[1], events, found[0])
    if any(event.provider.casefold() in _OF_DEVELOPERS for event in events[:1]):
        return _called(events, frameworks.MOSTLY)
    return _called(events, anywhere.TOOLS) if format in _OF_MANY_CLIENTS else ()


def _with_others(tools: tuple[Tool, ...], events: Sequence[Event], provider: str) -> tuple[Tool, ...]:
    if provider.casefold() not in _OF_DEVELOPERS:
        return tools
    names = {each.name.casefold() for each in tools}
    return (*tools, *(each for each in _called(events, frameworks.MOSTLY) if each.name.casefold() not in names))


def _called(events: Sequence[Event], tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Those of the tools that are called; the others need not be looked up."""
    names = {event.tool_name.casefold() for event in events if isinstance(event, ToolCallRequested | ToolCallStarted)}
    return tuple(each for each in tools if each.name.casefold() in names)


def offering(tools: tuple[Tool, ...], names: Sequence[str] | None) -> dict[str, Any]:
    """What capabilities say of a client's tools: just those of these names, or that there may be others."""
    if names is None:
        return {"tools": tools or None, "other_tools": True, "elsewhere": KNOWN}
    described = {each.name.casefold(): each for each in tools}
    return {"elsewhere": KNOWN, "tools": tuple(described.get(name.casefold(), Tool(name=name)) for name in names)}


ROOMS = (
    "anywhere",  # what tools are mostly called
    "given",  # tools as somebody gives them: functions, tools of frameworks, schemas
    "frameworks",  # agents of frameworks: what these bring, and the developer's own by name and parameters
    "acp",  # agents of the Agent Client Protocol, by the kinds of their calls
    "amp",  # Amp
    "claude",  # Claude Code
    "codex",  # Codex
)
"""Top first: each imports only those below it."""
