"""Anybody's own agent loop, supervised."""

from .adapter import FunctionAdapter
from .gate import LoopGate, ToolRefused
from .supervision import Supervised, supervise

__all__ = ["FunctionAdapter", "LoopGate", "Supervised", "ToolRefused", "supervise"]

ROOMS = (
    "supervision",
    "adapter",
    "gate",
)
"""Top first: each imports only those below it."""
