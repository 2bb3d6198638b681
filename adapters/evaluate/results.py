"""What is found of one session: the records `proctor eval --json` writes, one session a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies.stream.calls import STRICTNESS

FailOn: TypeAlias = Literal["never", "warn", "deny", "cancel"]
"""From which action on a broken rule makes a session, or a run, one that failed."""


def fails(actions: Iterable[str], fail_on: FailOn = "deny") -> bool:
    """Whether one of these actions is as strict as that."""
    return fail_on != "never" and any(STRICTNESS[action] >= STRICTNESS[fail_on] for action in actions)


class ViolationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One rule's finding about a recorded session.

    Attributes:
        rule: The rule's id.
        policy: The member of the stack that it came from.
        kind: The rule's type, the limit's name, or `net`.
        action: What the rule asks for.
        seq: The seq of the event that it is about; of the last one if it is about the end.
        tool_call_id: The call that broke it, if one did.
        tool_name: Its tool.
        message: What happened, in words.
        details: What was expected and what happened, with amounts.
    """

    rule: str
    policy: str
    kind: str
    action: str
    seq: int
    tool_call_id: str | None = None
    tool_name: str | None = None
    message: str = ""
    details: dict[str, Any] = {}


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate would have answered to one call that was requested.

    Attributes:
        tool_call_id: The call.
        action: What the gate would have answered.
        violations: The ids of the rules that object.
    """

    tool_call_id: str
    action: str
    violations: list[str] = []


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One session under one policy.

    Attributes:
        session: The session's id.
        passed: Nothing was violated, whatever the action.
        violations: What was violated, in order.
        rules: Each rule's status by its id: `held`, `violated`, `not_exercised` or `pending`.
        whose: The user, role, tenant and labels that it ran for, where they are recorded.
        unjudged: The rules that could not be judged, as the session's context leaves out what their `when` asks for;
            each is among the violations.
        decisions: The decisions, if the record has calls that were requested.
    """

    session: str
    passed: bool
    violations: list[ViolationRecord]
    rules: dict[str, str]
    whose: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    unjudged: list[str] | msgspec.UnsetType = msgspec.UNSET
    decisions: list[DecisionRecord] | msgspec.UnsetType = msgspec.UNSET
