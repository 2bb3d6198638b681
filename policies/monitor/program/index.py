"""Compiled rules, and what calls of a tool mean to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ...language.naming import CallNames
from ...language.operands import OutputRef
from ...language.selectors import Subject
from ...rules.machine import Ahead, Machine
from ...stream.calls import Action

MET_KEPT = 256
"""How many different answers are kept for the calls of one tool."""


class CompiledRule(msgspec.Struct, frozen=True, kw_only=True):
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


class Visit(msgspec.Struct, frozen=True):
    """A rule that looks at calls of a tool: the slots they meet by name alone, and those to ask about."""

    rule: CompiledRule
    mask: int
    asks: tuple[tuple[int, Callable[[Subject], bool]], ...]
    maybe: int

    def outlook(self, ahead: Ahead) -> tuple[int, int]:
        """The slots that every call to come meets, and those that some call may, as things stand."""
        sure, maybe = self.mask, self.maybe
        for n, slot in enumerate(self.rule.machine.slots):
            if slot.outputs and maybe & 1 << n:
                every, some = slot.outlook(ahead.names, ahead)
                sure, maybe = sure | every << n, maybe if some else maybe & ~(1 << n)
        return sure, maybe

    def mask_of(self, call: Subject) -> int:
        """The slots that a call meets."""
        mask = self.mask
        for bit, ask in self.asks:
            if ask(call):
                mask |= bit
        return mask


def visit_of(rule: CompiledRule, names: CallNames) -> Visit:
    """How a rule looks at calls that go by these names."""
    sure, maybe = 0, 0
    asks = []
    for n, slot in enumerate(rule.machine.slots):
        bound = slot.bind(names)
        if bound is False:
            continue
        maybe |= 1 << n
        if bound is True:
            sure |= 1 << n
        else:
            asks.append((1 << n, bound))
    return Visit(rule, sure, tuple(asks), maybe)


Met: TypeAlias = tuple[CompiledRule, int]
"""A rule that a call concerns, with the slots the call meets."""
Remembers: TypeAlias = Sequence[tuple[OutputRef, Callable[[Any], list[Any]]]]
"""The references that a tool's outputs are remembered for, and how to read them."""


class Visits:
    """The rules that a call concerns, in the stack's order, and what each of them has to do.

    `judges` and `spends` say how (None: nothing), `validators` what is asked last; `attempts` want to know that
    the call is asked for, `outcomes` how it ends; `ordinals` are the numbers of those that depend on what comes
    next; `exercised` are the ids of those that restrict it.
    """

    __slots__ = (
        "attempts",
        "exercised",
        "judges",
        "ordinals",
        "outcomes",
        "remembers",
        "rules",
        "spends",
        "validators",
    )

    def __init__(self, rules: Sequence[Met], remembers: Remembers = ()) -> None:
        self.rules = rules
        self.remembers = remembers
        self.judges = [(rule, mask, rule.machine.judging(mask)) for rule, mask in rules]
        validating = ((rule, mask, rule.machine.validating()) for rule, mask in rules)
        self.validators = [(rule, mask, validate) for rule, mask, validate in validating if validate is not None]
        self.spends = [(rule, mask, rule.machine.spending(mask)) for rule, mask in rules]
        self.attempts = [met for met in rules if met[1] & met[0].machine.attempts]
        self.outcomes = [met for met in rules if met[1] & met[0].machine.outcomes]
        self.ordinals = [rule.number for rule, _ in rules if rule.machine.ordinals]
        self.exercised = frozenset(rule.id for rule, mask in rules if mask & rule.machine.restricts)

    def with_due(self, due: Iterable[int], by_number: Mapping[int, CompiledRule]) -> Visits:
        """These and the rules that are due whatever the call's name."""
        named = {rule.number for rule, _ in self.rules}
        more = [(by_number[number], 0) for number in due if number not in named and number in by_number]
        return Visits(sorted([*self.rules, *more], key=lambda met: met[0].number), self.remembers)


class ToolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What calls of one tool concern: rules, and references that remember their outputs.

    Where the name alone decides, `fixed` is the answer for every call; otherwise `met` keeps the answers by
    the masks that calls had, in the order of `visits`.
    """

    visits: tuple[Visit, ...]
    remembers: Remembers
    fixed: Visits | None
    met: dict[tuple[int, ...], Visits]

    def concerned(self, call: Subject) -> Visits:
        """The rules that a call concerns."""
        if self.fixed is not None:
            return self.fixed
        masks = tuple([visit.mask_of(call) for visit in self.visits])
        visits = self.met.get(masks)
        if visits is None:
            if len(self.met) >= MET_KEPT:
                self.met.clear()
            seen = zip(self.visits, masks, strict=True)
            rules = [(visit.rule, mask) for visit, mask in seen if mask or visit.rule.machine.every_call]
            visits = self.met[masks] = Visits(rules, self.remembers)
        return visits
