"""The Codex client, driven through its own `codex app-server`."""

ROOMS = (
    "adapter",
    "session",
    "approvals",
    "live_rollout",
    "session_log",
    "sandbox",
    "connection",
    "translation",
    "items",
)
"""Top first: each imports only those below it."""
