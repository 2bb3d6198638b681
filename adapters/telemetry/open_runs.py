"""The open spans of one run: its own, one for each decision, one for each call that runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from proctor.policies.stream.calls import STRICTNESS
from proctor.policies.stream.events import Event, PolicyViolated, RunStarted, ToolEvent

from . import names
from .attributes import Attributes, name, of_agent, of_run, of_usage, of_violation
from .trace_context import parent_of

MOST_OPEN = 1_000
"""Spans of one kind that a run holds open; the oldest is ended for one more."""


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

    def __init__(self, event: RunStarted, tracer: Tracer) -> None:
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

    def decide(self, event: ToolEvent) -> OpenSpan:
        """A call was requested."""
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

    def call(self, event: ToolEvent) -> OpenSpan:
        """A call runs."""
        return self._open(self.calls, event, f"{names.EXECUTE_TOOL} {name(event.tool_name)}", names.EXECUTE_TOOL)

    def violated(self, event: PolicyViolated, more: Attributes) -> None:
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

    def _open(self, spans: dict[str, OpenSpan], event: ToolEvent, title: str, operation: str) -> OpenSpan:
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


def moment(event: Event) -> int:
    """When an event happened, in nanoseconds."""
    return nanoseconds(event.at)
