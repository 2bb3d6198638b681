"""Anybody's own agent loop, supervised: each file imports only those above it.

errors       what a loop is told of a refused call
inputs       a Python call as a tool's input, and back
tools        functions that ask the gate before each call
loop_gate    what a loop is supervised through
adapter      FunctionAdapter: a loop that is a function
supervision  supervise: a loop that is a block of code
"""

from .adapter import FunctionAdapter
from .errors import ToolRefused
from .loop_gate import LoopGate
from .supervision import Supervised, supervise

__all__ = ["FunctionAdapter", "LoopGate", "Supervised", "ToolRefused", "supervise"]
