"""The observer that makes spans and metrics of the events of runs."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proctor.policies import events as ev
from proctor.policies.events.calls import STRICTNESS
from proctor.supervisor.errors import NotInstalledError, UsageError
from proctor.supervisor.store.invariants import violations_of
from proctor.supervisor.store.records import ENDINGS

from ..kit.process_tree import carry_trace
from . import attributes as names
from .attributes import Attributes, content, name, of_agent, of_run, of_usage, of_violation

_KEYS = ("traceparent", "tracestate")
_W3C = TraceContextTextMapPropagator()


def trace_metadata() -> dict[str, str]:
    """The current span as metadata for a run that another process or a later task will start; empty without one.

    `create_run(store, prompt, metadata=trace_metadata())`.
    """
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier


def parent_of(metadata: Mapping[str, object]) -> Context | None:
    """The trace context in a run's metadata; None if the run belongs to the current span."""
    carrier = {key: value for key in _KEYS if isinstance(value := metadata.get(key), str)}
    context = _W3C.extract(carrier)
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def carried(span: Span) -> dict[str, str]:
    """A span as a reference for its children in other processes; empty for one that cannot be a parent."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    return carrier


MOST_OPEN = 1_000
"""How many spans of one kind a run holds open; beyond that, the oldest is ended."""


class OpenSpan:
    """A span with the moment it began, in nanoseconds."""

    __slots__ = ("actions", "began", "rules", "span", "waits_since")

    def __init__(self, span: Span, began: int) -> None:
        self.span = span
        self.began = began
        self.actions: list[str] = []
        self.rules: list[str] = []
        self.waits_since: int | None = None

    def end(self, at: int, *, error: str | None = None) -> float:
        """End it; returns its duration in seconds."""
        if error is not None:
            self.span.set_status(Status(StatusCode.ERROR))
            self.span.set_attribute(names.ERROR_TYPE, error)
        self.span.end(max(at, self.began))
        return max(at - self.began, 0) / 1e9


class OpenRun:
    """One run: its span, and those inside it by call id."""

    def __init__(self, event: ev.RunStarted, tracer: Tracer) -> None:
        self._tracer = tracer
        self.agent = of_agent(event.provider, event.model)
        self.tools = frozenset(event.tools or ())
        self.policy = name(str(event.metadata.get("policy", "")))
        self.began = nanoseconds(event.at)
        attributes = {names.OPERATION: names.INVOKE_AGENT, **of_run(event)}
        span = tracer.start_span(
            f"{names.INVOKE_AGENT} {self.agent[names.AGENT]}",
            context=parent_of(event.metadata),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=self.began,
        )
        self.own = OpenSpan(span, self.began)
        self.decisions: dict[str, OpenSpan] = {}
        self.calls: dict[str, OpenSpan] = {}
        self.ended_by: str | None = None

    def decide(self, event: ev.ToolEvent) -> OpenSpan:
        """Begin the span of a decision."""
        return self._open(self.decisions, event, f"{names.RUN_GUARDRAIL} {self.policy}", names.RUN_GUARDRAIL)

    def decided(self, call_id: str, at: int, action: str | None = None) -> str | None:
        """End a decision's span; returns the action, or None if nothing was being decided."""
        found = self.decisions.pop(call_id, None)
        if found is None:
            return None
        action = action or max(found.actions, key=lambda action_name: STRICTNESS.get(action_name, 0), default="allow")
        found.span.set_attributes({names.DECISION: action, names.RULES: tuple(dict.fromkeys(found.rules))})
        found.end(at)
        return action

    def call(self, event: ev.ToolEvent) -> OpenSpan:
        """Begin the span of a call."""
        return self._open(self.calls, event, f"{names.EXECUTE_TOOL} {name(event.tool_name)}", names.EXECUTE_TOOL)

    def violated(self, event: ev.PolicyViolated, more: Attributes) -> None:
        """Add a violation to the decision it is about, else to the call, else to the run."""
        call_id = event.tool_call_id or ""
        decision = self.decisions.get(call_id)
        if decision is not None:
            decision.actions.append(event.action)
            decision.rules.append(name(event.rule))
        if event.action == "cancel":
            self.ended_by = name(event.rule)
        about = decision or self.calls.get(call_id) or self.own
        about.span.add_event(names.VIOLATION_EVENT, {**of_violation(event), **more}, nanoseconds(event.at))

    def end(self, at: int, *, status: str, error: str | None, usage: Mapping[str, Any]) -> Attributes:
        """End every span; returns what the run used."""
        for open_span in (*self.decisions.values(), *self.calls.values()):
            open_span.end(at, error=status)
        used = of_usage(usage)
        self.own.span.set_attributes({names.STATUS: status, **used})
        self.own.end(at, error=error)
        return used

    def _open(self, spans: dict[str, OpenSpan], event: ev.ToolEvent, title: str, operation: str) -> OpenSpan:
        for over in (event.tool_call_id, next(iter(spans), "") if len(spans) >= MOST_OPEN else ""):
            if (old := spans.pop(over, None)) is not None:
                old.end(nanoseconds(event.at), error="unfinished")
        began = nanoseconds(event.at)
        attributes: Attributes = {
            names.OPERATION: operation,
            names.CONVERSATION: name(event.session_id),
            names.TOOL: name(event.tool_name),
            names.TOOL_CALL: name(event.tool_call_id),
        }
        parent = self.calls.get(event.parent_tool_call_id or "", self.own)
        within = trace.set_span_in_context(parent.span, Context())
        span = self._tracer.start_span(title, within, SpanKind.INTERNAL, attributes, start_time=began)
        spans[event.tool_call_id] = OpenSpan(span, began)
        return spans[event.tool_call_id]


