"""Events of policies, budgets and approvals; errors; the end of a run."""

from datetime import datetime
from typing import Any

from .run_events import Event


class PolicyViolated(Event, tag="policy_violation", frozen=True):
    """A rule or a limit was broken.

    Attributes:
        policy: The policy that the rule is in.
        stack: The name of the whole stack.
        rule: The rule's id.
        kind: The rule's type, the limit's name, or `net`.
        action: The rule's action: `warn`, `request_approval`, `deny` or `cancel`.
        enforcement: How far the call got: `prevented` (never ran), `interrupted` (the run was cancelled) or
            `observed`.
        details: Expected and actual values, and the conditions.
        message: The violation, in words.
        reason: The rule's `reason`, for telemetry; the model never sees it.
        tool_call_id: The call, if one caused it.
        tool_name: Its tool.
        escalated: True if a `deny` became a `cancel`, because the agent couldn't hold the call.
        at_end: True if it was found at the end of the run.
    """

    policy: str = ""
    stack: str = ""
    rule: str = ""
    kind: str = ""
    action: str = ""
    enforcement: str = ""
    details: dict[str, Any] = {}
    message: str = ""
    reason: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    escalated: bool = False
    at_end: bool = False


class BudgetWarned(Event, tag="budget_warning", frozen=True):
    """A limit passed its `warn_at`, once in a run; or a budget did, once in its window.

    Attributes:
        limit: The limit's name, or `policy/name` of a budget.
        used: The amount used, in the limit's unit: tokens, USD, milliseconds, calls or turns.
        max: The limit, in the same unit.
        fraction: `used` divided by `max`.
        key: A budget's key: the values at its `per`; "" if all runs share it.
        resets_at: When a budget's window starts again, UTC; null if unknown or never.
    """

    limit: str = ""
    used: float = 0
    max: float = 0
    fraction: float = 0
    key: str = ""
    resets_at: datetime | None = None


class BudgetReserved(Event, tag="budget_reserved", frozen=True):
    """The store's first answer to a reservation from a budget, and each change of it.

    Attributes:
        budget: The budget: `policy/name`.
        key: A budget's key: the values at its `per`; "" if all runs share it.
        counts: The amount it counts: `cost_usd`, `total_tokens`, `tool_calls`, `duration_ms` or `running`.
        granted: Whether enough was left.
        asked_for: The purpose: to `start` the run, a `call`, or the next turn after `usage`.
        used: The amount used by all runs in this window: USD, tokens, calls or ms.
        reserved: The amount reserved by active runs, including this one.
        max: The budget.
        resets_at: When a budget's window starts again, UTC; null if unknown or never.
    """

    budget: str = ""
    key: str = ""
    counts: str = ""
    granted: bool = True
    asked_for: str = ""
    used: float = 0
    reserved: float = 0
    max: float = 0
    resets_at: datetime | None = None


class NetJoined(Event, tag="net_joined", frozen=True):
    """A net was added to the current run.

    Attributes:
        name: The net's name.
        net: The net, as a line or as places and transitions.
        attached: The functions attached to it, `validate` and `on_result`.
    """

    name: str = ""
    net: Any = ""
    attached: tuple[str, ...] = ()


class NetLeft(Event, tag="net_left", frozen=True):
    """A net was removed from the current run; its state is kept.

    Attributes:
        name: The net's name.
    """

    name: str = ""


class ApprovalEvent(Event, frozen=True):
    """About one request for a person's approval.

    Attributes:
        approval_id: The request's id, which an answer names.
        tool_call_id: The call's id.
        tool_name: The tool's name, as the agent calls it.
        tool_input: The arguments.
        input_digest: The SHA-256 digest of the arguments; an approval covers only these.
        policy_name: The policy that asks.
        violation_kind: The type of the rule that asks, or `net`.
        by: The person who answered.
        reason: Why approval is needed; in an answer, what the person wrote.
    """

    approval_id: str
    tool_call_id: str = ""
    tool_name: str = ""
    tool_input: dict[str, Any] = {}
    input_digest: str | None = None
    policy_name: str = ""
    violation_kind: str = ""
    by: str | None = None
    reason: str | None = None


