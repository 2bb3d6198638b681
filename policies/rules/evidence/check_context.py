"""What a `check` is told beside the call, and how it may answer."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ...stream.calls import RunContext, Usage
from ..record import RuleAction


class PastCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One earlier call of the session and what became of it; `output` is what it returned, as JSON.

    Attributes:
        id: The call's id.
        name: Its tool.
        input: Its arguments.
        turn: The number of the model response that asked for it, from 1.
        status: What became of it.
        output: What it returned, where it completed.
    """

    id: str
    name: str
    input: dict[str, Any]
    turn: int
    status: Literal["running", "completed", "failed", "denied"] = "running"
    output: Any = None


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """The session as it stands when a call is judged.

    Attributes:
        calls: The session's calls so far, oldest first, the judged one not among them.
        usage: What the run has used: tokens and USD.
        run: Who runs what.
        turn: The number of the model response that asks, from 1, counted through the session.
    """

    calls: tuple[PastCall, ...]
    usage: Usage
    run: RunContext
    turn: int


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """A check's refusal with more to say than no.

    Raises:
        ValueError: no such action.

    Attributes:
        action: Stands in place of the rule's; None is the rule's.
        reason: For telemetry; None is the rule's.
        tell_model: The text for the model; None is the rule's.
    """

    action: RuleAction | None = None
    reason: str | None = None
    tell_model: str | None = None

    def __post_init__(self) -> None:
        if self.action is not None and self.action not in get_args(RuleAction):
            raise ValueError(f"`{self.action}` is not an action: {', '.join(get_args(RuleAction))}")


CheckAnswer: TypeAlias = bool | str | Refuse | None
"""None or True: the call may run. False, a text that says why, or `Refuse`: it may not."""
