"""Claude Code, through claude-agent-sdk."""

ROOMS = (
    "adapter",
    "log",
    "usage_log",
    "session",
    "launch",
    "translation",
    "hooks",
)
"""Top first: each imports only those below it."""
