"""Any agent that speaks the Agent Client Protocol (ACP), driven over its standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazy_imports import lazily

from ...kit.agent_spec import AgentSpec

if TYPE_CHECKING:
    from .adapter import AcpAdapter
    from .connection import AgentTraits

__all__ = ["AGENTS", "SPEC", "AcpAdapter", "AgentTraits"]

SPEC = AgentSpec(
    name="acp",
    about="any other ACP agent",
    adapter="proctor.adapters.agents.acp:AcpAdapter",
    probed=True,
)


def _agent(program: str, about: str, package: str, first_run: str | None = None) -> AgentSpec:
    """An agent that npm installs."""
    install = f"npm install -g {package}"
    return AgentSpec(f"acp: {program}", about, None, None, install, (), (program,), program, first_run=first_run)


AGENTS = (
    _agent("opencode", "opencode over ACP", "opencode-ai", "acp {task} -- opencode acp"),
    _agent("gemini", "Gemini CLI over ACP", "@google/gemini-cli", "acp {task} -- gemini --acp"),
    _agent("claude-agent-acp", "Claude Code over ACP", "@agentclientprotocol/claude-agent-acp"),
    _agent("codex-acp", "Codex over ACP", "@agentclientprotocol/codex-acp"),
)
"""Agents of which more is known than that they speak the protocol."""

__getattr__, __dir__ = lazily(__name__, {"adapter": "AcpAdapter", "connection": "AgentTraits"})

ROOMS = (
    "adapter",
    "probe",
    "session",
    "connection",
    "translation",
)
"""Top first: each imports only those below it."""