def nanoseconds(at: datetime | None) -> int:
    """A moment in nanoseconds since the epoch, as OpenTelemetry counts."""
    return time.time_ns() if at is None else int(at.timestamp() * 1_000_000) * 1_000


class Meters:
    """Every instrument, created once."""

    def __init__(self, meter: Meter) -> None:
        self._duration = meter.create_histogram(names.DURATION_METRIC, "s", "How long runs and tool calls took.")
        self._tokens = meter.create_histogram(names.TOKENS_METRIC, "{token}", "Tokens a run used.")
        self._runs = meter.create_counter(names.RUNS_METRIC, "{run}", "Runs that ended, by status.")
        self._active = meter.create_up_down_counter(names.ACTIVE_METRIC, "{run}", "Runs that go on.")
        self._decisions = meter.create_counter(names.DECISIONS_METRIC, "{decision}", "Decisions on calls, by action.")
        self._violations = meter.create_counter(names.VIOLATIONS_METRIC, "{violation}", "Rules that found something.")
        self._approvals = meter.create_counter(names.APPROVALS_METRIC, "{approval}", "Approvals, by outcome.")
        self._wait = meter.create_histogram(names.WAIT_METRIC, "s", "How long a call waited for a person.")
        self._cost = meter.create_counter(names.COST_METRIC, "USD", "What runs cost.")

    def began(self, agent: Attributes) -> None:
        self._active.add(1, agent)

    def ended(self, agent: Attributes, *, status: str, seconds: float, usage: Attributes) -> None:
        self._active.add(-1, agent)
        self._runs.add(1, {**agent, names.STATUS: status})
        operation = {**agent, names.OPERATION: names.INVOKE_AGENT}
        self._duration.record(seconds, {**operation, names.STATUS: status})
        for kind in ("input", "output"):
            if isinstance(count := usage.get(names.USAGE[f"{kind}_tokens"]), int):
                self._tokens.record(count, {**operation, names.TOKEN_TYPE: kind})
        if isinstance(cost := usage.get(names.COST), float):
            self._cost.add(cost, agent)

    def ran(self, agent: Attributes, *, tool: str | None, failed: bool, seconds: float) -> None:
        """Count a call that ran; `tool` is its name if the adapter had listed it."""
        found: Attributes = {**agent, names.OPERATION: names.EXECUTE_TOOL}
        if tool is not None:
            found[names.TOOL] = tool
        if failed:
            found[names.ERROR_TYPE] = "tool_error"
        self._duration.record(seconds, found)

    def decided(self, agent: Attributes, action: str) -> None:
        self._decisions.add(1, {**agent, names.DECISION: action})

    def violated(self, agent: Attributes, event: ev.PolicyViolated) -> None:
        self._violations.add(1, {**agent, **of_violation(event)})

    def approval(self, agent: Attributes, outcome: str, waited_s: float | None) -> None:
        found: Attributes = {**agent, names.APPROVAL: outcome}
        self._approvals.add(1, found)
        if waited_s is not None:
            self._wait.record(waited_s, found)


