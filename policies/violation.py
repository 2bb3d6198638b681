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

    `policy` is the member of the stack the rule came from, `kind` the rule's type, the limit's name or
    `net`; `details` holds what was expected and what happened, with amounts. `reason` is for telemetry and
    never for the model. `at_end`: it is what the end of the run settled; a resumed session opens it again.
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
