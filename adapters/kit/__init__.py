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
    from .event_stream import EventStream
    from .gate import GateLink
    from .launch_options import allow_lists, denied, options_for, policy_parts, run_limits
    from .log import run_logger, trace_of
    from .message_calls import MessageCall, extract_calls
    from .processes.client import ClientProcess, start_client
    from .processes.commands import CommandResult, Subprocesses
    from .processes.process_tree import ProcessTree, marked_environment, process_rungs
    from .processes.rpc_client import RpcClient
    from .task_provider import TaskProvider, at_work, provider_error
    from .tasks import helpers
    from .transcript import conversation, retold, text_of
    from .uncountable_limits import uncounted
    from .usage_figures import check_growth, dollars, tokens
    from .values.jsonable import plain
    from .values.named_object import named_object
    from .wire.byte_lines import ByteLines, EndlessLineError
    from .wire.jsonrpc import Peer, RpcClosedError, RpcError

__all__ = [
    "ByteLines",
    "ClientProcess",
    "CommandResult",
    "EndlessLineError",
    "EventStream",
    "GateLink",
    "MessageCall",
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
    "extract_calls",
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
        "wire.byte_lines": "ByteLines EndlessLineError",
        "processes.client": "ClientProcess start_client",
        "event_stream": "EventStream",
        "gate": "GateLink",
        "values.jsonable": "plain",
        "wire.jsonrpc": "Peer RpcClosedError RpcError",
        "launch_options": "allow_lists denied options_for policy_parts run_limits",
        "message_calls": "MessageCall extract_calls",
        "log": "run_logger trace_of",
        "values.named_object": "named_object",
        "processes.process_tree": "ProcessTree marked_environment process_rungs",
        "processes.rpc_client": "RpcClient",
        "processes.commands": "CommandResult Subprocesses",
        "task_provider": "TaskProvider at_work provider_error",
        "tasks": "helpers",
        "transcript": "conversation retold text_of",
        "uncountable_limits": "uncounted",
        "usage_figures": "check_growth dollars tokens",
    },
)

ROOMS = (
    "tool_names",  # what each client calls its tools
    "message_calls",  # the calls in a framework's list of messages
    "values",  # values by name, as records hold them, as a terminal shows them
    "launch_options",  # the parts of a policy by name
    "task_provider",  # a provider whose agent is a task of this process
    "processes",  # clients and commands as processes, ended with everything they started
    "wire",  # lines, JSON-RPC and HTTP over pipes and sockets
    "gate",  # how the calls of a client reach the gate
    "log",  # where adapters log
    "event_stream",  # the events of an adapter whose work runs in tasks of its own
    "whole_file",  # a file that is written as a whole, or not at all
    "tasks",  # helper tasks beside a body of code that must not notice them
    "transcript",  # a session's events as a model would be shown them
    "usage_figures",  # what a client says was used
    "uncountable_limits",  # limits that somebody who sees tool calls only cannot count
)
"""Top first: each imports only those below it."""
