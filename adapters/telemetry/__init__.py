"""Runs as OpenTelemetry spans and metrics: an observer, which cannot harm a run. It needs the extra `otel`.

Without an observer, nothing here is imported and no run is slower.
"""

from .observer import OpenTelemetry, trace_metadata

__all__ = ["OpenTelemetry", "trace_metadata"]
ROOMS = ("observer", "attributes")
"""Top first: each imports only those below it."""
