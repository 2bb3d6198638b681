"""The Codex client, driven through its own `codex app-server`."""

from .adapter import CodexAdapter

__all__ = ["CodexAdapter"]

ROOMS = (
    "adapter",  # CodexAdapter: what it can do, how it starts
    "handshake_check",  # whether the client took the terms of the run
    "installed",  # where the client is, and whether it works
    "options",  # policy -> launch options
    "session",  # one running thread: its events, its end, the cancel ladder
    "questions",  # what the client asks, put to the gate
    "approvals",  # what the client asks -> calls, and answers
    "running",  # the calls that run, and how each of them ends
    "rollout",  # the client's own record, for what its requests leave out
    "sandboxing",  # the sandbox of a run, as the client holds it
    "turn",  # the one turn of a run, and its interrupt
    "connection",  # the client's process and the conversation with it
    "starting",  # clients that share a home start one after another
    "settings",  # the client's configuration, and what in it goes round the gate
    "translation",  # what the client reports -> events
    "outcomes",  # how the client's items ended
    "threads",  # which thread is whose, and which call started it
    "items",  # the client's items <-> tool names and inputs
    "usage",  # running totals -> tokens used
)
"""Top first: each imports only those below it."""
