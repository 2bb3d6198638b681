"""Anybody's own agent loop, supervised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazy_imports import lazily

from ...kit.agent_spec import AgentSpec

if TYPE_CHECKING:
    from .adapter import FunctionAdapter, Supervised, supervise
    from .gate import LoopGate, ToolRefused

__all__ = ["SPEC", "FunctionAdapter", "LoopGate", "Supervised", "ToolRefused", "supervise"]

SPEC = AgentSpec(
    name="function",
    about="your own agent loop",
    adapter="proctor.adapters.agents.loop:FunctionAdapter",
)

__getattr__, __dir__ = lazily(
    __name__,
    {"adapter": "FunctionAdapter Supervised supervise", "gate": "LoopGate ToolRefused"},
)

ROOMS = (
    "adapter",
    "gate",
)
"""Top first: each imports only those below it."""
