"""How each rule ended."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ...stream.calls import Violation
from ..program.index import CompiledRule
from ..state import SessionState
from ..violations import of_rule

Status: TypeAlias = Literal["held", "violated", "not_exercised", "pending"]


class RuleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rule at the end.

    Attributes:
        status: `held`, `violated`, `not_exercised` (no call it restricts was requested) or `pending` (something is
            still owed).
        kind: The rule's type, or `net`.
        policy: The member of the stack that it came from.
    """

    status: Status
    kind: str
    policy: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How every rule ended.

    Attributes:
        rules: Every rule by id.
        violations: What the end of the run settled.
    """

    rules: dict[str, RuleReport]
    violations: tuple[Violation, ...] = ()


def settle(on: SessionState, *, complete: bool) -> Report:
    """The status of every rule; `complete` settles what is owed, otherwise it is pending."""
    rules: dict[str, RuleReport] = {}
    violations: list[Violation] = []
    for rule in on.rules.values():
        finding = rule.machine.settle(on.states[rule.number])
        if finding is not None and complete:
            violation = of_rule(on.program.name, rule, finding, None, on.session)
            violations.append(msgspec.structs.replace(violation, enforcement="observed", at_end=True))
        owes = finding is not None or on.awaits_person(rule)
        status = _status(on, rule, owes=owes, complete=complete)
        rules[rule.id] = RuleReport(status=status, kind=rule.kind, policy=rule.policy)
    return Report(rules=rules, violations=tuple(violations))


def _status(on: SessionState, rule: CompiledRule, *, owes: bool, complete: bool) -> Status:
    session, machine = on.session, rule.machine
    if rule.id in session.violated or (owes and complete):
        return "violated"
    if owes:
        return "pending"
    exercised = rule.id in session.exercised or machine.always_exercised
    return "held" if exercised or (machine.restricts_all and session.asked) else "not_exercised"
