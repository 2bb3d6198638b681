"""Recorded sessions of agents, read from other programs' files."""

from ..kit.trace_lines import TraceError, TraceSession
from .read import FORMATS, read_sessions

__all__ = ["FORMATS", "TraceError", "TraceSession", "read_sessions"]
ROOMS = ("read", "otel", "sessions")
"""Top first: each imports only those below it."""
