"""Everything that touches the world: agents' clients, stores, the command line.

Importing an adapter imports nothing of the others: the names below are looked up when they are used.
A file imports only files listed above it; folders count as rows.

    processes          ends whole process trees; the last rungs of the cancel ladder
    policy_parts       the parts of a policy by name
    event_stream       the events of an adapter whose work runs in tasks of its own
    strict_gate        the gate as an adapter asks it that has no other way to hear of its failure
    plain              values of a program as records hold them
    named_object       Python objects by name
    commands           shell commands that really run, bounded
    local_work         a provider that works in this process and runs commands
    scripted_steps     what a scripted agent may do
    scripted_reading   script text -> steps, every problem with its place
    scripted_tools     the tools of a scripted agent
    scripted_agent     plays a script
    scripted           ScriptedAdapter: an agent that follows a script
    shell_words        a word of a command line -> its text, if that is known before it runs
    shell_hazards      places where bash runs text that nobody can see in a line
    shell_wrappers     commands that run other commands
    shell_parse        a command line -> every simple command in it
    shell_agent        judges and runs one command line
    shell              ShellAdapter: command lines as runs
    traces/            recorded sessions of agents
    evaluate/          recorded sessions judged under a policy, and reports of it
    drawing/           policies as SVG pictures
    replay             ReplayAdapter: a recorded stream as a run
    byte_lines         lines out of a stream of bytes, bounded in memory
    client_process     a provider's client: a process on three pipes, ended with everything it started
    jsonrpc            one end of a JSON-RPC conversation over lines of JSON
    rpc_client         a provider's client that is spoken with in JSON-RPC on its pipes
    background         helper tasks beside a body of code that must not notice them
    conversation       a session's events as a model would be shown them
    codex/             CodexAdapter: the Codex client
    claude/            ClaudeAdapter: Claude Code
    acp/               AcpAdapter: any agent that speaks the Agent Client Protocol
    amp/               AmpAdapter: the Amp client
    uncounted          limits that somebody who sees tool calls only cannot count
    mcp_proxy/         a policy-enforcing proxy before any MCP server
    hook/              a person's own Claude Code under policies
    in_process         a provider whose agent is a task of this process
    framework_calls    the outcomes of a framework's calls, and which call a sub-agent's is inside
    function/          FunctionAdapter and supervise: anybody's own agent loop
    langchain          agents of langchain and langgraph under supervise
    histories          the exact conversations of sessions that ran in this process
    framework_session  a run of an agent of any framework
    pydantic_ai/       PydanticAIAdapter: agents of pydantic-ai
    openai_agents/     OpenAIAgentsAdapter: agents of the OpenAI Agents SDK
    matrix/            what each adapter can do, as said and as shown
    registry           adapters by the names the command line knows them by
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agents.acp import AcpAdapter
    from .agents.amp import AmpAdapter
    from .agents.claude import ClaudeAdapter
    from .agents.codex import CodexAdapter
    from .agents.loop import FunctionAdapter, LoopGate, ToolRefused, supervise
    from .agents.openai_agents import OpenAIAgentsAdapter
    from .agents.pydantic_ai import PydanticAIAdapter
    from .agents.replay import ReplayAdapter
    from .agents.scripted.adapter import ScriptedAdapter
    from .agents.shell.adapter import ShellAdapter

_MODULES = {
    "AcpAdapter": "agents.acp",
    "AmpAdapter": "agents.amp",
    "ClaudeAdapter": "agents.claude",
    "CodexAdapter": "agents.codex",
    "FunctionAdapter": "agents.loop",
    "LoopGate": "agents.loop",
    "OpenAIAgentsAdapter": "agents.openai_agents",
    "PydanticAIAdapter": "agents.pydantic_ai",
    "ReplayAdapter": "agents.replay",
    "ScriptedAdapter": "agents.scripted.adapter",
    "ShellAdapter": "agents.shell.adapter",
    "ToolRefused": "agents.loop",
    "supervise": "agents.loop",
}

__all__ = [
    "AcpAdapter",
    "AmpAdapter",
    "ClaudeAdapter",
    "CodexAdapter",
    "FunctionAdapter",
    "LoopGate",
    "OpenAIAgentsAdapter",
    "PydanticAIAdapter",
    "ReplayAdapter",
    "ScriptedAdapter",
    "ShellAdapter",
    "ToolRefused",
    "supervise",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(importlib.import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
