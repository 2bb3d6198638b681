"""The inputs and outputs of a run machine. Every input has its time, in milliseconds since the epoch."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NotRequired, TypedDict

import msgspec

from proctor.policies.errors import Action, PolicyViolationError, Violation
from proctor.policies.events import Event, NetJoined, NetLeft, ToolCallRequested, ToolCallStarted, ToolEvent
from proctor.policies.events.calls import STRICTNESS, AsyncCheck, ToolCall, call_of
from proctor.policies.events.run_context import Usage
from proctor.policies.monitor.monitor import RuleReport
from proctor.policies.values.amounts import counted
from proctor.policies.values.foreign_code import error_text, named_error

from ..ports.adapter import GateAnswer
from ..ports.budget_ledger import Reservation, ReservationResult
from ..ports.stored_types import ApprovalAnswer, ApprovalRequest
from ..store.records import Status


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, at a moment in milliseconds since the epoch."""

    now_ms: int


class AddedMetadata(TypedDict):
    """What the start of a run records beside the metadata of its caller, whose names these are not."""

    gate: str
    policy: str
    policies: list[dict[str, Any]]
    context: dict[str, Any]
    portable_tools: NotRequired[list[dict[str, Any]]]
    continuation: NotRequired[str]


ADDED_METADATA = frozenset(AddedMetadata.__annotations__)


class Begin(Input, frozen=True, kw_only=True):
    """The run starts; `first` is false when the session had runs before, `prompt` None where none was seen."""

    prompt: str | None
    first: bool = True
    model: str | None = None
    tools: tuple[str, ...] | None = None
    metadata: dict[str, Any] = {}


class Reported(Input, frozen=True, kw_only=True, gc=False):
    """The provider reported an event."""

    event: Event


class InputChanged(Input, frozen=True, kw_only=True):
    """An allowed call ran with another input than the one decided on; `event` is its start."""

    event: ToolCallStarted


class Proposed(Input, frozen=True, kw_only=True):
    """A call is proposed; `key` names this proposal and is never used again."""

    key: int
    call: ToolCall


NO_CALL = ToolCall(id="", name="")
"""Stands for a proposal that is not a call."""


class Checked(Input, frozen=True, kw_only=True):
    """The asynchronous checks of a proposal have answered; one that raised is its exception."""

    key: int
    answers: Mapping[str, Any]


class Withdrawn(Input, frozen=True, kw_only=True):
    """The caller at the gate no longer waits; the call will not run."""

    key: int
    call_id: str


class ApprovalAnswered(Input, frozen=True, kw_only=True):
    """Somebody answered a held call; `tool_input` is its exact input, where a shell has it besides the record."""

    approval_id: str
    answer: ApprovalAnswer
    tool_input: dict[str, Any] | None = None


class Ticked(Input, frozen=True, kw_only=True):
    """Time passed."""


class CancelAsked(Input, frozen=True, kw_only=True):
    """A person or the caller cancels the run.

    `approval` is recorded as requested, if the run ends so that a call can be approved first and run by a later run.
    `person` ordered the cancel, if it was a person.
    """

    reason: str
    person: str = ""
    approval: ApprovalRequest | None = None


class OwnerLost(Input, frozen=True, kw_only=True):
    """The supervisor that ran this is gone; another one ends the run."""

    error: Exception


class NetsChanged(Input, frozen=True, kw_only=True):
    """A net was added to the monitor or removed from it."""

    event: NetJoined | NetLeft


class AdapterEnded(Input, frozen=True, kw_only=True):
    """The provider has ended: `error` is what its client raised, `evidence` what the cancel steps did."""

    error: BaseException | None = None
    evidence: dict[str, Any] = {}


class Stored(Input, frozen=True, kw_only=True):
    """The first `count` of the events recorded are durable."""

    count: int


class StoreFailed(Input, frozen=True, kw_only=True):
    """The store has failed."""

    error: Exception


class Retried(Input, frozen=True, kw_only=True):
    """The result of `RetryRecord`: everything is stored, or all but the end and the `refused` events, or the store
    has failed again (`error`).
    """

    refused: Exception | None = None
    error: Exception | None = None


class Reserved(Input, frozen=True, kw_only=True):
    """The result of `Reserve`: the store's answer to each reservation, or its error."""

    results: tuple[ReservationResult, ...] = ()
    error: Exception | None = None


