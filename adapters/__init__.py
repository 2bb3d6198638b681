"""Everything that touches the world: agents' clients, stores, the command line.

Importing an adapter imports nothing of the others: the names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

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
    from .agents.shell import ShellAdapter

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
        "agents.shell": "ShellAdapter",
    },
)

ROOMS = (
    "cli",
    "hooks",
    "fleet",
    "matrix",
    "mcp_proxy",
    "telemetry",
    "web",
    "drawing",
    "operations",
    "stores",
    "evaluate",
    "suggest",
    "traces",
    "agents",
    "kit",
)
"""Top first: each imports only those below it."""
