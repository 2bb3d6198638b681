"""The observer that makes spans and metrics of the events of runs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from proctor.policies.stream.events import (
    ApprovalEvent,
    BudgetWarned,
    Event,
    MessageReceived,
    MessageSent,
    PolicyViolated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolApprovalDenied,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolApprovalRequested,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)

from ..kit.processes.trace_context import carry_trace
from . import names
from .attributes import content, name
from .meters import Meters
from .open_runs import OpenRun, OpenSpan, moment
from .trace_context import carried

_VERSION = version("proctor")
MOST_RUNS = 10_000
"""Runs that are followed at once; the oldest is let go for one more: its end was never stored."""
_STATUS = {RunCompleted: "completed", RunFailed: "failed", RunCancelled: "cancelled"}
_OUTCOME = {ToolApprovalGranted: "granted", ToolApprovalDenied: "denied", ToolApprovalExpired: "expired"}


class OpenTelemetry:
    """Makes a span of each run, decision and call, and metrics of all of them; one of a supervisor's `publishers`.

    It also takes the events of other processes (`async for event in supervisor.subscribe()`). A run whose start
    it did not see is left out. It is not safe to use from several threads at once.

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

    def __call__(self, event: Event) -> None:
        """Take one stored event."""
        if isinstance(event, RunStarted):
            self._start(event)
        elif (run := self._runs.get(event.run_id)) is not None:
            self._follow(run, event)

    def _start(self, event: RunStarted) -> None:
        if len(self._runs) >= MOST_RUNS:
            self._end(next(iter(self._runs)), moment(event), "unknown", None)
        run = self._runs[event.run_id] = OpenRun(event, self._tracer)
        carry_trace(event.run_id, carried(run.own.span))
        self._meters.began(run.agent)

    def _follow(self, run: OpenRun, event: Event) -> None:
        match event:
            case ToolCallRequested():
                self._say(run.decide(event), names.TOOL_ARGUMENTS, event.tool_input)
            case ToolCallStarted():
                self._decided(run, run.decided(event.tool_call_id, moment(event)))
                self._say(run.call(event), names.TOOL_ARGUMENTS, event.tool_input)
            case ToolCallDenied():
                self._decided(run, run.decided(event.tool_call_id, moment(event), name(event.decision)))
            case ToolCallCompleted() | ToolCallFailed():
                self._ran(run, event)
            case PolicyViolated():
                run.violated(event, {names.MESSAGE: content(event.message)} if self._content else {})
                self._meters.violated(run.agent, event)
            case ApprovalEvent():
                self._approval(run, event)
            case BudgetWarned():
                run.own.span.add_event(names.WARNING_EVENT, {names.LIMIT: name(event.limit)}, moment(event))
            case MessageSent():
                self._say(run.own, names.INPUT_MESSAGES, event.content)
            case MessageReceived():
                self._say(run.own, names.OUTPUT_MESSAGES, event.content)
            case RunCompleted() | RunFailed() | RunCancelled():
                self._over(run, event)

    def _over(self, run: OpenRun, event: RunCompleted | RunFailed | RunCancelled) -> None:
        status = _STATUS[type(event)]
        error = None
        if isinstance(event, RunCompleted):
            self._say(run.own, names.OUTPUT_MESSAGES, event.output)
        elif isinstance(event, RunCancelled):
            error = "policy_violation" if run.ended_by is not None else None
            self._say(run.own, names.REASON, event.reason)
        else:
            error = "run_failed"
            self._say(run.own, names.REASON, event.error)
        self._end(event.run_id, moment(event), status, error, event.usage)

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

    def _ran(self, run: OpenRun, event: ToolCallCompleted | ToolCallFailed) -> None:
        call = run.calls.pop(event.tool_call_id, None)
        if call is None:
            return
        failed = isinstance(event, ToolCallFailed)
        self._say(call, names.TOOL_RESULT, event.error if isinstance(event, ToolCallFailed) else event.tool_output)
        seconds = call.end(moment(event), error="tool_error" if failed else None)
        tool = event.tool_name if event.tool_name in run.tools else None
        self._meters.ran(run.agent, tool=tool, failed=failed, seconds=seconds)

    def _approval(self, run: OpenRun, event: ApprovalEvent) -> None:
        deciding = run.decisions.get(event.tool_call_id)
        if deciding is not None:
            deciding.actions.append("request_approval")
            if isinstance(event, ToolApprovalRequested):
                deciding.rules += [name(asking["rule"]) for asking in event.violations]
            elif isinstance(event, ToolApprovalGranted):
                deciding.rules += [name(rule) for _, rule in event.asking]
        about = deciding or run.calls.get(event.tool_call_id) or run.own
        outcome = _OUTCOME.get(type(event), "requested")
        found = {names.APPROVAL: outcome}
        if self._content and event.by:
            found[names.BY] = name(event.by)
        about.span.add_event(names.APPROVAL_EVENT, found, moment(event))
        if isinstance(event, ToolApprovalRequested):
            about.waits_since = moment(event)
            return
        waited = None if about.waits_since is None else max(moment(event) - about.waits_since, 0) / 1e9
        about.waits_since = None
        self._meters.approval(run.agent, outcome, waited)

    def _say(self, about: OpenSpan, attribute: str, value: object) -> None:
        """Content, where it is asked for."""
        if self._content and value is not None:
            about.span.set_attribute(attribute, content(value))
