"""Anybody's own agent loop, supervised."""

from .adapter import FunctionAdapter
from .errors import ToolRefused
from .loop_gate import LoopGate
from .supervision import Supervised, supervise

__all__ = ["FunctionAdapter", "LoopGate", "Supervised", "ToolRefused", "supervise"]

ROOMS = (
    "framework_session",  # a run of an agent of any framework
    "histories",  # the exact conversations of sessions that ran in this process
    "supervision",  # supervise: a loop that is a block of code
    "adapter",  # FunctionAdapter: a loop that is a function
    "loop_gate",  # what a loop is supervised through
    "framework_calls",  # the outcomes of a framework's calls, and which call a sub-agent's is inside
    "tools",  # functions that ask the gate before each call
    "errors",  # what a loop is told of a refused call
    "inputs",  # a Python call as a tool's input, and back
)
"""Top first: each imports only those below it."""
