"""What each client calls its tools, by the portable names of what they do: one file a client."""

from __future__ import annotations

from proctor.policies.stream.tools import Tool

from . import acp, amp, claude, codex

CLIENTS: dict[str, tuple[Tool, ...]] = {
    "acp": acp.TOOLS,
    "amp": amp.TOOLS,
    "claude": claude.TOOLS,
    "claude-agent-acp": acp.TOOLS,
    "codex": codex.TOOLS,
    "codex-acp": acp.TOOLS,
    "gemini": acp.TOOLS,
    "opencode": acp.TOOLS,
}
"""The tools of the clients that are known, by the names that events have as `provider`."""


def tools_of(provider: str) -> tuple[Tool, ...]:
    """The tools of a client; none where it is not known, and a tool is what it is called."""
    return CLIENTS.get(provider.casefold(), ())


ROOMS = (
    "acp",  # agents of the Agent Client Protocol, by the kinds of their calls
    "amp",  # Amp
    "claude",  # Claude Code
    "codex",  # Codex
)
"""Top first: each imports only those below it."""