class ToolApprovalRequested(ApprovalEvent, tag="tool_approval_requested", frozen=True):
    """A call waits for a person.

    Attributes:
        held: Whether it waits; if false, the agent can't be held, and the request is only a signal.
        ran: Whether the call had started before.
        expires_at: When it expires, UTC.
        violations: The violations that ask, as the approver sees them.
        approvers: The people who may answer: names, and groups as `@name`; anybody if null.
        started_by: The person who started the run, if that person can't answer. If "", nobody can.
        scope: The most that an approval may cover: `once`, `run` or `session`.
        rules_digest: The SHA-256 digest of the rules that ask, as they are written; empty where `scope` is `once`.
    """

    held: bool = True
    ran: bool = False
    expires_at: datetime | None = None
    violations: tuple[dict[str, Any], ...] = ()
    approvers: tuple[str, ...] | None = None
    started_by: str | None = None
    scope: str = "once"
    rules_digest: str = ""


class ToolApprovalGranted(ApprovalEvent, tag="tool_approval_granted", frozen=True):
    """A person approved this call with these arguments; or an earlier approval covers it, and there was no request.

    Attributes:
        scope: Later calls that it also covers: none (`once`), those of the `run` or of the `session`.
        covers: The rules that it covers for them: `policy/rule`, or `policy/rule=key`, a key with a `=` as JSON.
        rules_digest: The digest of these rules as they were written; once they say something else, it covers nothing.
        like: An entry of an allow list that must allow them, with no other inputs than this call has; null for any.
        groups: The groups of the person, as the program that took the answer states them.
        covered_by: The earlier approval that covers this call, if one does.
        asking: With `covered_by`, what would have asked: pairs of policy and rule.
    """

    scope: str = "once"
    covers: tuple[str, ...] = ()
    rules_digest: str = ""
    like: dict[str, Any] | None = None
    groups: tuple[str, ...] = ()
    covered_by: str | None = None
    asking: tuple[tuple[str, str], ...] = ()


class ToolApprovalDenied(ApprovalEvent, tag="tool_approval_denied", frozen=True):
    """A person denied the call."""


class ToolApprovalExpired(ApprovalEvent, tag="tool_approval_expired", frozen=True):
    """Nobody answered in time, or nobody needs to any more.

    Attributes:
        withdrawn: The call or the run was over before anybody answered.
    """

    withdrawn: bool = False


class ErrorEvent(Event, frozen=True):
    """About something that went wrong and did not end the run by itself.

    Attributes:
        code: The kind of error, for programs: `bad_line`, `call_id_reused`, `rule_failed`, ...
        message: The error, in words.
        provider_error: The provider's own record of it.
    """

    code: str = ""
    message: str = ""
    provider_error: Any = None


USER_MESSAGES_FULL = "user_messages_full"
"""The code of an `error_occurred`: what users write from here on is not in the record of this run."""


class ErrorOccurred(ErrorEvent, tag="error_occurred", frozen=True):
    """Something went wrong."""


class ErrorRecovered(ErrorEvent, tag="error_recovered", frozen=True):
    """An earlier error is over: a retry succeeded."""


class RunCompleted(Event, tag="run_completed", frozen=True):
    """The agent finished: a terminal event.

    Attributes:
        output: The run's output: text, or any JSON.
        usage: The run's usage, as limits counted it: tokens by kind, and `cost_usd`.
    """

    output: Any = None
    usage: dict[str, Any] = {}


class RunFailed(Event, tag="run_failed", frozen=True):
    """The agent, its client, the store or a policy's code failed: a terminal event.

    Attributes:
        error: The failure: `code`, `message`, and the provider's details.
        usage: The run's usage, as limits counted it: tokens by kind, and `cost_usd`.
    """

    error: Any = None
    usage: dict[str, Any] = {}


class RunCancelled(Event, tag="run_cancelled", frozen=True):
    """A policy, a person or the program cancelled the run: a terminal event.

    Attributes:
        reason: Why, in words; names the policy, if one did.
        by: The person who cancelled it; "" for a policy or the program.
        evidence: Each cancel step (`rungs`) with its result and how long it took, in ms.
        usage: The run's usage, as limits counted it: tokens by kind, and `cost_usd`.
    """

    reason: str = ""
    by: str = ""
    evidence: dict[str, Any] = {}
    usage: dict[str, Any] = {}
