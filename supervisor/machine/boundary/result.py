"""How a run ended: what the caller gets, or what is raised instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from proctor.policies.errors import PolicyViolationError
from proctor.policies.stream.calls import STRICTNESS, Action, ToolCall, Usage, Violation
from proctor.policies.stream.events import Event, ToolCallRequested, ToolCallStarted, ToolEvent
from proctor.policies.values.foreign import error_text, named_error

from ...store.codec import Status


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies found in one run.

    Attributes:
        action: The strictest action: of the violations, or `request_approval` where a person approved a call; else
            `allow`.
        violations: All of them, in the order they were found.
        metadata: What could not be judged (limits without a price, rules not exercised), and the level of the gate.
        rules: How each rule ended, by id.
    """

    action: Action = "allow"
    violations: tuple[Violation, ...] = ()
    metadata: dict[str, Any] = {}
    rules: Mapping[str, Any] = {}


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended.

    Attributes:
        status: `completed`, `failed` or `cancelled`.
        run_id: The run.
        session_id: Its session.
        output: What the agent gave.
        usage: Tokens and USD.
        cost_usd: USD, as in `usage`.
        policy: What the policies found.
        events: The latest 10,000 events of the run, or the latest 64 MiB where those are fewer, kept in memory: they
            are there when the store is not.
        events_before: How many came before those; the store has them (`store.read(session_id, run_id=run_id)`).
        calls: The calls among the events that ran, and of a refused run the one that was proposed.
        calls_before: The latest 1,000 calls that ran in the session before this run.
        reason: Why it did not complete, in words.
    """

    status: Status
    run_id: str
    session_id: str
    output: Any = None
    usage: Usage = msgspec.field(default_factory=Usage)
    cost_usd: float = 0.0
    policy: PolicyReport = PolicyReport()
    events: tuple[Event, ...] = ()
    events_before: int = 0
    calls: tuple[ToolCall, ...] = ()
    calls_before: tuple[ToolCall, ...] = ()
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine knows at the end: `refusal` what ended the run where a policy did, `error` the provider's own,
    `store_error` why the record is not complete.
    """

    status: Status
    policy: PolicyReport
    usage: Usage
    output: Any = None
    reason: str = ""
    refusal: Violation | None = None
    error: BaseException | None = None
    store_error: Exception | None = None

    @property
    def refused(self) -> bool:
        """Whether a policy ended the run."""
        return self.refusal is not None


def strictest(violations: Sequence[Violation]) -> Action:
    """The strictest action among violations, `allow` when there are none."""
    return max((v.action for v in violations), key=STRICTNESS.__getitem__, default="allow")


def log_line(outcome: Outcome) -> tuple[str, dict[str, Any]]:
    """The level and the fields of the line that tells how a run ended: what broke is an error, what a policy ended
    names its rules.
    """
    broken = outcome.store_error or (outcome.error if outcome.status == "failed" else None)
    if broken is not None:
        return "error", {"status": outcome.status, "error": named_error(broken)}
    ending = outcome.policy.violations if outcome.refused else ()
    rules = sorted({f"{v.policy}/{v.rule}" for v in ending if v.action == "cancel"})
    return "info", {"status": outcome.status, "reason": outcome.reason, "rules": rules}


def conclude(
    outcome: Outcome,
    *,
    run_id: str,
    session_id: str,
    events: tuple[Event, ...],
    events_before: int = 0,
    calls_before: tuple[ToolCall, ...] = (),
) -> RunResult:
    """Give the result, or raise the error that stands in its place.

    Raises PolicyViolationError for a run a policy cancelled, else the store's error, else the provider's
    own error, unchanged but for its `policy`. Each has the result so far as its `partial`.
    """
    owed = outcome.store_error or outcome.error
    result = RunResult(
        status=outcome.status,
        run_id=run_id,
        session_id=session_id,
        output=outcome.output,
        usage=outcome.usage,
        cost_usd=outcome.usage.cost_usd,
        policy=outcome.policy,
        events=events,
        events_before=events_before,
        calls=_calls(events, outcome),
        calls_before=calls_before,
        reason=outcome.reason or ("" if owed is None else error_text(owed)),
    )
    if outcome.refused:
        raise PolicyViolationError(
            f"run `{run_id}`: {outcome.reason}",
            violations=outcome.policy.violations,
            violation=outcome.refusal,
            calls_before=calls_before,
            partial=result,
            provider_error=outcome.error,
        ) from outcome.store_error
    if owed is not None:
        _attach(owed, result)
        raise owed
    return result


def call_of(event: ToolEvent) -> ToolCall:
    """The call that an event is of."""
    return ToolCall(id=event.tool_call_id, name=event.tool_name, input=event.tool_input, turn=event.turn)


def _calls(events: tuple[Event, ...], outcome: Outcome) -> tuple[ToolCall, ...]:
    refused = {v.tool_call_id for v in outcome.policy.violations if v.action == "cancel"}
    ran = {event.tool_call_id for event in events if isinstance(event, ToolCallStarted)}
    wanted: list[ToolEvent] = [
        event
        for event in events
        if isinstance(event, ToolCallStarted)
        or (isinstance(event, ToolCallRequested) and event.tool_call_id in refused and event.tool_call_id not in ran)
    ]
    return tuple(map(call_of, wanted))


def _attach(error: BaseException, result: RunResult) -> None:
    try:
        error.policy = result.policy  # type: ignore[attr-defined]
        error.partial = result  # type: ignore[attr-defined]
    except Exception:  # an error that takes no report, or no note either, is raised all the same
        with suppress(Exception):
            count = len(result.policy.violations)
            error.add_note(f"policy: {result.policy.action}, {count} violation{'s' * (count != 1)}")
