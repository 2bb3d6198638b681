"""The base of every adapter, ours and those of third parties.

An adapter of a client that is a process starts it with `start_client` and makes its session a `ClientSession`, which
has its stream of events, its gate and its cancel steps. The session reads the client with `ByteLines`, or is an
`RpcSession` that speaks JSON-RPC through an `RpcClient`; a `CallBook` keeps its calls. An adapter whose agent is code
in this process makes it a `TaskProvider`.
docs/extend/adapter.md builds one.

Importing the kit imports none of its files: each is imported when one of its names is first used.
"""

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .call_book import CallBook, ClientCall, Turns, check_growth, dollars, tokens
    from .client_process import ClientProcess, RpcClient, start_client
    from .gate import CallGate, EventStream, run_logger, trace_of
    from .jsonrpc import ByteLines, EndlessLineError, Peer, RpcClosedError, RpcError, RpcHandler
    from .launch_options import allow_lists, denied, options_for, policy_parts, run_limits, uncounted
    from .process_tree import ProcessTree, marked_environment, process_cancel_steps
    from .provider import ClientSession, RpcSession, TaskProvider, at_work, helpers, provider_error
    from .subprocesses import CommandResult, Subprocesses
    from .transcript import MessageCall, conversation, extract_calls, replay_prompt, text_of
    from .values import import_object, to_jsonable

__all__ = ["ByteLines", "CallBook", "CallGate", "ClientCall", "ClientProcess", "ClientSession", "CommandResult"]
__all__ += ["EndlessLineError", "EventStream", "MessageCall", "Peer", "ProcessTree", "RpcClient", "RpcClosedError"]
__all__ += ["RpcError", "RpcHandler", "RpcSession", "Subprocesses", "TaskProvider", "Turns", "allow_lists", "at_work"]
__all__ += ["check_growth", "conversation", "denied", "dollars", "extract_calls", "helpers", "import_object"]
__all__ += ["marked_environment", "options_for", "policy_parts", "process_cancel_steps", "provider_error"]
__all__ += ["replay_prompt", "run_limits", "run_logger", "start_client", "text_of", "to_jsonable", "tokens"]
__all__ += ["trace_of", "uncounted"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "call_book": "CallBook ClientCall Turns check_growth dollars tokens",
        "client_process": "ClientProcess RpcClient start_client",
        "gate": "EventStream CallGate run_logger trace_of",
        "jsonrpc": "ByteLines EndlessLineError Peer RpcClosedError RpcError RpcHandler",
        "launch_options": "allow_lists denied options_for policy_parts run_limits uncounted",
        "process_tree": "ProcessTree marked_environment process_cancel_steps",
        "provider": "ClientSession RpcSession TaskProvider at_work helpers provider_error",
        "subprocesses": "CommandResult Subprocesses",
        "transcript": "MessageCall conversation extract_calls replay_prompt text_of",
        "values": "import_object to_jsonable",
    },
)

ROOMS = (
    "provider",
    "client_process",
    "call_book",
    "client_tools",
    "http_server",
    "launch_options",
    "display_text",
    "transcript",
    "usage_log",
    "trace_lines",
    "function_tools",
    "gate",
    "jsonrpc",
    "subprocesses",
    "values",
    "process_tree",
    "guardian",
)
"""Top first: each imports only those below it."""
