"""The Codex client, driven through its own `codex app-server`.

A file imports only files listed above it.

    usage           running totals -> tokens used
    rollout         the client's own record, for what its requests leave out
    items           the client's items <-> tool names and inputs
    outcomes        how the client's items ended
    settings        the client's configuration, and what in it goes round the gate
    compiling       policy -> launch options
    threads         which thread is whose, and which call started it
    approvals       what the client asks -> calls, and answers
    translation     what the client reports -> events
    running         the calls that run, and how each of them ends
    sandboxing      the sandbox of a run, as the client holds it
    starting        clients that share a home start one after another
    connection      the client's process and the conversation with it
    installed       where the client is, and whether it works
    terms           whether the client took the terms of the run
    turn            the one turn of a run, and its interrupt
    questions       what the client asks, put to the gate
    session         one running thread: its events, its end, the cancel ladder
    adapter         CodexAdapter: what it can do, how it starts
"""

from .adapter import CodexAdapter

__all__ = ["CodexAdapter"]
