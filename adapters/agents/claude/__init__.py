"""Claude Code, through claude-agent-sdk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazy_imports import lazily

from ...kit.agent_spec import AgentSpec

if TYPE_CHECKING:
    from .adapter import ClaudeAdapter

__all__ = ["SPEC", "ClaudeAdapter"]

SPEC = AgentSpec(
    name="claude",
    about="Claude Code",
    adapter="proctor.adapters.agents.claude:ClaudeAdapter",
    extra="claude",
    install="pip install '.[claude]'",
    modules=("claude_agent_sdk",),
    model_provider="anthropic",
    first_run="claude {task}",
    probed=True,
)

__getattr__, __dir__ = lazily(__name__, {"adapter": "ClaudeAdapter"})

ROOMS = (
    "adapter",
    "log",
    "usage_log",
    "session",
    "launch",
    "translation",
    "hooks",
)
"""Top first: each imports only those below it."""
