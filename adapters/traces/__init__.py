"""Recorded sessions of agents, read from what other programs left on disk.

errors          what cannot be read, and where
session         one session, normalised to the events of the policy language
lines           files, gzip and standard input as numbered lines of JSON
values          what the formats have in common: inputs, outputs, contents
own_events      the product's own record, one event a line
sessions        one session a line
claude_files    which files make up one Claude Code session
claude_records  the lines of a Claude Code session log
claude          Claude Code session logs
codex_outputs   what the Codex client writes around a tool's output
codex           Codex rollouts
spans           OpenTelemetry spans, in each of their JSON spellings
span_messages   the messages a GenAI span carries
otel            OpenTelemetry GenAI traces
formats         the formats by name, and which one a file is in
read            paths to sessions
"""

from .errors import TraceError
from .formats import FORMATS
from .read import read_sessions
from .session import Session

__all__ = ["FORMATS", "Session", "TraceError", "read_sessions"]
