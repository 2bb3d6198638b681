"""Anybody's own agent loop, supervised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .adapter import FunctionAdapter, Supervised, supervise
    from .gate import LoopGate, ToolRefused

__all__ = ["FunctionAdapter", "LoopGate", "Supervised", "ToolRefused", "supervise"]
__getattr__, __dir__ = lazily(
    __name__,
    {"adapter": "FunctionAdapter Supervised supervise", "gate": "LoopGate ToolRefused"},
)
ROOMS = (
    "adapter",
    "gate",
)
"""Top first: each imports only those below it."""
