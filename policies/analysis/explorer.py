"""The search that all analyses share, and, for preflight, a rule over calls of which only their slots are known."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from ..events.run_context import RunContext
from ..language.facts import NO_TOOLS
from ..monitor.program import CompiledRule
from ..monitor.usage import TokenMeter
from ..rules.machine import Machine, ToolReturn
from ..rules.memory import SessionFacts, UserText
from ..rules.petri_net import Net
from ..rules.rule import names
from ..stack.clauses import Clause
from ..values.work_budget import OutOfWork, Work
from .components import DENY, NOTHING, InputClass, RuleComponent, remembered

if TYPE_CHECKING:
    from .call_classes import CallClass, CallClasses, InputPredicate


State = TypeVar("State", bound=Hashable)
Step = TypeVar("Step")
Price: TypeAlias = tuple[int, int]


class Explored(NamedTuple, Generic[State, Step]):
    """The result of a search: the steps to a goal, or all states there are (`steps` is None)."""

    steps: list[Step] | None
    states: frozenset[State]
    depth: int


class SearchEndedError(OutOfWork):
    """A search that ran out of work; `explored` is what it had seen."""

    def __init__(self, explored: Explored[Any, Any]) -> None:
        super().__init__()
        self.explored = explored


def shortest(
    start: State,
    steps: Callable[[State], Iterable[tuple[Step, Price, State | None]]],
    deepest: int | None = None,
    ahead: Callable[[State], int] = lambda state: 0,
) -> Explored[State, Step]:
    """The cheapest path to a goal, which is a step that leads to None; among equals the first found. States are not
    expanded from which a goal costs as much as the one found.

    `steps` gives the steps from a state, each with its price. Paths whose first figure is above `deepest` are left
    out. `ahead` is a lower bound on the first figure from a state to a goal, which no step lowers by more than its
    own. Raises SearchEndedError where `steps` raises OutOfWork.
    """
    cost: dict[State, Price] = {start: (0, 0)}
    parents: dict[State, tuple[State, Step]] = {}
    queue: list[tuple[Price, int, int, State]] = [((ahead(start), 0), 0, 0, start)]
    done: set[State] = set()
    goal: tuple[Price, State, Step] | None = None
    pushed = depth = 0
    try:
        while queue and (goal is None or queue[0][0] < goal[0]):
            *_, state = heapq.heappop(queue)
            if state in done:
                continue
            done.add(state)
            first, second = cost[state]
            depth = max(depth, first)
            for step, (more, least), after in steps(state):
                price = (first + more, second + least)
                if after in cost and price >= cost[after]:
                    continue
                left = 0 if after is None else ahead(after)
                if deepest is not None and price[0] + left > deepest:
                    continue
                if after is None:
                    goal = (price, state, step) if goal is None or price < goal[0] else goal
                else:
                    cost[after] = price
                    parents[after] = (state, step)
                    pushed += 1
                    heapq.heappush(queue, ((price[0] + left, price[1]), left, pushed, after))
    except OutOfWork:
        raise SearchEndedError(Explored(None, frozenset(done), depth)) from None
    if goal is None:
        return Explored(None, frozenset(done), depth)
    (depth, _), state, step = goal
    return Explored([*_path(parents, state), step], frozenset(done), depth)


def _path(parents: dict[State, tuple[State, Step]], state: State) -> list[Step]:
    path = []
    while state in parents:
        state, step = parents[state]
        path.append(step)
    return path[::-1]


MAX_STATES = 500
"""How many states of one machine are looked at; of one with more, nothing is said."""

Ending: TypeAlias = Literal["completed", "failed"]
ENDINGS: tuple[Ending, ...] = ("completed", "failed")


class Move(NamedTuple):
    """A transition: a state, the mask of a call, and the state after it."""

    before: int
    mask: int
    after: int


_FACTS = SessionFacts({}, UserText(), TokenMeter(), RunContext(), NO_TOOLS)


class Graph(RuleComponent):
    """A machine as a transition graph over the masks of calls, one call after the other."""

    at_once = 0

    def __init__(self, clause: Clause, machine: Machine, masks: frozenset[int], work: Work) -> None:
        super().__init__(0, CompiledRule(0, clause._replace(action="deny"), machine), _FACTS)
        self._work = work
        self._weight = 3 + len(machine.slots) // 32
        self._masks = masks

    @remembered
    def _call(self, mask: int) -> InputClass:
        return InputClass(mask, "a call", {})

    def mask(self, call: InputClass) -> int:
        return call.number

    @remembered
    def allows(self, state: int, mask: int) -> bool:
        """Whether such a call may come next."""
        self._work.spend(self._weight)
        return self.evaluated(self.moments[state], self._call(mask)) < DENY

    def after(self, state: int, mask: int, ending: Ending) -> int:
        """The state once such a call has come, whether it is allowed or not, and has ended."""
        return self._ended(state, mask, ending if mask & self.machine.outcomes else None)

    @remembered
    def _ended(self, state: int, mask: int, ending: Ending | None) -> int:
        """The same; `ending` is None if the machine does not look at it."""
        self._work.spend(self._weight)
        call = self._call(mask)
        moment = self.begun(self.moments[state], call)
        if ending is not None:
            moment, returned = moment.copied(), ToolReturn(None) if ending == "completed" else None
            self.over(moment, self.in_flight(call, moment), mask, returned)
        return self.number(moment)

    @remembered
    def next(self, state: int, mask: int, ending: Ending) -> int | None:
        """The state after a call that is allowed; None if it is denied."""
        return self.after(state, mask, ending) if self.allows(state, mask) else None

    def may_end(self, state: int) -> bool:
        """Whether nothing is owed, were the run to end in this state."""
        return self.obligation(state) == NOTHING

    @cached_property
    def moves(self) -> Sequence[Move] | None:
        """The effects of all calls, also of denied ones; None if there are too many."""
        found: dict[Move, None] = {}

        def steps(state: int) -> Iterator[tuple[int, Price, int | None]]:
            for mask in self._masks:
                self._work.spend()
                for ending in ENDINGS if mask & self.machine.outcomes else ENDINGS[:1]:
                    after = self.after(state, mask, ending)
                    found[Move(state, mask, after)] = None
                    yield mask, (1, 0), after
            if len(self.moments) > MAX_STATES:
                yield 0, (0, 0), None

        return tuple(found) if shortest(self.start, steps).steps is None else None

    @property
    def states(self) -> range:
        """All that calls can lead to, as far as that was looked at."""
        return range(len(self.moments) if self.moves is not None else 0)

    @property
    def changes(self) -> bool:
        """Whether calls make any difference."""
        return self.moves is None or len(self.moments) > 1

    @cached_property
    def allowed(self) -> frozenset[int]:
        """The masks of calls that are allowed in some state."""
        return frozenset(move.mask for move in self.moves or () if self.allows(move.before, move.mask))

    @cached_property
    def never_allowed(self) -> frozenset[int]:
        """The masks of calls that are denied whatever came before."""
        return frozenset(move.mask for move in self.moves or ()) - self.allowed

    @cached_property
    def denies_by_history(self) -> bool:
        """Whether some calls are denied, but not permanently."""
        return self.changes and (self.moves is None or not all(self.allows(m.before, m.mask) for m in self.moves))

    @cached_property
    def allows_for_good(self) -> bool:
        """Whether a call that was once allowed stays allowed, and a call that meets no slot is always allowed."""
        if self.moves is None or not all(self.allows(state, 0) for state in self.states):
            return False
        allowed: dict[int, set[int]] = {}
        for move in self.moves:
            if self.allows(move.before, move.mask):
                allowed.setdefault(move.before, set()).add(move.mask)
        return all(allowed.get(m.before, set()) <= allowed.get(m.after, set()) for m in self.moves)

    @cached_property
    def failures_matter(self) -> bool:
        """Whether a call that fails may be followed by more than one that succeeds."""
        if self.moves is None:
            return True
        ends = [(m.before, *(self.after(m.before, m.mask, ending) for ending in ENDINGS)) for m in self.moves]
        alike = all(completed == failed for _, completed, failed in ends)
        return not alike and not (self.allows_for_good and all(before == failed for before, _, failed in ends))

    @property
    def needs_a_call_first(self) -> bool:
        """Whether calls that meet no slot are denied from the start."""
        return not self.allows(self.start, 0)

    @cached_property
    def evasion(self) -> tuple[int, ...]:
        """Calls whose last one is denied, unless a call of any other tool comes before it; empty if none is."""
        other = reduce(and_, self._masks, -1)  # what every call meets

        def steps(state: int) -> Iterator[tuple[int, Price, int | None]]:
            for mask in sorted(self._masks):
                self._work.spend()
                after = self.next(state, mask, "completed")
                between = self.next(state, other, "completed") if after is None else None
                evades = state != self.start and between is not None and self.allows(between, mask)
                if after is not None or evades:
                    yield mask, (1, 0), after

        found = shortest(self.start, steps).steps if other in self._masks and self.moves is not None else None
        return tuple(found or ())


def _likeness(machine: Machine, masks: frozenset[int]) -> Hashable:
    """A machine's identity without its slots; the machine itself if it holds more than figures and words."""
    held: dict[str, Hashable] = {}
    for name, value in vars(machine).items():
        plain = tuple(value) if isinstance(value, list) else value
        if name == "slots":
            continue
        if not all(isinstance(each, int | str | None) for each in (plain if isinstance(plain, tuple) else (plain,))):
            return machine
        held[name] = plain
    return (type(machine), len(machine.slots), frozenset(held.items()), masks)


