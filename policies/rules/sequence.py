"""`sequence` and `forbidden_sequence`: several calls in an order that is wanted, or that must not happen."""

import itertools
from abc import abstractmethod
from collections.abc import Hashable, Iterator
from collections.abc import Sequence as AbcSequence
from typing import ClassVar, Literal

from ..language.selectors import NameScope, Selector, Slot, ToolWhere, VirtualName, selector_problems
from ..values.model_base import Issue, Name
from .machine import EvaluatedCall, Finding, Machine, RuleState, listed, slots_of
from .rule import Cap, Link, Note, Of, Profile, Rule, chain, names

Tools = tuple[Name | ToolWhere | tuple[Name | ToolWhere, ...], ...]


class Sequence(Rule, tag="sequence", frozen=True):
    """The tools in this order: no member before its predecessor; `strict`: and nothing else between.

    Attributes:
        tools: The members, in their order.
        strict: Nothing else may come between them.
    """

    tools: Tools
    strict: bool = False

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        yield from _member_problems(self.tools, "tools")

    def profile(self) -> Profile:
        """Each member proves to the next that it came. With a key, other values' calls may stand between."""
        return Profile(
            words=f"in order {chain(self.tools)}",
            restricts=self.tools,
            of_other_calls=self.tools,
            abstraction=(self if self.key is None else Sequence(tools=self.tools),),
            drawing=_links(self.tools, "then next" if self.strict else "then", forbidden=False),
        )


class ForbiddenSequence(Rule, tag="forbidden_sequence", frozen=True):
    """The tools in this order must not happen: next to each other (`strict`), or with gaps (`any`).

    Attributes:
        sequence: The members, in their order.
        adjacency: `strict`: right after each other; `any`: with other calls between.
    """

    sequence: Tools
    adjacency: Literal["strict", "any"] = "strict"

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        yield from _member_problems(self.sequence, "sequence")

    def profile(self) -> Profile:
        """With a key, another value will do, unless one call is the whole sequence."""
        alone = (ForbiddenSequence(sequence=self.sequence),) if len(self.sequence) == 1 else ()
        word = "then next" if self.adjacency == "strict" else "then later"
        return Profile(
            words=f"never {chain(self.sequence)}",
            restricts=self.sequence[-1:],
            others=self.sequence[:-1],
            abstraction=(self,) if self.key is None else alone,
            drawing=_links(self.sequence, word, forbidden=True),
        )


def _member_problems(members: Tools, field: str) -> Iterator[Issue]:
    if not members:
        yield (field,), "names no tool"
    for n, member in enumerate(members):
        yield from selector_problems(member, (field, n))


def _links(members: Tools, word: str, *, forbidden: bool) -> tuple[Link | Note, ...]:
    if len(members) == 1:
        return (Note(members[0], "never" if forbidden else "in order"),)
    last = len(members) - 1
    return tuple(
        Link(f"{word} ({n}/{last})" if last > 1 else word, (first,), then, forbidden and n == last)
        for n, (first, then) in enumerate(itertools.pairwise(members), 1)
    )


class SequenceState(RuleState):
    """How many members have come, in order."""

    reached: int = 0


