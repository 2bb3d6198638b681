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
    """One rule's finding; `seq` is that of the event it is about, of the last one if it is about the end."""

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
    """What a gate would have answered to one call that was asked for; `violations` are ids of rules."""

    tool_call_id: str
    action: str
    violations: list[str] = []


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One session under one policy. `passed`: nothing was violated, whatever the action.

    `rules` has each rule's status by its id; `whose` the user, role, tenant and labels it ran for, where they are
    recorded; `decisions` is there if the record has calls asked for.
    """

    session: str
    passed: bool
    violations: list[ViolationRecord]
    rules: dict[str, str]
    whose: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    decisions: list[DecisionRecord] | msgspec.UnsetType = msgspec.UNSET
