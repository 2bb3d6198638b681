"""A machine as a finite graph: what each call does to it, by the slots that the call meets.

A state is a number that stands for all states of the machine that look alike (`Machine.seen_from`); a call is a mask
of slots. Everything is asked of the machine once and remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from copy import copy, deepcopy
from functools import cached_property, reduce
from operator import and_
from typing import Any, Literal, NamedTuple, TypeAlias

from ...rules.machine import Machine
from ..work import Work
from .hypothetical import HypotheticalCall, Nothing

MAX_STATES = 500
"""How many states of one machine are looked at; of one with more, nothing is said."""

Ending: TypeAlias = Literal["completed", "failed"]
ENDINGS: tuple[Ending, ...] = ("completed", "failed")


class Move(NamedTuple):
    """A state, the call that leads on from it, and the state it leads to."""

    before: int
    mask: int
    after: int


class Graph:
    """What a machine lets through and remembers of calls with these masks; `start` is where a session begins."""

    def __init__(self, machine: Machine, masks: frozenset[int], work: Work) -> None:
        self._machine = machine
        self._work = work
        self._weight = 3 + len(machine.slots) // 32
        self._masks = masks
        self._numbers: dict[Hashable, int] = {}
        self._held: list[tuple[Any, int]] = []
        self._admits: dict[tuple[int, int], bool] = {}
        self._after: dict[tuple[int, int, Ending], int] = {}
        self._next: dict[tuple[int, int, Ending], int | None] = {}
        self.start = self._number(machine.fresh(), 0)

    def admits(self, state: int, mask: int) -> bool:
        """Whether such a call may come next."""
        key = (state, mask)
        if key not in self._admits:
            self._work.spend(self._weight)
            held, now = self._held[state]
            judge = self._machine.judging(mask) if self._concerned(held, mask, now) else None
            finding = judge(held, HypotheticalCall(now), mask, now) if judge is not None else None
            self._admits[key] = finding is None or finding.action == "request_approval"
        return self._admits[key]

    def after(self, state: int, mask: int, ending: Ending) -> int:
        """The state once such a call has come, whether it is let through or not, and has ended."""
        outcomes = mask & self._machine.outcomes
        key = (state, mask, ending if outcomes else "completed")
        if key not in self._after:
            self._work.spend(self._weight)
            held, now = self._held[state]
            spend = self._machine.spending(mask) if self._concerned(held, mask, now) else None
            if spend is not None or outcomes:
                held, call = _copied(held), HypotheticalCall(now)
                if spend is not None:
                    spend(held, call, mask, now)
                if outcomes and ending == "completed":
                    self._machine.completed(held, call, mask, Nothing())
                elif outcomes:
                    self._machine.failed(held, call, mask)
            self._after[key] = self._number(held, now + 1)
        return self._after[key]

    def next(self, state: int, mask: int, ending: Ending) -> int | None:
        """The state after a call that is let through; None if it is refused."""
        key = (state, mask, ending)
        if key not in self._next:
            self._next[key] = self.after(state, mask, ending) if self.admits(state, mask) else None
        return self._next[key]

    def may_end(self, state: int) -> bool:
        """Whether nothing is owed, were the run to end in this state."""
        return self._machine.settle(self._held[state][0]) is None

    def _concerned(self, held: Any, mask: int, now: int) -> bool:
        machine = self._machine
        return bool(mask) or machine.every_call or (machine.ordinals and machine.due(held, now) == now + 1)

    def _number(self, held: Any, now: int) -> int:
        view = self._machine.seen_from(held, now)
        if view not in self._numbers:
            self._numbers[view] = len(self._held)
            self._held.append((held, now))
        return self._numbers[view]

    @cached_property
    def moves(self) -> Sequence[Move] | None:
        """All that calls can do, those that are refused too; None if that is too much to look at."""
        found: dict[Move, None] = {}
        queue, seen = deque([self.start]), {self.start}
        while queue:
            state = queue.popleft()
            for mask in self._masks:
                self._work.spend()
                for ending in ENDINGS if mask & self._machine.outcomes else ENDINGS[:1]:
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
        """All that calls can lead to, as far as that was looked at."""
        return range(len(self._held) if self.moves is not None else 0)

    @property
    def changes(self) -> bool:
        """Whether calls make any difference."""
        return self.moves is None or len(self._held) > 1

    @cached_property
    def admitted(self) -> frozenset[int]:
        """The masks of calls that are let through in some state."""
        return frozenset(move.mask for move in self.moves or () if self.admits(move.before, move.mask))

    @cached_property
    def refused(self) -> frozenset[int]:
        """The masks of calls that are refused whatever came before."""
        return frozenset(move.mask for move in self.moves or ()) - self.admitted

    @cached_property
    def restrains(self) -> bool:
        """Whether some calls are refused, and not for good."""
        return self.changes and (self.moves is None or not all(self.admits(m.before, m.mask) for m in self.moves))

    @cached_property
    def lasting(self) -> bool:
        """Whether a call that was once admitted stays admitted, and a call that meets no slot is always admitted."""
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
        ends = [(m.before, *(self.after(m.before, m.mask, ending) for ending in ENDINGS)) for m in self.moves]
        alike = all(completed == failed for _, completed, failed in ends)
        return not alike and not (self.lasting and all(before == failed for before, _, failed in ends))

    @property
    def awaits(self) -> bool:
        """Whether calls that meet no slot are refused from the start."""
        return not self.admits(self.start, 0)

    @property
    def owes(self) -> bool:
        """Whether a run in which nothing is called leaves something undone."""
        return not self.may_end(self.start)

    @cached_property
    def evasion(self) -> tuple[int, ...]:
        """Calls whose last one is refused, but would not be if a call of any other tool came before it; None without
        such.
        """
        other = reduce(and_, self._masks, -1)  # what every call meets
        queue: deque[tuple[int, tuple[int, ...]]] = deque([(self.start, ())])
        seen = {self.start}
        while queue and other in self._masks and self.moves is not None:
            state, way = queue.popleft()
            for mask in sorted(self._masks):
                self._work.spend()
                after = self.next(state, mask, "completed")
                between = self.next(state, other, "completed") if after is None else None
                if way and between is not None and self.admits(between, mask):
                    return (*way, mask)
                if after is not None and after not in seen:
                    seen.add(after)
                    queue.append((after, (*way, mask)))
        return ()


def graph_of(machine: Machine, masks: frozenset[int], graphs: dict[Hashable, Graph], work: Work) -> Graph:
    """The graph of a machine; the same for machines that differ in what their slots name and in nothing else."""
    key = _likeness(machine, masks)
    if key is None:
        return Graph(machine, masks, work)
    if key not in graphs:
        graphs[key] = Graph(machine, masks, work)
    return graphs[key]


def _likeness(machine: Machine, masks: frozenset[int]) -> Hashable | None:
    """What a machine is but for its slots; None if it holds more than figures and words."""
    held: dict[str, Hashable] = {}
    for name, value in vars(machine).items():
        plain = tuple(value) if isinstance(value, list) else value
        if name == "slots":
            continue
        if not all(isinstance(each, int | str | None) for each in (plain if isinstance(plain, tuple) else (plain,))):
            return None
        held[name] = plain
    return (type(machine), len(machine.slots), frozenset(held.items()), masks)


def _copied(state: Any) -> Any:
    """A copy of a state, which can be moved on while the original stays."""
    made = copy(state)
    for name in state.__struct_fields__:
        value = getattr(state, name)
        if isinstance(value, dict | list | set):
            items = value.values() if isinstance(value, dict) else value
            flat = all(isinstance(item, int | str) for item in items)
            setattr(made, name, value.copy() if flat else deepcopy(value))
    return made
