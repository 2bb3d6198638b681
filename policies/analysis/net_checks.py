"""Analysis of a net by itself: which transitions can fire, and whether its tokens are bounded.

The markings are walked through breadth first. Where one grows out of an earlier one, the steps between are repeated
until every growing place holds more than any transition looks for: if they still can be repeated then, they always
can (Karp and Miller's argument, kept true for priorities, capacities and silent transitions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from ..rules.petri_net import Net, NetMachine, NetState
from ..rules.rule import names
from ..stack.clauses import Clause
from ..values.work_budget import Work
from .components import copied
from .explorer import ClauseGraph, Price, shortest
from .findings import PreflightFinding, finding

if TYPE_CHECKING:
    from .call_classes import CallClasses


MAX_STATES = 3_000
IN_FLIGHT = 2
"""How many calls of deferred transitions are looked at at once, beyond as many as there are tokens to take."""

Marking: TypeAlias = tuple[int, ...]
"""Tokens by place, in the order of the net's places."""


class NetPosition(NamedTuple):
    """The part of a state that matters: its tokens, and the deferred transitions of each call in flight."""

    marking: Marking
    waiting: tuple[tuple[int, ...], ...]


class End(NamedTuple):
    """The end of a call in flight that these deferred transitions wait for."""

    waiting: tuple[int, ...]
    failed: bool


Move: TypeAlias = int | End
"""The slots of the net that a call meets, or the end of one."""


class Walked(msgspec.Struct):
    """`fired`: the transitions that ever fire. `highest`: the most tokens seen in each place.

    `growth`: transitions that can repeat forever with tokens growing in `growing`, after those in `lead`.
    `complete` is False if there were too many markings.
    """

    fired: set[int]
    highest: list[int]
    lead: tuple[str, ...] = ()
    growth: tuple[str, ...] = ()
    growing: tuple[str, ...] = ()
    complete: bool = True


class _Reached(NamedTuple):
    before: _Reached | None
    move: Move | None
    state: NetState
    position: NetPosition
    fired: tuple[int, ...]

    def path(self) -> Iterator[_Reached]:
        """The steps up to here, the last one first."""
        at: _Reached | None = self
        while at is not None:
            yield at
            at = at.before


def walk(machine: NetMachine, masks: Iterable[int], work: Work | None = None) -> Walked:
    """Every behaviour of the net, whatever is called; `masks` are the slots of calls."""
    work = work or Work()
    gains = any(len(t.outputs) > len(t.inputs) for t in machine.net.transitions)
    asks = sorted(mask for mask in set(masks) if mask)
    state, fired = machine.begin()
    first = _Reached(None, None, state, _position(machine, state), tuple(fired))
    reached = {first.position: first}
    walked = Walked(fired=set(fired), highest=list(first.position.marking))

    def steps(at: NetPosition) -> Iterator[tuple[Move, Price, NetPosition | None]]:
        for move in (*asks, *_ends(at)):
            after = _moved(machine, reached[at], move, work)
            if after is None:
                continue
            walked.fired.update(after.fired)
            if after.position in reached:
                continue
            reached[after.position] = after
            walked.highest = list(map(max, walked.highest, after.position.marking))
            if (gains and _grows(machine, after, walked, work)) or len(reached) > MAX_STATES:
                yield move, (0, 0), None
                return
            yield move, (1, 0), after.position

    walked.complete = shortest(first.position, steps).steps is None
    return walked


def _position(machine: NetMachine, state: NetState) -> NetPosition:
    marking = tuple([state.marking.get(place, 0) for place in machine.net.places])
    return NetPosition(marking, tuple(sorted(map(tuple, state.waiting.values()))) if state.waiting else ())


def _ends(position: NetPosition) -> Iterator[Move]:
    for waiting in dict.fromkeys(position.waiting):
        yield End(waiting, failed=False)
        yield End(waiting, failed=True)


def _moved(machine: NetMachine, at: _Reached, move: Move, work: Work) -> _Reached | None:
    """The state after a move; None if the move cannot be made."""
    work.spend(2 + len(machine.net.transitions) + len(machine.net.places) + 2 * len(at.state.waiting))
    if not isinstance(move, End):
        firing = machine.firing(at.state.marking, move)
        if firing is None:
            return None
        state = copied(at.state)
        fired = machine.fire(state, _new_id(state), firing)
        if state.waiting and _exceeds_bound(machine.net, state):
            return None
    else:
        state = copied(at.state)
        call = next((id for id, waiting in state.waiting.items() if tuple(waiting) == move.waiting), None)
        if call is None:
            return None
        fired = machine.finish(state, call, failed=move.failed)
    work.spend(sum(1 + len(machine.net.transitions[n].outputs) for n in fired))
    return _Reached(at, move, state, _position(machine, state), tuple(fired))


def _exceeds_bound(net: Net, state: NetState) -> bool:
    """Whether more calls are in flight than are looked at."""
    waiting = [n for some in state.waiting.values() for n in some]
    tokenless = sum(not net.transitions[n].inputs for n in waiting)
    tokens = sum(net.initial_marking.values()) + sum(net.capacity.values())  # that there may be for them to take
    return tokenless > IN_FLIGHT or len(waiting) - tokenless > IN_FLIGHT + tokens


def _weight(net: Net) -> int:
    """The most tokens that a transition looks for in one place."""
    return max((tokens for t in net.transitions for tokens in Counter(t.inputs).values()), default=1)


