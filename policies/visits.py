"""Compiled rules, and what calls of a tool mean to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from .calls import Action
from .language.operands import OutputRef
from .language.selectors import Subject
from .rules.machine import Ahead, Machine


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """One rule, tool rule or net of the stack, compiled: `policy` is the member it came from."""

    number: int
    id: str
    kind: str
    policy: str
    action: Action
    machine: Machine
    reason: str | None = None
    tell_model: str | None = None
    unpreventable: str | None = None
    description: str | None = None
    when: Any = None
    spends: bool = True


class Visit(msgspec.Struct, frozen=True):
    """A rule that looks at calls of a tool: the slots they meet by name alone, and those to ask about."""

    number: int
    machine: Machine
    mask: int
    asks: tuple[tuple[int, Callable[[Subject], bool]], ...]
    maybe: int

    def outlook(self, ahead: Ahead) -> tuple[int, int]:
        """The slots that every call to come meets, and those that some call may, as things stand."""
        sure, maybe = self.mask, self.maybe
        for n, slot in enumerate(self.machine.slots):
            if slot.outputs and maybe & 1 << n:
                every, some = slot.outlook(ahead.name, ahead)
                sure, maybe = sure | every << n, maybe if some else maybe & ~(1 << n)
        return sure, maybe


def visit_of(rule: Compiled, tool: str) -> Visit:
    """How a rule looks at calls of a tool."""
    sure, maybe = 0, 0
    asks = []
    for n, slot in enumerate(rule.machine.slots):
        bound = slot.bind(tool)
        if bound is False:
            continue
        maybe |= 1 << n
        if bound is True:
            sure |= 1 << n
        else:
            asks.append((1 << n, bound))
    return Visit(rule.number, rule.machine, sure, tuple(asks), maybe)


Met: TypeAlias = tuple[Compiled, int]
"""A rule that a call concerns, with the slots the call meets."""


class Visits(msgspec.Struct, frozen=True):
    """The rules that a call concerns, in the stack's order, and which of them have more to do than judge it.

    `spending` change when it starts, `attempts` when it is asked for; `outcomes` (by number) want to know how
    it ends; `exercised` are the ids of those that restrict it.
    """

    rules: Sequence[Met]
    spending: Sequence[Met]
    attempts: Sequence[Met]
    outcomes: list[tuple[int, int]]
    exercised: frozenset[str]


NO_VISITS = Visits(rules=(), spending=(), attempts=(), outcomes=[], exercised=frozenset())


def visits_of(rules: Sequence[Met]) -> Visits:
    """What these rules have to do."""
    if not rules:
        return NO_VISITS
    return Visits(
        rules=rules,
        spending=[met for met in rules if met[0].spends],
        attempts=[met for met in rules if met[1] and met[0].machine.attempts],
        outcomes=[(rule.number, mask) for rule, mask in rules if mask and rule.machine.outcomes],
        exercised=frozenset(rule.id for rule, mask in rules if mask & rule.machine.restricts),
    )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What calls of one tool concern: rules, and references that remember their outputs.

    Where the name alone decides, `fixed` is the answer for every call.
    """

    visits: tuple[Visit, ...]
    remembers: tuple[tuple[OutputRef, Callable[[Any], list[Any]]], ...]
    fixed: Visits | None
