"""Events of a run: messages, turns, tool calls, usage."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """One fact about a session. An adapter sets none of these fields but `event_id`.

    Attributes:
        run_id: The run it belongs to.
        session_id: The session it belongs to.
        seq: Its number within the session, from 1, without gaps.
        at: When it happened, UTC.
        provider: The name of the adapter.
        event_id: An id for repeated reports of usage, unique in the session: a second one with it isn't stored, nor
            counted. Other events that an agent reports are recorded without it.
        omitted_chars: How many characters were cut off, because an event carries at most about 4 MiB.
    """

    # gc=False: an event leads to plain JSON only, never back to itself, and a run keeps very many.
    run_id: str = ""
    session_id: str = ""
    seq: int = 0
    at: datetime | None = None
    provider: str = ""
    event_id: str = ""
    omitted_chars: int = 0

    @property
    def type(self) -> str:
        """The tag this event is written with."""
        return str(self.__struct_config__.tag)


Scope: TypeAlias = Literal["delta", "cumulative"]


class RunStarted(Event, tag="run_started", frozen=True):
    """A run started; the first event of each run.

    Attributes:
        model: The model, if known.
        tools: The names of the agent's tools, if known.
        metadata: The run's settings: policies, context, the adapter's `gate`, labels.
    """

    model: str | None = None
    tools: tuple[str, ...] | None = None
    metadata: dict[str, Any] = {}


class MessageEvent(Event, frozen=True):
    """A message, whole.

    Attributes:
        role: The author: `user`, `assistant`, `system`.
        content: Text, or the provider's list of content blocks.
    """

    role: str = "assistant"
    content: Any = None


class MessageSent(MessageEvent, tag="message_sent", frozen=True):
    """A message for the model: the prompt, or what a user wrote later."""

    role: str = "user"


class MessageReceived(MessageEvent, tag="message_received", frozen=True):
    """A message from the model."""


class MessageStreamed(Event, tag="message_streamed", frozen=True):
    """A piece of a message; the whole message follows as `message_received`.

    Attributes:
        role: The author: `user`, `assistant`, `system`.
        delta: The piece.
    """

    role: str = "assistant"
    delta: str = ""


class TurnEvent(Event, frozen=True):
    """About one turn: a response of the model and the calls it asks for.

    Attributes:
        turn: Its number within the session, from 1; a later run continues the count.
    """

    turn: int = 0


class TurnStarted(TurnEvent, tag="turn_started", frozen=True):
    """A turn started: a response of the model."""


class TurnCompleted(TurnEvent, tag="turn_completed", frozen=True):
    """A turn ended, with every call that it asked for."""


class ToolEvent(Event, frozen=True):
    """About one tool call.

    Attributes:
        tool_call_id: The call's id.
        tool_name: The tool's name, as the agent calls it.
        tool_input: The arguments.
        turn: The turn that asked for it, from 1; 0 is the current turn.
        parent_tool_call_id: For calls of a subagent: the call that started the subagent.
    """

    tool_call_id: str
    tool_name: str
    tool_input: dict[str, Any] = {}
    turn: int = 0
    parent_tool_call_id: str | None = None


class ToolCallRequested(ToolEvent, tag="tool_call_requested", frozen=True):
    """The model asked for a call. Nothing has run."""


class ToolCallStarted(ToolEvent, tag="tool_call_started", frozen=True):
    """A call runs: it was allowed, or the agent didn't ask."""


class ToolOutcome(Event, frozen=True):
    """How a call ended.

    Attributes:
        tool_call_id: The call's id.
        tool_name: The tool's name, as the agent calls it.
    """

    tool_call_id: str
    tool_name: str = ""


class ToolCallCompleted(ToolOutcome, tag="tool_call_completed", frozen=True):
    """A call succeeded.

    Attributes:
        tool_output: The tool's output: text, or any JSON.
        unfinished: Whether the call has only started something that goes on, such as a command in the background, or
            the agent doesn't say how it ended: no rule takes that for a success.
    """

    tool_output: Any = None
    unfinished: bool = False


