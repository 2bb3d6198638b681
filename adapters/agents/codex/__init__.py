"""The Codex client, driven through its own `codex app-server`."""

ROOMS = (
    "adapter",
    "session",
    "approvals",
    "live_rollout",
    "sandbox",
    "connection",
    "translation",
    "items",
    "session_log",
)
"""Top first: each imports only those below it."""
