"""Everything that touches the world: agents' clients, stores, the command line.

Importing an adapter imports nothing of the others: the names below are looked up when they are used.
"""

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .agents.acp.adapter import AcpAdapter
    from .agents.amp.adapter import AmpAdapter
    from .agents.claude.adapter import ClaudeAdapter
    from .agents.codex.adapter import CodexAdapter
    from .agents.fallback import FallbackAdapter
    from .agents.loop.adapter import FunctionAdapter, supervise
    from .agents.loop.gate import LoopGate, ToolRefused
    from .agents.openai_agents.adapter import OpenAIAgentsAdapter
    from .agents.pydantic_ai.adapter import PydanticAIAdapter
    from .agents.replay import ReplayAdapter
    from .agents.scripted.adapter import ScriptedAdapter
    from .agents.shell import ShellAdapter

__all__ = ["AcpAdapter", "AmpAdapter", "ClaudeAdapter", "CodexAdapter", "FallbackAdapter", "FunctionAdapter"]
__all__ += ["LoopGate", "OpenAIAgentsAdapter", "PydanticAIAdapter", "ReplayAdapter", "ScriptedAdapter"]
__all__ += ["ShellAdapter", "ToolRefused", "supervise"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "agents.acp.adapter": "AcpAdapter",
        "agents.amp.adapter": "AmpAdapter",
        "agents.claude.adapter": "ClaudeAdapter",
        "agents.codex.adapter": "CodexAdapter",
        "agents.fallback": "FallbackAdapter",
        "agents.loop.adapter": "FunctionAdapter supervise",
        "agents.loop.gate": "LoopGate ToolRefused",
        "agents.openai_agents.adapter": "OpenAIAgentsAdapter",
        "agents.pydantic_ai.adapter": "PydanticAIAdapter",
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