def _new_id(state: NetState) -> str:
    return next(id for id in map(str, range(len(state.waiting) + 1)) if id not in state.waiting)


def _grows(machine: NetMachine, reached: _Reached, walked: Walked, work: Work) -> bool:
    """Whether the steps from an earlier, smaller marking to this one can repeat forever."""
    steps: list[_Reached] = []
    for earlier in reached.path():
        work.spend(1 + len(machine.net.places) // 4)
        if earlier is not reached and _covers(reached.position, earlier.position):
            markings = zip(reached.position.marking, earlier.position.marking, strict=True)
            gain = tuple(new - old for new, old in markings)
            if _may_grow(machine, gain) and _repeats(machine, reached, list(reversed(steps)), gain, work):
                lead = [step for step in earlier.path() if step.fired]
                walked.lead = _names(machine, list(reversed(lead)))
                walked.growth = _names(machine, list(reversed(steps)))
                walked.growing = tuple(p for p, more in zip(machine.net.places, gain, strict=True) if more)
                return True
        steps.append(earlier)
    return False


def _may_grow(machine: NetMachine, gain: Marking) -> bool:
    """Whether no place that gains tokens has a capacity."""
    return not any(
        more and place in machine.net.capacity for place, more in zip(machine.net.places, gain, strict=True)
    )


def _covers(state: NetPosition, earlier: NetPosition) -> bool:
    pairs = zip(state.marking, earlier.marking, strict=True)
    return state.waiting == earlier.waiting and all(new >= old for new, old in pairs)


def _repeats(machine: NetMachine, reached: _Reached, steps: list[_Reached], gain: Marking, work: Work) -> bool:
    """Whether the steps fire the same, with the same gain, until more tokens make no difference."""
    at = reached
    for _ in range(_weight(machine.net) + 2):
        before = at.position.marking
        for step in steps:
            assert step.move is not None
            moved = _moved(machine, at, step.move, work)
            if moved is None or moved.fired != step.fired:
                return False
            at = moved
        if tuple(new - old for new, old in zip(at.position.marking, before, strict=True)) != gain:
            return False
    return True


def _names(machine: NetMachine, steps: list[_Reached]) -> tuple[str, ...]:
    return tuple(machine.net.transitions[n].name for step in steps for n in step.fired)


def net_findings(clauses: Iterable[Clause], kinds: CallClasses) -> Iterator[PreflightFinding]:
    """The problems in the nets of a stack; one-line nets cannot have any."""
    for clause in clauses:
        if not isinstance(clause.record, Net):
            continue
        if clause.line:
            yield from _self_satisfied(clause, clause.record, kinds)
        else:
            yield from _unused_places(clause, clause.record)
            machine = NetMachine(clause.record, clause.scope)
            graph = ClauseGraph(clause, machine, kinds, {})
            yield from _net_findings(
                clause, clause.record, walk(machine, {graph.mask(*kind) for kind in kinds.all}, kinds.work)
            )


def _self_satisfied(clause: Clause, net: Net, kinds: CallClasses) -> Iterator[PreflightFinding]:
    """`require a before a`, `limit a to 3 per a`: the tool satisfies its own condition."""
    always = [kinds.of(t.tools, clause) for t in net.transitions if not t.inputs and t.type == "auto"]
    for transition in net.transitions:
        held = kinds.of(transition.tools, clause)
        if transition.inputs and any(held <= free for free in always):
            yield finding(
                "idle_net",
                clause,
                f"`{net.name}` restricts nothing: a call of {names(transition.tools)} satisfies its own condition",
                witness=(f"{names(transition.tools)} is its own condition",),
                suggestion="name another tool",
            )


def _unused_places(clause: Clause, net: Net) -> Iterator[PreflightFinding]:
    """The places that no transition names: whatever is in them, the net allows the same calls."""
    used = {place for transition in net.transitions for place in (*transition.inputs, *transition.outputs)}
    for place in net.places:
        if place not in used:
            yield finding(
                "unused_place",
                clause,
                f"no transition of net `{net.name}` takes from `{place}` or gives to it",
                suggestion=f"name `{place}` in a transition, or remove it",
            )


def _net_findings(clause: Clause, net: Net, walked: Walked) -> Iterator[PreflightFinding]:
    """What the walk through a net shows: growth without bound, an unfinished walk, or transitions that never fire."""
    if walked.growth:
        trace = " -> ".join(walked.growth)
        yield finding(
            "unbounded_net",
            clause,
            f"net `{net.name}` grows without bound: {trace} can repeat forever, and "
            f"{', '.join(f'`{place}`' for place in walked.growing)} gains tokens each time",
            witness=(*walked.lead, *walked.growth),
            suggestion=f"give `{walked.growing[0]}` a `capacity`",
        )
    elif not walked.complete:
        yield finding(
            "gave_up", clause, f"net `{net.name}` has more than {MAX_STATES:,} markings: not all were looked at"
        )
    else:
        for n, transition in enumerate(net.transitions):
            if n in walked.fired:
                continue
            seen = ", ".join(f"{p}: {most}" for p, most in zip(net.places, walked.highest, strict=True))
            yield finding(
                "dead_transition",
                clause,
                f"transition `{transition.name}` of net `{net.name}` can never fire",
                witness=(f"takes from {', '.join(transition.inputs) or 'nothing'}", f"at most {seen}"),
                suggestion="put a token into one of its inputs, or remove the transition",
            )
