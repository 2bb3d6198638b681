"""The Codex client, driven through its own `codex app-server`.

A file imports only files listed below it.

    adapter         CodexAdapter: what it can do, how it starts
    session         one running thread: gate answers, events, the cancel ladder
    connection      the client's process and the conversation with it
    translation     what the client reports -> events
    approvals       what the client asks -> calls, and answers
    items           the client's items <-> tool names, inputs and outcomes
    compiling       policy -> launch options
    settings        the client's configuration, and what in it goes round the gate
    rollout         the client's own record, for what its requests leave out
    usage           running totals -> tokens used
"""

from .adapter import CodexAdapter

__all__ = ["CodexAdapter"]
