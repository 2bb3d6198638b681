"""Runs as OpenTelemetry spans and metrics: an observer, which cannot harm a run. It needs the extra `otel`.

Without an observer, nothing here is imported and no run is slower.
"""

from __future__ import annotations

from .observer import OpenTelemetry
from .trace_context import trace_metadata

__all__ = ["OpenTelemetry", "trace_metadata"]

ROOMS = (
    "exporting",  # spans and metrics sent to a collector, for programs that have set up nothing themselves
    "observer",  # what is handed the events
    "open_runs",  # the spans of the runs that go on
    "meters",  # the metrics
    "trace_context",  # the trace a run is part of
    "attributes",  # what spans and metrics say
    "names",  # how that is called
)
"""Top first: each imports only those below it."""
