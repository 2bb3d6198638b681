"""What happens to a run. Every input carries the moment, in milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import Event, NetJoined, NetLeft, ToolCallStarted

from ...ports.adapters import ApprovalAnswer, ApprovalRequest
from ...ports.ledger import Drawn


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, at a moment in milliseconds since the epoch."""

    now_ms: int


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


class RanOtherwise(Input, frozen=True, kw_only=True):
    """A call that was let through ran with another input, changed by somebody who may not: `event` is what ran."""

    event: ToolCallStarted


class Proposed(Input, frozen=True, kw_only=True):
    """The gate holds a call; `key` names this proposal and is never used again."""

    key: int
    call: ToolCall


class Checked(Input, frozen=True, kw_only=True):
    """The asynchronous checks of a proposal have answered; one that raised is its exception."""

    key: int
    answers: Mapping[str, Any]


class Withdrawn(Input, frozen=True, kw_only=True):
    """The caller that waited for the gate's answer went away; the call will not run."""

    key: int
    call_id: str


class ApprovalAnswered(Input, frozen=True, kw_only=True):
    """Somebody answered a held call; `tool_input` is its exact input, where a shell has it besides the record."""

    approval_id: str
    answer: ApprovalAnswer
    tool_input: dict[str, Any] | None = None


class Ticked(Input, frozen=True, kw_only=True):
    """Time went by."""


class CancelAsked(Input, frozen=True, kw_only=True):
    """A person or the caller wants the run to end.

    `approval` is what is recorded as asked when the run ends so that a call can be approved first, and run
    by a later run. `person` is who ordered it, where somebody is named.
    """

    reason: str
    person: str = ""
    by: Literal["user", "caller", "approval"] = "user"
    approval: ApprovalRequest | None = None


class OwnerLost(Input, frozen=True, kw_only=True):
    """The supervisor that ran this is gone; the one that notices ends the run."""

    error: Exception


class NetsChanged(Input, frozen=True, kw_only=True):
    """A net has joined or left the judge: it is to be on record."""

    event: NetJoined | NetLeft


class AdapterEnded(Input, frozen=True, kw_only=True):
    """The provider is gone: `error` is what its client raised, `evidence` what the cancel ladder saw."""

    error: BaseException | None = None
    evidence: dict[str, Any] = {}


class Stored(Input, frozen=True, kw_only=True):
    """The first `count` of the events recorded are durable."""

    count: int


class StoreFailed(Input, frozen=True, kw_only=True):
    """The record cannot be written."""

    error: Exception


class Retried(Input, frozen=True, kw_only=True):
    """What came of `RetryRecord`: everything is stored; or all but the end and what is `refused`, which cannot
    be recorded; or the store has failed again (`error`).
    """

    refused: Exception | None = None
    error: Exception | None = None


class Reserved(Input, frozen=True, kw_only=True):
    """What came of `Reserve`: the store's answer to each draw, or how it failed."""

    drawn: tuple[Drawn, ...] = ()
    error: Exception | None = None


class Settled(Input, frozen=True, kw_only=True):
    """What came of `Settle`."""

    drawn: tuple[Drawn, ...] = ()
    error: Exception | None = None