class SequenceMachine(Machine, evaluates=Sequence):
    """Goes through the members once; after the last one everything may come again.

    A call with several names must be no step ahead under any of them: the slots stand first for all names
    together, then for each name alone.
    """

    state_type = SequenceState
    evaluates_order = True

    def __init__(self, rule: Sequence, scope: NameScope) -> None:
        self.length = len(rule.tools)
        self.slots = slots_of(scope, *((tool, False) for tool in rule.tools))
        self._views = [0]
        if scope.virtual_names:
            self._views = [self._view(rule, scope, own=True, virtual_names=())]
            self._views += [self._view(rule, scope, own=False, virtual_names=(v,)) for v in scope.virtual_names]
        self.strict = self.order_dependent = rule.strict
        self.restricts = (1 << self.length) - 1

    def _view(self, rule: Sequence, scope: NameScope, *, own: bool, virtual_names: tuple[VirtualName, ...]) -> int:
        """Add the slots of one name; returns where they begin."""
        at = len(self.slots)
        made = (Slot(t, scope, allows=False, own=own, virtual_names=virtual_names) for t in rule.tools)
        self.slots = (*self.slots, *made)
        return at

    def evaluate(self, state: SequenceState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """Refuse a member whose predecessor has not come; strict, anything but the next member."""
        reached = state.reached
        if reached == self.length:
            return None
        if self._inside(state) and not mask & (1 << reached):
            return self._finding(state, f"`{call.name}` came between")
        if mask and self._ahead(reached, mask, mask):
            return self._finding(state, f"`{call.name}` came first")
        return None

    def _ahead(self, reached: int, sure: int, maybe: int) -> bool:
        """Whether some name can only be a member too early: one that is neither the next nor has come already."""
        come = (2 << reached) - 1
        return any((sure >> at) & self.restricts and not (maybe >> at) & come for at in self._views)

    def _inside(self, state: SequenceState) -> bool:
        return self.strict and 0 < state.reached < self.length

    def _finding(self, state: SequenceState, actual: str) -> Finding:
        names = [" or ".join(slot.names) for slot in self.slots[: self.length]]
        awaited = names[state.reached]
        return Finding(
            expected=" -> ".join(names) + (", with nothing between" if self.strict else ""),
            actual=f"{actual} while `{awaited}` was awaited",
            details={"sequence": names, "reached": state.reached},
            suggestion=f"call `{awaited}` next",
            cause="step",
        )

    def started(self, state: SequenceState, call: EvaluatedCall, mask: int, now: int) -> None:
        if state.reached < self.length and mask & (1 << state.reached):
            state.reached += 1

    def due(self, state: SequenceState, now: int) -> int | None:
        """Strict and under way: the next call, whatever it is."""
        return now + 1 if self._inside(state) else None

    def finding_at_end(self, state: SequenceState) -> Finding | None:
        return self._finding(state, "the session ended") if 0 < state.reached < self.length else None

    def denies_all(self, state: SequenceState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        """The tool can only be a member too early, or strict and under way, is not the next."""
        if state.reached == self.length:
            return False
        if self._inside(state) and not maybe & (1 << state.reached):
            return True
        return self._ahead(state.reached, sure, maybe)


class ForbiddenState(RuleState):
    """The prefixes that the calls so far end with (bit n: n+1 members matched), and the last call's ordinal."""

    prefixes: int = 0
    at: int = 0


class ForbiddenSequenceMachine(Machine, evaluates=ForbiddenSequence):
    """All prefixes are followed at once (shift-and), so a repeated beginning hides nothing."""

    state_type = ForbiddenState
    evaluates_order = True

    def __init__(self, rule: ForbiddenSequence, scope: NameScope) -> None:
        self.slots = slots_of(scope, *((tool, False) for tool in rule.sequence))
        self.strict = self.order_dependent = rule.adjacency == "strict"
        self.last = 1 << (len(self.slots) - 1)
        self.restricts = self.last

    def _prefixes(self, state: ForbiddenState, now: int) -> int:
        return 0 if self.strict and state.at != now else state.prefixes

    def equivalence_key(self, state: ForbiddenState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """The prefixes that the next call may continue."""
        return self._prefixes(state, now)

    def evaluate(self, state: ForbiddenState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        if not ((self._prefixes(state, now) << 1) | 1) & mask & self.last:
            return None
        names = [" or ".join(slot.names) for slot in self.slots]
        gaps = "" if self.strict else ", with other calls between or not"
        return Finding(
            expected=f"never {' -> '.join(names)}{gaps}",
            actual=f"`{call.name}` would complete {' -> '.join(names)}",
            details={"sequence": names},
            suggestion=f"do not follow `{names[0]}` with `{call.name}`" if len(names) > 1 else "",
        )

    def started(self, state: ForbiddenState, call: EvaluatedCall, mask: int, now: int) -> None:
        before = self._prefixes(state, now)
        longer = ((before << 1) | 1) & mask
        state.prefixes = longer if self.strict else before | longer
        state.at = now + 1


TRIGGER, FORBIDDEN = 1, 2


class _Ban(Rule, frozen=True):
    """A rule that forbids calls once another has started."""

    word: ClassVar[str]
    of: ClassVar[Of]
    """Which triggers stand: all that started, or those that did not fail."""

    @abstractmethod
    def sides(self) -> tuple[Selector, Selector]:
        """The calls that trigger the ban, and those it forbids."""

    def profile(self) -> Profile:
        """A call that forbids itself comes once. With a key, another value will do."""
        trigger, forbidden = self.sides()
        return Profile(
            words=f"no {names(forbidden)} after {names(trigger)}",
            restricts=(forbidden,),
            others=(trigger,),
            caps=(Cap((trigger, forbidden), 1, self.of, each=True),),
            abstraction=(self,) if self.key is None else (),
            drawing=(Link(self.word, (trigger,), forbidden, forbidden=True),),
        )


class NeverAfter(_Ban, tag="never_after", frozen=True):
    """No `forbidden` call once a `trigger` started, whatever became of it.

    Attributes:
        trigger: The calls after which others are denied.
        forbidden: The denied calls.
    """

    trigger: Selector
    forbidden: Selector

    word = "never after"
    of = "started"

    def sides(self) -> tuple[Selector, Selector]:
        return self.trigger, self.forbidden


class ForbidsAfter(_Ban, tag="forbids_after", frozen=True):
    """Once `tool` starts, `tools` are forbidden for the rest of the session; lifted if each such call failed.

    Attributes:
        tool: The call after which the others are denied.
        tools: The denied calls.
    """

    tool: Selector
    tools: AbcSequence[Name | ToolWhere]

    word = "forbids"
    of = "completed"

    def sides(self) -> tuple[Selector, Selector]:
        return self.tool, self.tools


class NeverAfterState(RuleState):
    """How many triggering calls stand: started, and not failed where failure lifts the ban."""

    standing: int = 0


class NeverAfterMachine(Machine, evaluates=_Ban):
    """Counts the triggers that stand."""

    state_type = NeverAfterState
    restricts = FORBIDDEN
    evaluates_order = True
    starts = TRIGGER

    def __init__(self, rule: _Ban, scope: NameScope) -> None:
        trigger, forbidden = rule.sides()
        self.slots = slots_of(scope, (trigger, False), (forbidden, False))
        self.lifted_by_failure = rule.of == "completed"
        self.outcomes = TRIGGER if self.lifted_by_failure else 0

    def evaluate(self, state: NeverAfterState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        if not state.standing:
            return None
        trigger = listed(self.slots[0].names)
        return Finding(
            expected=f"no {listed(self.slots[1].names)} after {trigger}",
            actual=f"`{call.name}` was requested after {trigger}",
            details={"trigger": list(self.slots[0].names)},
            suggestion=f"call `{call.name}` before {trigger}, or not at all",
        )

    def started(self, state: NeverAfterState, call: EvaluatedCall, mask: int, now: int) -> None:
        state.standing += 1

    def failed(self, state: NeverAfterState, call: EvaluatedCall, mask: int) -> Finding | None:
        """A trigger that failed does not stand where failure lifts the ban."""
        if self.lifted_by_failure and mask & TRIGGER:
            state.standing -= 1
        return None

    def equivalence_key(self, state: NeverAfterState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """Whether a trigger stands; where failures lift it, so many that one stays when all running calls fail."""
        return min(state.standing, in_flight + 2) if self.lifted_by_failure else state.standing > 0
