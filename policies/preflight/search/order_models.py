"""Rules about order as small transition systems: what a call of some slots does to a rule, inputs left aside.

Each model is looser than its rule, or the same: it never refuses a call that the rule lets through on the same
past. A slot is a selector; a call meets a set of them, as a mask.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeAlias

from ...language.selectors import Selector, ToolWhere
from ...rules.before import ImmediatelyBefore
from ...rules.precondition import Precondition, Requirement
from ...rules.sequence import ForbiddenSequence
from ...rules.sequence import Sequence as SequenceRule

ModelState: TypeAlias = Any
"""Hashable; what a model remembers of the past."""


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


class EarlierModel:
    """`first` before `then`."""

    start = False

    def __init__(self, first: Selector, then: Selector, *, on_start: bool) -> None:
        self.slots = (first, then)
        self._on_start = on_start

    def admits(self, state: bool, mask: int) -> bool:
        return state or not mask & 2

    def after(self, state: bool, mask: int, ok: bool) -> bool:
        return state or bool(mask & 1 and (ok or self._on_start))


class RightBeforeModel:
    """`then` only where the last call was `first`."""

    start = False

    def __init__(self, rule: ImmediatelyBefore) -> None:
        self.slots = (rule.first, rule.then)

    def admits(self, state: bool, mask: int) -> bool:
        return state or not mask & 2

    def after(self, state: bool, mask: int, ok: bool) -> bool:
        return bool(mask & 1)


class NeedsModel:
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


class NeverAfterModel:
    """No `forbidden` after `trigger`."""

    start = False

    def __init__(self, trigger: Selector, forbidden: Selector, *, on_failure: bool) -> None:
        self.slots = (trigger, forbidden)
        self.on_failure = on_failure

    def admits(self, state: bool, mask: int) -> bool:
        return not state or not mask & 2

    def after(self, state: bool, mask: int, ok: bool) -> bool:
        return state or bool(mask & 1 and (ok or self.on_failure))


class InOrderModel:
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


class NotInOrderModel:
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


class DeadlineModel:
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


class AtLeastModel:
    """How often the tool was called, up to what is wanted."""

    start = 0

    def __init__(self, tool: Selector, least: int, *, counts_failed: bool) -> None:
        self.slots = (tool,)
        self.least = least
        self._counts_failed = counts_failed

    def admits(self, state: int, mask: int) -> bool:
        return True

    def after(self, state: int, mask: int, ok: bool) -> int:
        return state + 1 if mask & 1 and (ok or self._counts_failed) and state < self.least else state


class AtMostModel:
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


LASTING = (EarlierModel, NeedsModel, AtLeastModel)
"""Models that, once they admit a call, always do."""
