"""Spans and metrics sent to a collector by OTLP over HTTP; OTEL_EXPORTER_OTLP_ENDPOINT and its kin say where."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proctor.supervisor.errors import UsageError

from .observer import OpenTelemetry


@contextmanager
def exported() -> Iterator[OpenTelemetry]:
    """An observer whose spans and metrics are sent while this is open, and at its end. A run that starts
    meanwhile is part of the trace that TRACEPARENT names. Raises UsageError if the extra is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as missing:
        raise UsageError(f"`{missing.name}` is not installed: pip install 'proctor[otel]'") from None

    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "proctor")})
    traces = TracerProvider(resource=resource, shutdown_on_exit=False)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    meters = MeterProvider([reader], resource, shutdown_on_exit=False)
    given = {name.lower(): os.environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in os.environ}
    token = context.attach(TraceContextTextMapPropagator().extract(given))
    try:
        yield OpenTelemetry(tracer_provider=traces, meter_provider=meters)
    finally:
        context.detach(token)
        traces.shutdown()
        meters.shutdown()