class ToolCallFailed(ToolOutcome, tag="tool_call_failed", frozen=True):
    """A call ran and failed, or was interrupted.

    Attributes:
        error: The error: text, or any JSON.
    """

    error: Any = None


class ToolCallDenied(ToolOutcome, tag="tool_call_denied", frozen=True):
    """A call was denied. It didn't run.

    Attributes:
        decision: Why: `deny` or `cancel` by a rule; `approval_denied`, `approval_expired`, `approval_unanswerable`
            (nobody can answer); `input_unknown`; `withdrawn` by the agent; `run_ended`.
        tell_model: The text that the model got.
    """

    decision: str = "deny"
    tell_model: str | None = None


class TokenUsageUpdated(Event, tag="token_usage_updated", frozen=True):
    """Tokens or money were used.

    Providers report cached tokens among the input or beside it. If they are more than the input, they were beside
    it, and are added to it; likewise reasoning and output.

    Attributes:
        scope: `delta`: used since the last report; `cumulative`: used since the run began.
        input_tokens: Input tokens, including those read from or written to the cache.
        output_tokens: Output tokens, including reasoning.
        cache_read_tokens: Input tokens read from the cache.
        cache_write_tokens: Input tokens written to the cache.
        reasoning_tokens: Output tokens used for reasoning.
        subagent_tokens: Tokens that subagents used, if the agent reports them.
        cost_usd: The cost in USD, if reported; otherwise proctor uses prices.
        model: The model, if known.
    """

    scope: Scope = "delta"
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    subagent_tokens: int = 0
    cost_usd: float | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        parts = self.cache_read_tokens, self.cache_write_tokens, self.reasoning_tokens
        if not any(parts) or not all(type(count) is int and count >= 0 for count in parts):
            return
        cached, reasoning = parts[0] + parts[1], parts[2]
        for name, part in (("input_tokens", cached), ("output_tokens", reasoning)):
            whole = getattr(self, name)
            if type(whole) is int and 0 <= whole < part:
                msgspec.structs.force_setattr(self, name, whole + part)


class SessionEvent(Event, frozen=True):
    """About the session, not one run of it.

    Attributes:
        provider_session_id: The agent's own session id, for resuming.
        metadata: Other details from the agent.
    """

    provider_session_id: str | None = None
    metadata: dict[str, Any] = {}


class SessionCreated(SessionEvent, tag="session_created", frozen=True):
    """A session was created in this store; its first event."""


class SessionStarted(SessionEvent, tag="session_started", frozen=True):
    """The agent started the session, and reports its own id for it."""


class SessionPaused(SessionEvent, tag="session_paused", frozen=True):
    """The session is paused until someone resumes it."""


class SessionResumed(SessionEvent, tag="session_resumed", frozen=True):
    """The session was resumed."""


class SessionCompleted(SessionEvent, tag="session_completed", frozen=True):
    """The session completed."""


class SessionFailed(SessionEvent, tag="session_failed", frozen=True):
    """The session failed."""


class SessionCancelled(SessionEvent, tag="session_cancelled", frozen=True):
    """The session was cancelled."""


class RecordPruned(Event, tag="record_pruned", frozen=True):
    """The session's earlier events were pruned; it can't be resumed.

    Attributes:
        first_seq: The `seq` of the first removed event.
        last_seq: The `seq` of the last removed event; this event has the next one.
        events: How many events were removed.
        runs: How many runs.
        violations: How many violations they had.
        head: The digest of the last removed event, in hex, to compare with a checkpoint.
        by: The person who removed it.
        reason: Why.
    """

    first_seq: int = 0
    last_seq: int = 0
    events: int = 0
    runs: int = 0
    violations: int = 0
    head: str = ""
    by: str = ""
    reason: str = ""
