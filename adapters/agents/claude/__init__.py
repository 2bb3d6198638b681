"""Claude Code, through claude-agent-sdk."""

ROOMS = (
    "adapter",
    "session_log",
    "session",
    "launch",
    "translation",
    "hooks",
)
"""Top first: each imports only those below it."""
