"""Everything that touches the world: agents' clients, stores, the command line.

Importing an adapter imports nothing of the others: the names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazily import lazily

if TYPE_CHECKING:
    from .agents.acp import AcpAdapter
    from .agents.amp import AmpAdapter
    from .agents.claude import ClaudeAdapter
    from .agents.codex import CodexAdapter
    from .agents.fallback import FallbackAdapter
    from .agents.loop import FunctionAdapter, LoopGate, ToolRefused, supervise
    from .agents.openai_agents import OpenAIAgentsAdapter
    from .agents.pydantic_ai import PydanticAIAdapter
    from .agents.replay import ReplayAdapter
    from .agents.scripted.adapter import ScriptedAdapter
    from .agents.shell.adapter import ShellAdapter

__all__ = [
    "AcpAdapter",
    "AmpAdapter",
    "ClaudeAdapter",
    "CodexAdapter",
    "FallbackAdapter",
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


__getattr__, __dir__ = lazily(
    __name__,
    {
        "agents.acp": "AcpAdapter",
        "agents.amp": "AmpAdapter",
        "agents.claude": "ClaudeAdapter",
        "agents.codex": "CodexAdapter",
        "agents.fallback": "FallbackAdapter",
        "agents.loop": "FunctionAdapter LoopGate ToolRefused supervise",
        "agents.openai_agents": "OpenAIAgentsAdapter",
        "agents.pydantic_ai": "PydanticAIAdapter",
        "agents.replay": "ReplayAdapter",
        "agents.scripted.adapter": "ScriptedAdapter",
        "agents.shell.adapter": "ShellAdapter",
    },
)


ROOMS = (
    "cli",  # the command line
    "web",  # the operators' page and the HTTP API
    "matrix",  # what each adapter can do, as said and as shown
    "telemetry",  # runs as OpenTelemetry spans and metrics
    "cluster",  # runs over several processes and machines: a queue in the store, workers, Ray
    "claude_hook",  # a person's own Claude Code under policies
    "mcp_proxy",  # a policy-enforcing proxy before any MCP server
    "agents",  # the agents, one folder each
    "evaluate",  # recorded sessions judged under a policy, and reports of it
    "traces",  # recorded sessions of agents
    "drawing",  # policies as SVG pictures
    "stores",  # stores
    "kit",  # what every adapter stands on, ours and those of third parties
)
"""Top first: each imports only those below it."""