class Settled(Input, frozen=True, kw_only=True):
    """The result of `Settle`."""

    results: tuple[ReservationResult, ...] = ()
    error: Exception | None = None


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The policies' findings in one run.

    Attributes:
        action: The strictest action of the violations, or `request_approval` if a person approved a call; else
            `allow`.
        violations: All violations, in order.
        metadata: Rules that couldn't be evaluated (limits without a price, rules not exercised), and the gate.
        rules: Each rule's status at the end, by id.
    """

    action: Action = "allow"
    violations: tuple[Violation, ...] = ()
    metadata: dict[str, Any] = {}
    rules: Mapping[str, RuleReport] = {}


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended.

    Attributes:
        status: `completed`, `failed` or `cancelled`.
        run_id: The run.
        session_id: Its session.
        output: The agent's output.
        usage: Tokens and USD.
        cost_usd: USD, as in `usage`.
        policy: The policies' findings.
        events: The run's latest events, at most 10,000 or 64 MiB.
        events_before: How many earlier events only the store has (`store.read(session_id, run_id=run_id)`).
        calls: The calls among the events that ran.
        calls_before: Calls of earlier runs of the session, at most the latest 1,000.
        reason: Why it didn't complete, in words.
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
    """The machine's result at the end: `refusal` is the policy violation that ended the run, `error` the provider's
    own error, `store_error` the reason the record is not complete.
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


def reported_action(violations: Sequence[Violation], *, refused: bool, approved: bool) -> Action:
    """The action of a report: `cancel` where a policy ended the run, else the strictest of the violations; at least
    `request_approval` where a person approved a call.
    """
    found: list[Action] = ["cancel"] if refused else [violation.action for violation in violations]
    return max(*found, "allow", "request_approval" if approved else "allow", key=STRICTNESS.__getitem__)


def log_line(outcome: Outcome) -> tuple[str, dict[str, Any]]:
    """The level and the fields of the log line on a run's end: a failure is an error; a run that a policy cancelled
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
    """Return the result of a completed run.

    Raises PolicyViolationError for a run that a policy cancelled, else the store's error, else the provider's own
    error, unchanged but for its `policy`. Each has the result so far as its `partial`.
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
            found = counted(len(result.policy.violations), "violation")
            error.add_note(f"policy: {result.policy.action}, {found}")


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that a run machine requests."""


class AnswerGate(Effect, frozen=True, kw_only=True):
    """Answer the caller at the gate; given once for each proposal, after its record is durable.

    `rules` are those that found something about the call, each with its policy: `org/deny-1`.
    """

    key: int
    call: ToolCall
    answer: GateAnswer
    rules: tuple[str, ...] = ()


class RunChecks(Effect, frozen=True, kw_only=True):
    """Run the asynchronous checks of a proposal; the input `Checked` follows."""

    key: int
    call: ToolCall
    checks: tuple[AsyncCheck, ...]


class RequestApproval(Effect, frozen=True, kw_only=True):
    """Request approval of a held call from the people who may answer."""

    request: ApprovalRequest


class DropApproval(Effect, frozen=True, kw_only=True):
    """The held call was decided; no answer is needed any more."""

    approval_id: str


class CloseApproval(Effect, frozen=True, kw_only=True):
    """The time of a held call is up: give `NOBODY_IN_TIME` as its answer. `ApprovalAnswered` follows, with the answer
    that the store accepted first.
    """

    approval_id: str


class Reserve(Effect, frozen=True, kw_only=True):
    """Reserve from shared budgets; the input `Reserved` follows."""

    reservations: tuple[Reservation, ...]


class Settle(Effect, frozen=True, kw_only=True):
    """Settle the shared budgets: the run has `used` this much of each thing that budgets count."""

    used: dict[str, float]


class CancelAdapter(Effect, frozen=True, kw_only=True):
    """Cancel the provider step by step; given at most once."""

    reason: str


class BoundFlush(Effect, frozen=True, kw_only=True):
    """From now on, as the run is being cancelled, a store that does not answer in time has failed."""


class RetryRecord(Effect, frozen=True, kw_only=True):
    """The run is over and the store failed: retry what it lacks, `end` last, as one unit. `Retried` follows.

    If the store refuses an event, append each by itself except the end: the machine then chooses another end and
    returns this effect again.
    """

    end: Event


class ArmDeadline(Effect, frozen=True, kw_only=True):
    """Tick the machine at this moment; None disarms."""

    at_ms: int | None


class Finish(Effect, frozen=True, kw_only=True):
    """The run is over and its terminal event stored, as far as the store allows; given once, last."""

    outcome: Outcome
