"""One clause as a finite transition system: its own machine, asked about calls of which only names are known.

A state is a number that stands for all states of the machine that look alike (`Machine.seen_from`). A call is the
slots it meets, as a mask. Everything is asked of the machine once and remembered.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from ...language.facts import Surroundings
from ...language.naming import Names
from ...rules.machine import Machine
from ...rules.nets.written import Net
from ...rules.wording import names
from ...stack.clauses import Clause
from ...stream.calls import RunContext, Usage
from ..alphabet.call_classes import Facet, Kind, Kinds, Reach

MAX_STATES = 500
"""How many states of one clause are looked at; of one with more, nothing is said."""
MAX_FACETS = 4
"""Up to so many facets of a tool's input all combinations are looked at; with more, those of two, and all at once."""

Ending: TypeAlias = Literal["completed", "failed"]
ENDINGS: tuple[Ending, ...] = ("completed", "failed")


class Nothing:
    """What a hypothetical call returned."""

    value: Any = None
    text = ""


class HypotheticalCall:
    """A call of which nothing is known: whoever must agree to it does."""

    input: Any = {}
    turn = 1
    approved = True
    answers: Mapping[str, Any] = {}
    keys: dict[str, list[str]] | None = None
    observed = False
    surroundings = Surroundings()
    names = Names(())
    usage = Usage()
    context = RunContext()

    def __init__(self, number: int) -> None:
        self.id = self.name = f"call {number}"

    def loose_fingerprint(self) -> str:
        """Its own: no other call is the same."""
        return self.id

    def user_wrote(self, text: str) -> bool:
        """The user did."""
        return True

    def user_said(self, pattern: str, latest: bool) -> bool:
        """The user did."""
        return True

    def goes_by(self, virtual: Any) -> bool:
        """Its mask says so already."""
        return False

    def outputs(self, ref: Any) -> Any:
        """Its mask says so already."""
        raise NotImplementedError


class Move(NamedTuple):
    """A state, the call that leads on from it, and the state it leads to."""

    before: int
    mask: int
    after: int


