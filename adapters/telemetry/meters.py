"""The metrics of runs. Their attributes come from policies and adapters, never from an agent."""

from __future__ import annotations

from opentelemetry.metrics import Meter

from proctor.policies.stream.events import PolicyViolated

from . import names
from .attributes import Attributes, of_violation


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
        """Count a run that starts."""
        self._active.add(1, agent)

    def ended(self, agent: Attributes, *, status: str, seconds: float, usage: Attributes) -> None:
        """A run is over."""
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
        """A call was decided."""
        self._decisions.add(1, {**agent, names.DECISION: action})

    def violated(self, agent: Attributes, event: PolicyViolated) -> None:
        """A rule found something."""
        self._violations.add(1, {**agent, **of_violation(event)})

    def approval(self, agent: Attributes, outcome: str, waited_s: float | None) -> None:
        """An approval is closed."""
        found: Attributes = {**agent, names.APPROVAL: outcome}
        self._approvals.add(1, found)
        if waited_s is not None:
            self._wait.record(waited_s, found)
