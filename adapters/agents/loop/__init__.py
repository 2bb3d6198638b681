"""Anybody's own agent loop, supervised."""

from .adapter import FunctionAdapter
from .errors import ToolRefused
from .loop_gate import LoopGate
from .supervision import Supervised, supervise

__all__ = ["FunctionAdapter", "LoopGate", "Supervised", "ToolRefused", "supervise"]

ROOMS = (
    "framework",  # agents of frameworks, by what their adapters do alike
    "histories",  # the exact conversations of sessions that ran in this process
    "supervision",  # supervise: a loop that is a block of code
    "adapter",  # FunctionAdapter: a loop that is a function
    "running",  # a loop at work, as a provider
    "loop_gate",  # what a loop is supervised through
    "calls",  # the outcomes of calls, and which call a sub-agent's is inside
    "tools",  # functions that ask the gate before each call
    "errors",  # the error of a refused call
    "inputs",  # a Python call as a tool's input, and back
)
"""Top first: each imports only those below it."""
