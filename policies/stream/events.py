"""The event stream of a session: what every adapter says and every rule judges.

Every event is a frozen record tagged by `type`. Types not known here decode to `Unrecognized`: they are
kept as they came, never dropped and never an error.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

Scope: TypeAlias = Literal["delta", "cumulative"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """One fact reported by or about a session.

    `seq` counts from 1 within the session and is given by the store; `at` is UTC. An adapter leaves both,
    and the ids, to the supervisor. `event_id` makes a repeated report recognisable.
    """

    # gc=False: an event leads to plain JSON only, never back to itself, and a run keeps very many.
    run_id: str = ""
    session_id: str = ""
    seq: int = 0
    at: datetime | None = None
    provider: str = ""
    event_id: str = ""

    @property
    def type(self) -> str:
        """The tag this event is written with."""
        return str(self.__struct_config__.tag)


class RunStarted(Event, tag="run_started", frozen=True):
    model: str | None = None
    tools: tuple[str, ...] | None = None
    metadata: dict[str, Any] = {}


class MessageEvent(Event, frozen=True):
    """`content` is text, or the provider's list of content blocks."""

    role: str = "assistant"
    content: Any = None


class MessageSent(MessageEvent, tag="message_sent", frozen=True):
    role: str = "user"


class MessageReceived(MessageEvent, tag="message_received", frozen=True):
    pass


class MessageStreamed(Event, tag="message_streamed", frozen=True):
    role: str = "assistant"
    delta: str = ""


class TurnEvent(Event, frozen=True):
    turn: int = 0


class TurnStarted(TurnEvent, tag="turn_started", frozen=True):
    pass


class TurnCompleted(TurnEvent, tag="turn_completed", frozen=True):
    pass


class ToolEvent(Event, frozen=True):
    """`turn` is the number of the model response that asked, from 1; 0 is the response going on now.

    `parent_tool_call_id` is set on a sub-agent's calls: the call that started the sub-agent.
    """

    tool_call_id: str
    tool_name: str
    tool_input: dict[str, Any] = {}
    turn: int = 0
    parent_tool_call_id: str | None = None


class ToolCallRequested(ToolEvent, tag="tool_call_requested", frozen=True):
    pass


class ToolCallStarted(ToolEvent, tag="tool_call_started", frozen=True):
    pass


class ToolOutcome(Event, frozen=True):
    tool_call_id: str
    tool_name: str = ""


class ToolCallCompleted(ToolOutcome, tag="tool_call_completed", frozen=True):
    tool_output: Any = None


class ToolCallFailed(ToolOutcome, tag="tool_call_failed", frozen=True):
    error: Any = None


class ToolCallDenied(ToolOutcome, tag="tool_call_denied", frozen=True):
    decision: str = "deny"
    tell_model: str | None = None


class TokenUsageUpdated(Event, tag="token_usage_updated", frozen=True):
    """Tokens used: `input_tokens` includes what was read from or written to the cache."""

    scope: Scope = "delta"
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    model: str | None = None


class PolicyViolated(Event, tag="policy_violation", frozen=True):
    """`stack` names the whole stack, `policy` the member the rule came from; `escalated` says that a deny
    became a cancel because the adapter could not refuse, `at_end` that the end of the run settled it.
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
    limit: str = ""
    used: float = 0
    max: float = 0
    fraction: float = 0


class ApprovalEvent(Event, frozen=True):
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
    """`held` is false where the adapter cannot hold the call: the request is then only a signal, and `ran` says
    that the call had started when it was made.

    `violations` are those that ask, as `Violation` has them: what the approver was shown.
    """

    held: bool = True
    ran: bool = False
    expires_at: datetime | None = None
    violations: tuple[dict[str, Any], ...] = ()


class ToolApprovalGranted(ApprovalEvent, tag="tool_approval_granted", frozen=True):
    pass


class ToolApprovalDenied(ApprovalEvent, tag="tool_approval_denied", frozen=True):
    pass


class ToolApprovalExpired(ApprovalEvent, tag="tool_approval_expired", frozen=True):
    pass


class ErrorEvent(Event, frozen=True):
    code: str = ""
    message: str = ""
    provider_error: Any = None


class ErrorOccurred(ErrorEvent, tag="error_occurred", frozen=True):
    pass


class ErrorRecovered(ErrorEvent, tag="error_recovered", frozen=True):
    pass


class RunCompleted(Event, tag="run_completed", frozen=True):
    output: Any = None
    usage: dict[str, Any] = {}


class RunFailed(Event, tag="run_failed", frozen=True):
    error: Any = None


class RunCancelled(Event, tag="run_cancelled", frozen=True):
    reason: str = ""
    evidence: dict[str, Any] = {}


class SessionEvent(Event, frozen=True):
    provider_session_id: str | None = None
    metadata: dict[str, Any] = {}


class SessionCreated(SessionEvent, tag="session_created", frozen=True):
    pass


class SessionStarted(SessionEvent, tag="session_started", frozen=True):
    pass


class SessionPaused(SessionEvent, tag="session_paused", frozen=True):
    pass


class SessionResumed(SessionEvent, tag="session_resumed", frozen=True):
    pass


class SessionCompleted(SessionEvent, tag="session_completed", frozen=True):
    pass


class SessionFailed(SessionEvent, tag="session_failed", frozen=True):
    pass


class SessionCancelled(SessionEvent, tag="session_cancelled", frozen=True):
    pass


class Unrecognized(Event, tag="unrecognized", frozen=True):
    """An event of a type this version does not know; `raw` is the whole record as it came."""

    raw: dict[str, Any] = {}

    @property
    def type(self) -> str:
        return str(self.raw.get("type", "unrecognized"))


TERMINAL = (RunCompleted, RunFailed, RunCancelled)
"""Exactly one of these ends a run."""


def _leaves(cls: type[Event]) -> list[type[Event]]:
    subclasses = cls.__subclasses__()
    return [leaf for sub in subclasses for leaf in _leaves(sub)] if subclasses else [cls]


EVENT_TYPES: dict[str, type[Event]] = {
    str(cls.__struct_config__.tag): cls for cls in _leaves(Event) if cls is not Unrecognized
}
"""Every known type by its tag."""


def at_ms(at: datetime) -> int:
    """A moment as milliseconds since the epoch; one without a zone is read as UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
