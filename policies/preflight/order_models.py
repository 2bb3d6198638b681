"""Rules about order as small transition systems: what a call of some slots does to a rule, inputs left aside.

Each model is looser than its rule, or the same: it never refuses a call that the rule lets through on the same
past. A slot is a selector; a call meets a set of them, as a mask.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeAlias

from ..language.selectors import Selector, ToolWhere
from ..rules.after import After, Eventually
from ..rules.before import Before, ImmediatelyBefore
from ..rules.count import Count, MaxCalls
from ..rules.never_after import ForbidsAfter, NeverAfter
from ..rules.precondition import Precondition, Requirement
from ..rules.sequence import ForbiddenSequence
from ..rules.sequence import Sequence as SequenceRule

ModelState: TypeAlias = Any
"""Hashable; what a model remembers of the past."""

MOST = 20
"""The largest count a model keeps; a rule that counts further is left out."""


class OrderModel(Protocol):
    """A rule; bit n of a mask stands for the nth of its slots."""

    @property
    def slots(self) -> Sequence[Selector]:
        """What the rule names."""
        ...

    @property
    def start(self) -> Hashable:
        """The state before the first call."""
        ...

    def admits(self, state: ModelState, mask: int) -> bool:
        """Whether a call that meets these slots may come next."""
        ...

    def after(self, state: ModelState, mask: int, ok: bool) -> Hashable:
        """The state after such a call, which succeeded or failed."""
        ...


def order_model(record: Any) -> OrderModel | None:
    """The model of a rule about order; None for others. With a `key` only what holds whatever its value."""
    match record:
        case Before() | ImmediatelyBefore() if isinstance(record, Before) or record.key is not None:
            return _Before(record.first, record.then, on_start=getattr(record, "first_must", "started") == "started")
        case ImmediatelyBefore():
            return _RightBefore(record)
        case Precondition():
            return _Precondition(record)
    return None if getattr(record, "key", None) is not None else _unkeyed(record)


def _unkeyed(record: Any) -> OrderModel | None:
    match record:
        case NeverAfter():
            return _NeverAfter(record.trigger, record.forbidden, on_failure=True)
        case ForbidsAfter():
            return _NeverAfter(record.tool, tuple(record.tools), on_failure=False)
        case SequenceRule():
            return _InOrder(record)
        case ForbiddenSequence():
            return _NotInOrder(record)
        case After() if record.within <= MOST:
            return _Deadline(record.then, record.trigger, record.within, 0)
        case Eventually() if record.within <= MOST:
            return _Deadline(record.tool, None, 0, record.within)
        case MaxCalls() if record.max <= MOST:
            return _AtMost(record.tool, record.max, counts_failed=True)
        case Count() if record.within_turns is None:
            most = record.exact if record.exact is not None else record.max
            if most is not None and most <= MOST:
                return _AtMost(record.tool, most, counts_failed=record.of != "completed")
    return None


def forgives(model: OrderModel) -> bool:
    """Whether a call that fails may be followed by more than one that succeeds."""
    if isinstance(model, _NeverAfter):
        return not model.on_failure
    return isinstance(model, _AtMost) and not model.counts_failed


class _Before:
    """`first` before `then`."""

    start = False

    def __init__(self, first: Selector, then: Selector, *, on_start: bool) -> None:
        self.slots = (first, then)
        self._on_start = on_start

    def admits(self, state: bool, mask: int) -> bool:
        return state or not mask & 2

    def after(self, state: bool, mask: int, ok: bool) -> bool:
        return state or bool(mask & 1 and (ok or self._on_start))


class _RightBefore:
    """`then` only where the last call was `first`."""

    start = False

    def __init__(self, rule: ImmediatelyBefore) -> None:
        self.slots = (rule.first, rule.then)

    def admits(self, state: bool, mask: int) -> bool:
        return state or not mask & 2

    def after(self, state: bool, mask: int, ok: bool) -> bool:
        return bool(mask & 1)


class _Precondition:
    """The priors that came; a requirement without one is taken to hold."""

    start = 0

    def __init__(self, rule: Precondition) -> None:
        self.slots: list[Selector] = [rule.tool]
        self._started = 0
        self._needs = [need for need in map(self._need, rule.requires) if need is not None]

    def _need(self, requirement: Requirement) -> int | None:
        """The bits of which one must be set; None if it may hold without any."""
        if isinstance(requirement.any_of, Sequence):
            needs = [self._need(inner) for inner in requirement.any_of]
            return None if None in needs else sum({need for need in needs if need is not None})
        if not isinstance(requirement.prior, str | ToolWhere | Sequence):
            return None
        self.slots.append(requirement.prior)
        bit = 1 << (len(self.slots) - 1)
        self._started |= bit if requirement.must == "started" else 0
        return bit

    def admits(self, state: int, mask: int) -> bool:
        return not mask & 1 or all(state & need for need in self._needs)

    def after(self, state: int, mask: int, ok: bool) -> int:
        return state | (mask & ~1 & (-1 if ok else self._started))


LASTING = (_Before, _Precondition)
"""Models that, once they admit a call, always do."""


class _NeverAfter:
    """No `forbidden` after `trigger`."""

    start = False

    def __init__(self, trigger: Selector, forbidden: Selector, *, on_failure: bool) -> None:
        self.slots = (trigger, forbidden)
        self.on_failure = on_failure

    def admits(self, state: bool, mask: int) -> bool:
        return not state or not mask & 2

    def after(self, state: bool, mask: int, ok: bool) -> bool:
        return state or bool(mask & 1 and (ok or self.on_failure))


class _InOrder:
    """How many members of a sequence have come."""

    start = 0

    def __init__(self, rule: SequenceRule) -> None:
        self.slots = tuple(rule.tools)
        self._strict = rule.strict

    def admits(self, state: int, mask: int) -> bool:
        if state == len(self.slots) or mask & (1 << state):
            return True
        if self._strict and state:
            return False
        return not mask or bool(mask & ((1 << state) - 1))

    def after(self, state: int, mask: int, ok: bool) -> int:
        return state + 1 if state < len(self.slots) and mask & (1 << state) else state


class _NotInOrder:
    """The prefixes of a forbidden sequence that the calls so far end with."""

    start = 0

    def __init__(self, rule: ForbiddenSequence) -> None:
        self.slots = tuple(rule.sequence)
        self._strict = rule.adjacency == "strict"
        self._last = 1 << (len(self.slots) - 1)

    def admits(self, state: int, mask: int) -> bool:
        return not (state << 1 | 1) & mask & self._last

    def after(self, state: int, mask: int, ok: bool) -> int:
        longer = (state << 1 | 1) & mask
        return longer if self._strict else state | longer


class _Deadline:
    """So many calls are left for the answer, the last one included; 0: none is owed."""

    def __init__(self, answer: Selector, trigger: Selector | None, within: int, start: int) -> None:
        self.slots = (answer,) if trigger is None else (answer, trigger)
        self.start = start
        self._within = within

    def admits(self, state: int, mask: int) -> bool:
        return state != 1 or bool(mask & 1)

    def after(self, state: int, mask: int, ok: bool) -> int:
        left = 0 if mask & 1 else max(0, state - 1)
        return self._within if mask & 2 and not left else left


class _AtMost:
    """How often the tool was called."""

    start = 0

    def __init__(self, tool: Selector, most: int, *, counts_failed: bool) -> None:
        self.slots = (tool,)
        self._most = most
        self.counts_failed = counts_failed

    def admits(self, state: int, mask: int) -> bool:
        return not mask & 1 or state < self._most

    def after(self, state: int, mask: int, ok: bool) -> int:
        return state + 1 if mask & 1 and (ok or self.counts_failed) else state