MAX_PREDICATES = 4
"""Up to so many predicates of an input all combinations are looked at; with more, those of two, and all at once."""


class ClauseGraph:
    """A clause as a graph over the masks of calls: the calls it allows, and its states.

    `names` are the tools that the clause names, `unnamed` says that there are others.
    """

    def __init__(
        self,
        clause: Clause,
        machine: Machine,
        kinds: CallClasses,
        graphs: dict[Hashable, Graph],
        *,
        is_allow_list: bool = False,
    ) -> None:
        self.clause = clause
        self.is_allow_list = is_allow_list
        self.machine = machine
        self._work = kinds.work
        slots = [
            kinds.reaches(slot.selector, clause.scope, own=slot.own, virtual_names=slot.virtual_names)
            for slot in machine.slots
        ]
        every = kinds.names.all if machine.every_call else ()
        self.names = frozenset(every).union(*(reach.names for slot in slots for reach in slot))
        self.unnamed = not self.names.issuperset(kinds.names.all)
        self._sure: dict[str, int] = {}
        self._perhaps: dict[str, list[tuple[int, frozenset[InputPredicate]]]] = {}
        for n, slot in enumerate(slots):
            for reach in slot:
                covered = kinds.allowed(reach.names) if is_allow_list else reach.names
                self._work.spend(len(covered))
                for name in covered:
                    if reach.predicates:
                        self._perhaps.setdefault(name, []).append((1 << n, reach.predicates))
                    else:
                        self._sure[name] = self._sure.get(name, 0) | 1 << n
        self._distinct_inputs: dict[tuple[str, frozenset[InputPredicate]], tuple[frozenset[InputPredicate], ...]] = {}
        named = {self.mask(name, some) for name in self.names for some in self.distinct_inputs(name)}
        masks = frozenset(named | ({0} if self.unnamed else set()))
        likeness = _likeness(machine, masks)  # machines that differ in what their slots name have one graph
        if likeness not in graphs:
            graphs[likeness] = Graph(clause, machine, masks, kinds.work)
        self.shared = graphs[likeness]
        self.allows, self.after, self.next = self.shared.allows, self.shared.after, self.shared.next

    def predicates(self, name: str) -> frozenset[InputPredicate]:
        """The predicates of a name's input that the clause looks at."""
        return frozenset().union(*(predicates for _, predicates in self._perhaps.get(name, ())))

    def mask(self, name: str, predicates: frozenset[InputPredicate]) -> int:
        """The slots that a call of a name meets whose input has these predicates and no others."""
        mask = self._sure.get(name, 0)
        perhaps = self._perhaps.get(name, ())
        self._work.spend(1 + len(perhaps) // 4)
        for slot, needed in perhaps:
            if needed <= predicates:
                mask |= slot
        return mask

    def distinct_inputs(
        self, name: str, predicates: frozenset[InputPredicate] = frozenset()
    ) -> Iterator[frozenset[InputPredicate]]:
        """The inputs of a name with these predicates, as far as the clause tells them apart, the least of each."""
        if name not in self._perhaps:
            return iter((predicates,))
        own = self.predicates(name)
        key = (name, predicates & own)
        if key not in self._distinct_inputs:
            found: list[tuple[int, frozenset[InputPredicate]]] = []
            for some in combinations(own - predicates):
                mask = self.mask(name, predicates | some)
                self._work.spend(len(found) // 8)
                if not any(mask == other and less <= some for other, less in found):
                    found.append((mask, some))
            self._distinct_inputs[key] = tuple(some for _, some in found)
        return (predicates | some for some in self._distinct_inputs[key])

    def masks(self, kind: CallClass) -> set[int]:
        """The masks that calls of a kind may have."""
        return {self.mask(kind.name, some) for some in self.distinct_inputs(kind.name, kind.predicates)}

    def always_denied(self, kinds: CallClasses) -> Sequence[CallClass]:
        """The kinds of calls that are denied whatever came before.

        None by a net written in full, which means all its transitions to fire.
        """
        if not self.shared.never_allowed or (isinstance(self.clause.record, Net) and not self.clause.line):
            return ()
        named = (kind for name in self.names for kind in kinds.named(name))
        self._work.spend(len(self.names))
        return [kind for kind in named if self.masks(kind) <= self.shared.never_allowed]

    def calls_of(self, mask: int) -> str:
        """The calls of a mask in words, by the first slot they meet."""
        met = [slot for n, slot in enumerate(self.machine.slots) if mask & 1 << n]
        return names(met[0].selector) if met else "any other call"


def clause_graphs(clauses: Iterable[Clause], kinds: CallClasses, large: Container[str] = ()) -> list[ClauseGraph]:
    """The graphs of the clauses, in the stack's order, but those of `large` nets."""
    graphs: dict[Hashable, Graph] = {}
    found: list[ClauseGraph] = []
    for clause in clauses:
        if clause.id not in large:
            allows = bool(clause.profile.allows)
            found += [
                ClauseGraph(clause, machine, kinds, graphs, is_allow_list=allows) for machine in clause.abstractions()
            ]
    return found


def combinations(predicates: frozenset[InputPredicate]) -> Iterator[frozenset[InputPredicate]]:
    """Sets of predicates that an input may have together."""
    if not predicates:
        yield predicates
        return
    listed = sorted(predicates, key=repr)
    counts = range(len(listed) + 1) if len(listed) <= MAX_PREDICATES else (0, 1, 2, len(listed))
    for count in counts:
        yield from map(frozenset, itertools.combinations(listed, count))
