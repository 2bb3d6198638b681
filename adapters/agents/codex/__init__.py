"""The Codex client, driven through its own `codex app-server`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazy_imports import lazily

from ...kit.agent_spec import AgentSpec

if TYPE_CHECKING:
    from .adapter import CodexAdapter

__all__ = ["SPEC", "CodexAdapter"]

SPEC = AgentSpec(
    name="codex",
    about="Codex",
    adapter="proctor.adapters.agents.codex:CodexAdapter",
    extra="codex",
    install="pip install '.[codex]'",
    modules=("codex_cli_bin",),
    programs=("codex",),
    model_provider="openai",
    first_run="codex {task}",
    probed=True,
)

__getattr__, __dir__ = lazily(__name__, {"adapter": "CodexAdapter"})

ROOMS = (
    "adapter",
    "session",
    "approvals",
    "log",
    "rollout",
    "sandbox",
    "connection",
    "translation",
    "items",
)
"""Top first: each imports only those below it."""
