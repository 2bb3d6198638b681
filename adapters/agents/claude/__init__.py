"""Claude Code, through claude-agent-sdk."""

from .adapter import ClaudeAdapter

__all__ = ["ClaudeAdapter"]

ROOMS = (
    "adapter",  # ClaudeAdapter
    "credentials",  # whether the client could sign in
    "session",  # one running client
    "failures",  # the SDK's exceptions as ours
    "launching",  # the caller's options, tightened, as the SDK takes them
    "hooks",  # the client's questions about each call, answered by the gate
    "usage",  # the client's running totals as usage events
    "options",  # a policy as launch options
    "sdk_internals",  # what the SDK does not show: raw records, live totals
    "translation",  # the client's records as events
    "calls",  # what is known of each tool call
    "names",  # the client's own tool names, and which of them a pattern means
)
"""Top first: each imports only those below it."""
