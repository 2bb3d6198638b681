"""One rule's finding about one event or call, with the action it asks for and how far enforcement got."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Action: TypeAlias = Literal["allow", "warn", "request_approval", "deny", "cancel"]
RefusalCause: TypeAlias = Literal["tool", "input", "step", "budget"]
"""What about a call is refused: its tool as such, its input, that something must come first, that it is used up."""
Enforcement: TypeAlias = Literal["prevented", "interrupted", "observed"]


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One rule's finding about one event or call.

    Attributes:
        policy: The member of the stack that the rule came from.
        stack: The name of the whole stack.
        rule: The rule's id.
        kind: The rule's type, the limit's name, or `net`.
        action: What the rule asks for.
        enforcement: How far it got: `prevented`, `interrupted` or `observed`.
        message: What happened, in words.
        details: What was expected and what happened, with amounts; conditions met and missed.
        reason: The rule's reason for telemetry; never for the model.
        tell_model: The rule's text for the model.
        unpreventable: What a `deny` becomes where the agent cannot be held.
        tool_call_id: The call that broke it, if one did.
        tool_name: Its tool.
        cause: What is refused: the `tool` as such, its `input`, a missing `step`, a `budget` that is used up.
        at_end: The end of the run settled it; a resumed session opens it again.
    """

    policy: str
    stack: str
    rule: str
    kind: str
    action: Action
    enforcement: Enforcement
    message: str = ""
    details: dict[str, Any] = {}
    reason: str | None = None
    tell_model: str | None = None
    unpreventable: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    cause: RefusalCause = "tool"
    at_end: bool = False