_VERSION = version("proctor")
MOST_RUNS = 10_000
"""How many runs are followed at once; beyond that the oldest is dropped, as its end was never stored."""
_OUTCOME = {ev.ToolApprovalGranted: "granted", ev.ToolApprovalDenied: "denied", ev.ToolApprovalExpired: "expired"}


class OpenTelemetry:
    """Makes a span of each run, decision and call, and metrics of all of them; one of a supervisor's `publishers`.

    It also takes the events of other processes (`async for event in supervisor.subscribe(after="now")`). A run
    whose start it did not see is left out. It is not safe to use from several threads at once.

    Args:
        tracer_provider: where spans go; by default the program's own.
        meter_provider: where metrics go; by default the program's own.
        content: also put prompts, inputs, outputs, rule messages and names of approvers on the spans.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer("proctor", _VERSION, tracer_provider)
        self._meters = Meters(metrics.get_meter("proctor", _VERSION, meter_provider))
        self._content = content
        self._runs: dict[str, OpenRun] = {}

    def __call__(self, event: ev.Event) -> None:
        if isinstance(event, ev.RunStarted):
            self._start(event)
        elif (run := self._runs.get(event.run_id)) is not None:
            self._follow(run, event)

    def _start(self, event: ev.RunStarted) -> None:
        if len(self._runs) >= MOST_RUNS:
            self._end(next(iter(self._runs)), nanoseconds(event.at), "unknown", None)
        run = self._runs[event.run_id] = OpenRun(event, self._tracer)
        carry_trace(event.run_id, carried(run.own.span))
        self._meters.began(run.agent)

    def _follow(self, run: OpenRun, event: ev.Event) -> None:
        match event:
            case ev.ToolCallRequested():
                self._set(run.decide(event), names.TOOL_ARGUMENTS, event.tool_input)
            case ev.ToolCallStarted():
                self._decided(run, run.decided(event.tool_call_id, nanoseconds(event.at)))
                self._set(run.call(event), names.TOOL_ARGUMENTS, event.tool_input)
            case ev.ToolCallDenied():
                self._decided(run, run.decided(event.tool_call_id, nanoseconds(event.at), name(event.decision)))
            case ev.ToolCallCompleted() | ev.ToolCallFailed():
                self._ran(run, event)
            case ev.PolicyViolated():
                run.violated(event, {names.MESSAGE: content(event.message)} if self._content else {})
                self._meters.violated(run.agent, event)
            case ev.ApprovalEvent():
                self._approval(run, event)
            case ev.BudgetWarned():
                run.own.span.add_event(names.WARNING_EVENT, {names.LIMIT: name(event.limit)}, nanoseconds(event.at))
            case ev.MessageSent():
                self._set(run.own, names.INPUT_MESSAGES, event.content)
            case ev.MessageReceived():
                self._set(run.own, names.OUTPUT_MESSAGES, event.content)
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled():
                self._over(run, event)

    def _over(self, run: OpenRun, event: ev.RunCompleted | ev.RunFailed | ev.RunCancelled) -> None:
        status = ENDINGS[type(event)]
        error = None
        if isinstance(event, ev.RunCompleted):
            self._set(run.own, names.OUTPUT_MESSAGES, event.output)
        elif isinstance(event, ev.RunCancelled):
            error = "policy_violation" if run.ended_by is not None else None
            self._set(run.own, names.REASON, event.reason)
        else:
            error = "run_failed"
            self._set(run.own, names.REASON, event.error)
        self._end(event.run_id, nanoseconds(event.at), status, error, event.usage)

    def _end(self, run_id: str, at: int, status: str, error: str | None, usage: dict[str, Any] | None = None) -> None:
        run = self._runs.pop(run_id)
        carry_trace(run_id, {})
        if run.ended_by is not None:
            run.own.span.set_attribute(names.RULE, run.ended_by)
        used = run.end(at, status=status, error=error, usage=usage or {})
        self._meters.ended(run.agent, status=status, seconds=max(at - run.began, 0) / 1e9, usage=used)

    def _decided(self, run: OpenRun, action: str | None) -> None:
        if action is not None:
            self._meters.decided(run.agent, action)

    def _ran(self, run: OpenRun, event: ev.ToolCallCompleted | ev.ToolCallFailed) -> None:
        call = run.calls.pop(event.tool_call_id, None)
        if call is None:
            return
        failed = isinstance(event, ev.ToolCallFailed)
        self._set(call, names.TOOL_RESULT, event.error if isinstance(event, ev.ToolCallFailed) else event.tool_output)
        seconds = call.end(nanoseconds(event.at), error="tool_error" if failed else None)
        tool = event.tool_name if event.tool_name in run.tools else None
        self._meters.ran(run.agent, tool=tool, failed=failed, seconds=seconds)

    def _approval(self, run: OpenRun, event: ev.ApprovalEvent) -> None:
        """Note what an approval's event says on the spans of the decision and the run, and how long a person took."""
        deciding = run.decisions.get(event.tool_call_id)
        if deciding is not None:
            deciding.actions.append("request_approval")
            if isinstance(event, ev.ToolApprovalRequested):
                deciding.rules += [name(violation.rule) for violation in violations_of(event)]
            elif isinstance(event, ev.ToolApprovalGranted):
                deciding.rules += [name(rule) for _, rule in event.asking]
        about = deciding or run.calls.get(event.tool_call_id) or run.own
        outcome = _OUTCOME.get(type(event), "requested")
        found = {names.APPROVAL: outcome}
        if self._content and event.by:
            found[names.BY] = name(event.by)
        about.span.add_event(names.APPROVAL_EVENT, found, nanoseconds(event.at))
        if isinstance(event, ev.ToolApprovalRequested):
            about.waits_since = nanoseconds(event.at)
            return
        waited = None if about.waits_since is None else max(nanoseconds(event.at) - about.waits_since, 0) / 1e9
        about.waits_since = None
        self._meters.approval(run.agent, outcome, waited)

    def _set(self, about: OpenSpan, attribute: str, value: object) -> None:
        """Set an attribute with content, if content is recorded."""
        if self._content and value is not None:
            about.span.set_attribute(attribute, content(value))


