"""The Codex client, driven through its own `codex app-server`."""

from .adapter import CodexAdapter

__all__ = ["CodexAdapter"]

ROOMS = (
    "adapter",  # CodexAdapter: what it can do, how it starts
    "options",  # policy -> launch options
    "session",  # one running thread: its events, its one turn and its end, the cancel ladder
    "approvals",  # what the client asks before it acts, put to the gate
    "rollout",  # the calls that run, and the client's own record of them
    "sandboxing",  # the sandbox of a run, and whether the client took the terms
    "client",  # the client on this machine, its start, and the conversation with it
    "settings",  # the client's configuration, and what in it goes round the gate
    "translation",  # what the client reports -> events
    "threads",  # which thread is whose, and which call started it
    "items",  # the client's items <-> tool names, inputs and outcomes
    "usage",  # running totals -> tokens used
)
"""Top first: each imports only those below it."""
