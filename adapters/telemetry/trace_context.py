"""The trace that a run is part of: taken from whoever started it, and handed to its agent (see
`kit/trace_context`).
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_KEYS = ("traceparent", "tracestate")
_W3C = TraceContextTextMapPropagator()


def trace_metadata() -> dict[str, str]:
    """The current span as metadata for a run that another process or a later task will start; empty if there is none.

    `create_run(store, prompt, metadata=trace_metadata())`.
    """
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier


def parent_of(metadata: Mapping[str, object]) -> Context | None:
    """The trace context in a run's metadata; None stands for that of whoever started it here."""
    carrier = {key: value for key in _KEYS if isinstance(value := metadata.get(key), str)}
    context = _W3C.extract(carrier)
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def carried(span: Span) -> dict[str, str]:
    """A span as its children in other processes refer to it; empty for one that cannot be a parent."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    return carrier
