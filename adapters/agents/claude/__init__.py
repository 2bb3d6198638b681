"""Claude Code, through claude-agent-sdk."""

ROOMS = ("adapter", "session", "launch", "translation", "session_log", "hooks")
"""Top first: each imports only those below it."""
