"""What every adapter stands on, ours and those of third parties."""

ROOMS = (
    "jsonable",  # values of a program as records hold them
    "launch_options",  # the parts of a policy by name
    "local_work",  # a provider that works in this process and runs commands
    "named_object",  # Python objects by name
    "rpc_client",  # a provider's client that is spoken with in JSON-RPC on its pipes
    "client_process",  # a provider's client: a process on three pipes, ended with everything it started
    "jsonrpc",  # one end of a JSON-RPC conversation over lines of JSON
    "byte_lines",  # lines out of a stream of bytes, bounded in memory
    "subprocesses",  # shell commands that really run, bounded
    "process_tree",  # ends whole process trees; the last rungs of the cancel ladder
    "guarded",  # commands below a guardian, so that nothing they start can leave
    "guardian",  # the program that adopts orphans and ends them
    "task_provider",  # a provider whose agent is a task of this process
    "gate",  # how the calls of a client reach the gate
    "log",  # where adapters log
    "event_stream",  # the events of an adapter whose work runs in tasks of its own
    "tasks",  # helper tasks beside a body of code that must not notice them
    "transcript",  # a session's events as a model would be shown them
    "uncountable_limits",  # limits that somebody who sees tool calls only cannot count
)
"""Top first: each imports only those below it."""