END_S = 3.0
"""How many seconds the end waits for a collector, unless OTEL_EXPORTER_OTLP_TIMEOUT says."""
_RETRIES = "opentelemetry.exporter.otlp.proto.http"
"""The logger of failed attempts, a line each; of them all, one line at the end is enough."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_COLLECTOR = "http://localhost:4318"


@contextmanager
def exported(warn: Callable[[str], None]) -> Iterator[OpenTelemetry]:
    """An observer whose spans and metrics are sent while this is open, and at its end; `warn` is told if they cannot
    be. A run that starts meanwhile is part of the trace that TRACEPARENT names. Raises UsageError if the extra is not
    installed, or a variable is wrong.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "proctor")})
        traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        meters = MeterProvider([reader], resource, shutdown_on_exit=False)
    except ModuleNotFoundError as missing:
        raise NotInstalledError(f"`{missing.name}` is not installed", "otel") from None
    except ValueError as error:
        raise UsageError(f"OpenTelemetry does not take a variable `OTEL_...`: {error}") from None
    logging.getLogger(_RETRIES).setLevel(logging.ERROR)
    given = {name.lower(): os.environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in os.environ}
    token = context.attach(TraceContextTextMapPropagator().extract(given))
    try:
        yield OpenTelemetry(tracer_provider=traces, meter_provider=meters)
    finally:
        context.detach(token)
        if not _flush(traces.shutdown, meters.shutdown):
            collector = next(filter(None, map(os.environ.get, _ENDPOINTS)), _COLLECTOR)
            warn(f"the telemetry collector at {collector} does not answer; spans and metrics are missing there")


def _flush(*ends: Callable[[], None]) -> bool:
    """Send what is left; whether that was over within the bound. Whoever still waits for the collector is left."""
    given = os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT", "")
    over = time.monotonic() + (float(given) if given.isdecimal() else END_S)
    threads = [threading.Thread(target=end, daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, over - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
