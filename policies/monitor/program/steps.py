"""What calls do to one session: the states of its rules, and visits bound to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ...rules.machine import Finding, JudgeCall, JudgedCall, Spend
from .index import CompiledRule, Visits

AskedRule: TypeAlias = tuple[JudgeCall, Any, int, CompiledRule]
"""What is asked about a call: a rule's judge, the rule's state, and the slots the call meets."""


class States(dict[int, Any]):
    """The state of each rule by number, made when it is first asked for."""

    __slots__ = ("rules",)

    def __init__(self, rules: Mapping[int, CompiledRule]) -> None:
        self.rules = rules

    def __missing__(self, number: int) -> Any:
        state = self[number] = self.rules[number].machine.fresh()
        return state


class Steps:
    """What calls that concern the same rules do to one session: visits bound to the states of its rules.

    A rule that is not among the session's rules any more is not told how a call ended. `new` until the session
    has noted that the rules are exercised.
    """

    __slots__ = ("attempts", "new", "outcomes", "remembers", "rounds", "spends", "visits")

    def __init__(
        self, visits: Visits, states: Mapping[int, Any], rules: Mapping[int, CompiledRule], broken: Mapping[str, str]
    ) -> None:
        self.visits = visits
        self.new = True
        judges: list[AskedRule] = []
        for rule, mask, judge in visits.judges:
            if rule.id in broken:
                judge = _refusing(broken[rule.id])
            if judge is not None:
                judges.append((judge, states[rule.number], mask, rule))
        validators: list[AskedRule] = [
            (validate, states[r.number], mask, r) for r, mask, validate in visits.validators if r.id not in broken
        ]
        self.rounds = (judges, validators) if validators else (judges,)
        self.spends: list[tuple[Spend, Any, int, CompiledRule]] = [
            (spend, states[rule.number], mask, rule) for rule, mask, spend in visits.spends if spend is not None
        ]
        self.attempts = [(states[rule.number], mask, rule) for rule, mask in visits.attempts]
        self.outcomes = [(states[r.number], mask, r) for r, mask in visits.outcomes if r.number in rules]
        self.remembers = visits.remembers


def _refusing(why: str) -> JudgeCall:
    def judge(state: Any, call: JudgedCall, mask: int, now: int) -> Finding | None:
        raise RuntimeError(why)

    return judge


NO_STEPS = Steps(Visits(()), {}, {}, {})
