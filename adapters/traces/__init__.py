"""Recorded sessions of agents, read from what other programs left on disk."""

from .errors import TraceError
from .formats import FORMATS
from .read import read_sessions
from .session import TraceSession

__all__ = ["FORMATS", "TraceError", "TraceSession", "read_sessions"]

ROOMS = (
    "read",  # paths to sessions
    "formats",  # the formats by name, and which one a file is in
    "claude",  # Claude Code session logs
    "codex",  # Codex rollouts
    "otel",  # OpenTelemetry GenAI traces
    "own_events",  # the product's own record, one event a line
    "sessions",  # one session a line
    "lines",  # files, gzip and standard input as numbered lines of JSON
    "errors",  # what cannot be read, and where
    "session",  # one session, normalised to the events of the policy language
    "values",  # what the formats have in common: inputs, outputs, contents
)
"""Top first: each imports only those below it."""
