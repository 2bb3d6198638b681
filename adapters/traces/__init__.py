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
    "claude_files",  # which files make up one Claude Code session
    "claude_records",  # the lines of a Claude Code session log
    "codex",  # Codex rollouts
    "patches",  # what a patch of `apply_patch` touches
    "codex_outputs",  # what the Codex client writes around a tool's output
    "otel",  # OpenTelemetry GenAI traces
    "own_events",  # the product's own record, one event a line
    "sessions",  # one session a line
    "lines",  # files, gzip and standard input as numbered lines of JSON
    "errors",  # what cannot be read, and where
    "session",  # one session, normalised to the events of the policy language
    "span_messages",  # the messages a GenAI span carries
    "spans",  # OpenTelemetry spans, in each of their JSON spellings
    "values",  # what the formats have in common: inputs, outputs, contents
)
"""Top first: each imports only those below it."""