class System:
    """What a clause lets through and what it remembers.

    `start` is the state of a session that has just begun; `names` are the tools it names, `unnamed` says that there
    are others.
    """

    def __init__(self, clause: Clause, machine: Machine, kinds: Kinds) -> None:
        self.clause = clause
        self.machine = machine
        self._slots: list[Sequence[Reach]] = [
            kinds.reaches(slot.selector, clause.scope, own=slot.own, virtual_names=slot.virtual_names)
            for slot in machine.slots
        ]
        reaches = [reach for slot in self._slots for reach in slot]
        every = kinds.names.all if machine.every_call else ()
        self.names = frozenset(every).union(*(reach.names for reach in reaches))
        self.unnamed = not self.names.issuperset(kinds.names.all)
        self._facets = [(reach.names, reach.facets) for reach in reaches if reach.facets]
        self._masks: dict[tuple[str, frozenset[Facet]], int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._states: list[tuple[Any, int]] = []
        self._admits: dict[tuple[int, int], bool] = {}
        self._after: dict[tuple[int, int, Ending], int] = {}
        self.start = self._number(machine.fresh(), 0)

    def facets(self, name: str) -> frozenset[Facet]:
        """The facets of a name's input that the clause looks at."""
        return frozenset(facet for names, facets in self._facets if name in names for facet in facets)

    def mask(self, name: str, facets: frozenset[Facet]) -> int:
        """The slots that a call of a name meets whose input has these facets and no others."""
        key = (name, facets)
        if key not in self._masks:
            met = (any(name in r.names and r.facets <= facets for r in slot) for slot in self._slots)
            self._masks[key] = sum(1 << n for n, yes in enumerate(met) if yes)
        return self._masks[key]

    def admits(self, state: int, mask: int) -> bool:
        """Whether such a call may come next."""
        key = (state, mask)
        if key not in self._admits:
            held, now = self._states[state]
            judge = self.machine.judging(mask) if self._concerned(held, mask, now) else None
            self._admits[key] = judge is None or judge(held, HypotheticalCall(now), mask, now) is None
        return self._admits[key]

    def after(self, state: int, mask: int, ending: Ending) -> int:
        """The state once such a call has come, whether it is let through or not, and has ended."""
        key = (state, mask, ending)
        if key not in self._after:
            held, now = self._states[state]
            spend = self.machine.spending(mask) if self._concerned(held, mask, now) else None
            outcomes = mask & self.machine.outcomes
            if spend is not None or outcomes:
                held, call = deepcopy(held), HypotheticalCall(now)
                if spend is not None:
                    spend(held, call, mask, now)
                if outcomes and ending == "completed":
                    self.machine.completed(held, call, mask, Nothing())
                elif outcomes:
                    self.machine.failed(held, call, mask)
            self._after[key] = self._number(held, now + 1)
        return self._after[key]

    def next(self, state: int, mask: int, ending: Ending) -> int | None:
        """The state after a call that is let through; None if the clause refuses it."""
        return self.after(state, mask, ending) if self.admits(state, mask) else None

    def may_end(self, state: int) -> bool:
        """Whether nothing is owed, were the run to end in this state."""
        return self.machine.settle(self._states[state][0]) is None

    def _concerned(self, held: Any, mask: int, now: int) -> bool:
        machine = self.machine
        return bool(mask) or machine.every_call or (machine.ordinals and machine.due(held, now) == now + 1)

    def _number(self, held: Any, now: int) -> int:
        view = self.machine.seen_from(held, now)
        if view not in self._numbers:
            self._numbers[view] = len(self._states)
            self._states.append((held, now))
        return self._numbers[view]

    def letters(self, name: str, facets: frozenset[Facet]) -> Iterator[frozenset[Facet]]:
        """The inputs of a name that have these facets, as far as the clause tells them apart."""
        return (facets | some for some in combinations(self.facets(name) - facets))

    @cached_property
    def moves(self) -> Sequence[Move] | None:
        """All that calls can do to it, those it refuses too; None if that is too much to look at."""
        masks = {self.mask(name, some) for name in self.names for some in self.letters(name, frozenset())}
        masks |= {0} if self.unnamed else set()
        found: dict[Move, None] = {}
        queue, seen = deque([self.start]), {self.start}
        while queue:
            state = queue.popleft()
            for mask, ending in itertools.product(masks, ENDINGS):
                after = self.after(state, mask, ending)
                found[Move(state, mask, after)] = None
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
            if len(seen) > MAX_STATES:
                return None
        return tuple(found)

    @property
    def states(self) -> range:
        """All that calls can lead it to, as far as that was looked at."""
        return range(len(self._states) if self.moves is not None else 0)

    @property
    def changes(self) -> bool:
        """Whether calls make any difference to it."""
        return self.moves is None or len(self._states) > 1

    @cached_property
    def restrains(self) -> bool:
        """Whether it refuses some calls, and not for good."""
        return self.changes and (self.moves is None or not all(self.admits(m.before, m.mask) for m in self.moves))

    @cached_property
    def lasting(self) -> bool:
        """Whether it admits for good what it once admits, and always what it does not name."""
        if self.moves is None or not all(self.admits(state, 0) for state in self.states):
            return False
        admitted: dict[int, set[int]] = {}
        for move in self.moves:
            if self.admits(move.before, move.mask):
                admitted.setdefault(move.before, set()).add(move.mask)
        return all(admitted.get(m.before, set()) <= admitted.get(m.after, set()) for m in self.moves)

    @cached_property
    def forgives(self) -> bool:
        """Whether a call that fails may be followed by more than one that succeeds."""
        if self.moves is None:
            return True
        pairs = [
            (m.before, self.after(m.before, m.mask, "completed"), self.after(m.before, m.mask, "failed"))
            for m in self.moves
        ]
        alike = all(completed == failed for _, completed, failed in pairs)
        return not alike and not (self.lasting and all(before == failed for before, _, failed in pairs))

    def evasion(self) -> tuple[int, ...] | None:
        """Calls of which the last is refused, and would not be if a call that is not named came before it."""
        queue: deque[tuple[int, tuple[int, ...]]] = deque([(self.start, ())])
        seen = {self.start}
        masks = sorted({move.mask for move in self.moves or ()} - {0}) if self.unnamed else []
        while queue:
            state, way = queue.popleft()
            for mask in masks:
                after = self.next(state, mask, "completed")
                if after is None:
                    between = self.next(state, 0, "completed")
                    if way and between is not None and self.admits(between, mask):
                        return (*way, mask)
                elif after not in seen:
                    seen.add(after)
                    queue.append((after, (*way, mask)))
        return None

    def said(self, mask: int) -> str:
        """The calls of a mask in words, by the first slot they meet."""
        first = next(n for n in range(len(self._slots)) if mask & 1 << n)
        return names(self.machine.slots[first].selector)

    @property
    def awaits(self) -> bool:
        """Whether it refuses calls that it does not name, from the start."""
        return not self.admits(self.start, 0)

    @property
    def owes(self) -> bool:
        """Whether a run in which nothing is called leaves something undone."""
        return not self.may_end(self.start)

    def bars(self, kind: Kind) -> bool:
        """Whether calls of a kind are refused whatever came before: they are denied.

        Not by a net written in full, which means all its transitions to fire.
        """
        if self.moves is None or (isinstance(self.clause.record, Net) and not self.clause.line):
            return False
        masks = {self.mask(kind.name, some) for some in self.letters(kind.name, kind.facets)}
        return not any(self.admits(state, mask) for state in self.states for mask in masks)


def systems_of(clauses: Iterable[Clause], kinds: Kinds, large: Container[str]) -> list[System]:
    """The systems of the clauses, in the stack's order, but those of `large` nets."""
    return [
        System(clause, machine, kinds)
        for clause in clauses
        if clause.id not in large
        for machine in clause.outlines()
    ]


def combinations(facets: frozenset[Facet]) -> Iterator[frozenset[Facet]]:
    """Sets of facets that an input may have together."""
    listed = sorted(facets, key=repr)
    counts = range(len(listed) + 1) if len(listed) <= MAX_FACETS else (0, 1, 2, len(listed))
    for count in counts:
        yield from map(frozenset, itertools.combinations(listed, count))
