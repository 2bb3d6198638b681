"""Processes of clients and of commands, ended with everything they started."""

ROOMS = (
    "rpc_client",  # a provider's client that is spoken with in JSON-RPC on its pipes
    "client",  # a provider's client: a process on three pipes, ended with everything it started
    "remains",  # what a lost run left running
    "commands",  # shell commands that really run, bounded
    "process_tree",  # ends whole process trees; the last rungs of the cancel ladder
    "signals",  # one process: whether it runs, what it is, and the signals it is sent
    "trace_context",  # the trace context given to a run's processes
    "guarded",  # commands below a guardian, so that nothing they start can leave
    "guardian",  # the program that adopts orphans and ends them
    "environment",  # the home directory and the shell of a client
)
"""Top first: each imports only those below it."""
