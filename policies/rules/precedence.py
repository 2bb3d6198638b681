"""`before` and `immediately_before`: a call that needs another one ahead of it."""

from abc import abstractmethod
from collections.abc import Hashable
from typing import ClassVar, Literal

import msgspec

from ..language.selectors import HUMAN, NameScope, Selector, Slot, is_person, items_of
from .machine import EvaluatedCall, Finding, Machine, RuleState, ToolReturn, listed, slots_of
from .rule import Fact, Link, Profile, Rule, names

PERSON = "a person's approval"


def asks_person(selector: Selector) -> bool:
    """Whether a person's approval satisfies it."""
    return any(map(is_person, items_of(selector)))


def calls_in(selector: Selector) -> Selector:
    """The selector's calls, without the person's approval; possibly none."""
    return tuple(item for item in items_of(selector) if not is_person(item)) if asks_person(selector) else selector


def approval_of(call: EvaluatedCall, also: str = "") -> Finding:
    """The finding that requests approval; `also` names what else would satisfy the rule."""
    return Finding(
        expected=f"{PERSON}{f' or {also}' if also else ''} before `{call.name}`",
        actual=f"`{call.name}` needs a person's approval",
        details={"first": HUMAN},
        action="request_approval",
    )


FIRST, THEN = 1, 2


class _Order(Rule, frozen=True):
    """A rule that wants `first` to come before `then`."""

    first: Selector
    then: Selector

    person = "first"
    word: ClassVar[str]

    def profile(self) -> Profile:
        """`first` is evidence for `then`."""
        calls, asks = calls_in(self.first), asks_person(self.first)
        sources = (*((calls,) if calls else ()), *((Fact(PERSON),) if asks else ()))
        return Profile(
            words=f"{names(self.first)} {self.word} {names(self.then)}",
            restricts=(self.then,),
            evidence=(calls,),
            own_action="request_approval" if asks else None,
            abstraction=(self.without_key(),),
            drawing=(Link(self.word, sources, self.then),),
        )

    @abstractmethod
    def without_key(self) -> Rule:
        """A rule that is no stricter and has no `key`."""


class Before(_Order, tag="before", frozen=True):
    """`then` is denied until `first` has succeeded once.

    Attributes:
        first: The calls that must come first.
        then: The calls that are denied until then.
        first_must: The state the first call must have reached: `completed`, or only `started`.
    """

    first_must: Literal["started", "completed"] = "completed"

    word = "before"

    def without_key(self) -> Rule:
        return self if self.key is None else msgspec.structs.replace(self, key=None)


class ImmediatelyBefore(_Order, tag="immediately_before", frozen=True):
    """`then` only right after `first`, with no other counted call between.

    Attributes:
        first: The calls that must come right before; `human-approval` as in `before`.
        then: The calls that are denied otherwise.
    """

    word = "right before"

    def without_key(self) -> Rule:
        """Calls of other values may stand between."""
        return self if self.key is None else Before(first=self.first, then=self.then, first_must="started")


class BeforeState(RuleState):
    """Whether `first` has come."""

    satisfied: bool = False


class BeforeMachine(Machine, evaluates=Before):
    """Remembers whether `first` has come; any tool of a list in `first` will do."""

    state_type = BeforeState
    restricts = THEN
    evaluates_order = True

    def __init__(self, rule: Before, scope: NameScope) -> None:
        self._asks = asks_person(rule.first)
        self.on_start = rule.first_must == "started"
        first = Slot(calls_in(rule.first), scope, allows=True, evidence="call" if self.on_start else "success")
        self.slots = (first, Slot(rule.then, scope, allows=False))
        self.outcomes, self.starts = (0, FIRST) if self.on_start else (FIRST, 0)

    def evaluate(self, state: BeforeState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        if state.satisfied:
            return None
        names = listed(self.slots[0].names)
        if self._asks:
            return approval_of(call, names)
        how = "called" if self.on_start else "completed"
        return Finding(
            expected=f"{names} before `{call.name}`",
            actual=f"`{call.name}` was requested, but {names} never {how}",
            details={"first": list(self.slots[0].names)},
            suggestion=f"call {names} before `{call.name}`",
            cause="step",
        )

    def started(self, state: BeforeState, call: EvaluatedCall, mask: int, now: int) -> None:
        state.satisfied = True

    def completed(self, state: BeforeState, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        state.satisfied = True


class AdjacentState(RuleState):
    """The ordinal of the last call of `first`; 0 before there was one."""

    last_first: int = 0


class ImmediatelyBeforeMachine(Machine, evaluates=ImmediatelyBefore):
    """Compares the ordinal of the last `first` with the call now."""

    state_type = AdjacentState
    restricts = THEN
    order_dependent = True
    evaluates_order = True

    def __init__(self, rule: ImmediatelyBefore, scope: NameScope) -> None:
        self.slots = slots_of(scope, (calls_in(rule.first), True), (rule.then, False))
        self._asks = asks_person(rule.first)

    def equivalence_key(self, state: AdjacentState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """Whether the last call was `first`."""
        return self._ready(state, now)

    def _ready(self, state: AdjacentState, now: int) -> bool:
        return now > 0 and state.last_first == now

    def evaluate(self, state: AdjacentState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        if self._ready(state, now):
            return None
        names = listed(self.slots[0].names)
        if self._asks:
            return approval_of(call, names)
        return Finding(
            expected=f"{names} right before `{call.name}`",
            actual="another call came last" if now else "no call came before",
            details={"first": list(self.slots[0].names)},
            suggestion=f"call {names} and then `{call.name}`, with nothing between",
            cause="step",
        )

    def started(self, state: AdjacentState, call: EvaluatedCall, mask: int, now: int) -> None:
        if mask & FIRST:
            state.last_first = now + 1
