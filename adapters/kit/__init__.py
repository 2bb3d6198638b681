"""What every adapter stands on, ours and those of third parties.

An adapter of a client that is a process starts it with `start_client`, reads it with `ByteLines` or speaks with it
through an `RpcClient`, hands events to an `EventStream`, puts calls to the gate through a `GateLink`, and ends with
`process_rungs`. One whose agent is code in this process makes it a `TaskProvider`.
docs/how-to/writing-an-adapter.md builds one.

Importing the kit imports none of its rooms: a name is looked up when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazily import lazily

if TYPE_CHECKING:
    from .byte_lines import ByteLines, EndlessLineError
    from .client_process import ClientProcess, start_client
    from .event_stream import EventStream
    from .gate import GateLink
    from .jsonable import plain
    from .jsonrpc import Peer, RpcClosedError, RpcError
    from .launch_options import allow_lists, denied, options_for, policy_parts, run_limits
    from .log import run_logger, trace_of
    from .named_object import named_object
    from .process_tree import ProcessTree, marked_environment, process_rungs
    from .rpc_client import RpcClient
    from .subprocesses import CommandResult, Subprocesses
    from .task_provider import TaskProvider, at_work, provider_error
    from .tasks import helpers
    from .transcript import conversation, retold, text_of
    from .uncountable_limits import uncounted
    from .usage_figures import check_growth, dollars, tokens

__all__ = [
    "ByteLines",
    "ClientProcess",
    "CommandResult",
    "EndlessLineError",
    "EventStream",
    "GateLink",
    "Peer",
    "ProcessTree",
    "RpcClient",
    "RpcClosedError",
    "RpcError",
    "Subprocesses",
    "TaskProvider",
    "allow_lists",
    "at_work",
    "check_growth",
    "conversation",
    "denied",
    "dollars",
    "helpers",
    "marked_environment",
    "named_object",
    "options_for",
    "plain",
    "policy_parts",
    "process_rungs",
    "provider_error",
    "retold",
    "run_limits",
    "run_logger",
    "start_client",
    "text_of",
    "tokens",
    "trace_of",
    "uncounted",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "byte_lines": "ByteLines EndlessLineError",
        "client_process": "ClientProcess start_client",
        "event_stream": "EventStream",
        "gate": "GateLink",
        "jsonable": "plain",
        "jsonrpc": "Peer RpcClosedError RpcError",
        "launch_options": "allow_lists denied options_for policy_parts run_limits",
        "log": "run_logger trace_of",
        "named_object": "named_object",
        "process_tree": "ProcessTree marked_environment process_rungs",
        "rpc_client": "RpcClient",
        "subprocesses": "CommandResult Subprocesses",
        "task_provider": "TaskProvider at_work provider_error",
        "tasks": "helpers",
        "transcript": "conversation retold text_of",
        "uncountable_limits": "uncounted",
        "usage_figures": "check_growth dollars tokens",
    },
)

ROOMS = (
    "printable",  # text of agents as a terminal may show it
    "jsonable",  # values of a program as records hold them
    "http_server",  # an HTTP server of this process
    "launch_options",  # the parts of a policy by name
    "task_provider",  # a provider whose agent is a task of this process
    "named_object",  # Python objects by name
    "rpc_client",  # a provider's client that is spoken with in JSON-RPC on its pipes
    "client_process",  # a provider's client: a process on three pipes, ended with everything it started
    "jsonrpc",  # one end of a JSON-RPC conversation over lines of JSON
    "byte_lines",  # lines out of a stream of bytes, bounded in memory
    "remains",  # what a lost run left running
    "subprocesses",  # shell commands that really run, bounded
    "process_tree",  # ends whole process trees; the last rungs of the cancel ladder
    "trace_context",  # the trace a run's processes are told of
    "guarded",  # commands below a guardian, so that nothing they start can leave
    "guardian",  # the program that adopts orphans and ends them
    "gate",  # how the calls of a client reach the gate
    "log",  # where adapters log
    "event_stream",  # the events of an adapter whose work runs in tasks of its own
    "whole_file",  # a file that is written as a whole, or not at all
    "surroundings",  # where a client works
    "tasks",  # helper tasks beside a body of code that must not notice them
    "transcript",  # a session's events as a model would be shown them
    "usage_figures",  # what a client says was used
    "uncountable_limits",  # limits that somebody who sees tool calls only cannot count
)
"""Top first: each imports only those below it."""
