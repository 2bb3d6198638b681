"""What a net can do by itself, whatever is called: which transitions ever fire, and whether its tokens are bounded.

The markings are walked through breadth first. Where one grows out of an earlier one, the steps between are repeated
until every growing place holds more than any transition looks for: if they still can be repeated then, they always
can (Karp and Miller's argument, kept true for priorities, capacities and silent transitions).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from ..alphabet.call_classes import Kinds
from .net_model import Looks, Marking, NetModel, NetState

MAX_STATES = 3_000
IN_FLIGHT = 2
"""How many calls of deferred transitions are looked at at once, beyond as many as there are tokens to take."""


class Ask(NamedTuple):
    """A call as the net sees it."""

    looks: Looks


class End(NamedTuple):
    """The end of a call that a deferred transition waits for."""

    transition: int
    failed: bool


Move: TypeAlias = Ask | End


class Walked(msgspec.Struct):
    """`fired`: the transitions that ever fire. `highest`: the most tokens seen in each place.

    `growth`: transitions that can be repeated for ever with tokens growing in `growing`, after those in `lead`.
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
    fired: tuple[int, ...]

    def path(self) -> Iterator[_Reached]:
        """The steps up to here, the last one first."""
        at: _Reached | None = self
        while at is not None:
            yield at
            at = at.before


def walk(model: NetModel, kinds: Kinds) -> Walked:
    """Everything the net can do."""
    calls = {model.looks(kind.name, kind.facets) for kind in kinds.all} - {()}
    asks = [Ask(looks) for looks in sorted(calls)]
    state, fired = model.start()
    first = _Reached(None, None, state, fired)
    seen, queue = {state}, deque([first])
    walked = Walked(fired=set(fired), highest=list(state.marking))
    while queue:
        at = queue.popleft()
        for move in (*asks, *_ends(at.state)):
            reached = _moved(model, at, move)
            if reached is None or reached.state in seen:
                if reached is not None:
                    walked.fired.update(reached.fired)
                continue
            seen.add(reached.state)
            _note(walked, reached)
            if _grows(model, reached, walked) or len(seen) > MAX_STATES:
                walked.complete = False
                return walked
            queue.append(reached)
    return walked


def _ends(state: NetState) -> Iterator[Move]:
    for n in dict.fromkeys(state.waiting):
        yield End(n, failed=False)
        yield End(n, failed=True)


def _moved(model: NetModel, at: _Reached, move: Move) -> _Reached | None:
    """What a move leads to; None if it cannot be made."""
    if isinstance(move, End):
        if move.transition not in at.state.waiting:
            return None
        return _Reached(at, move, *model.end(at.state, move.transition, failed=move.failed))
    firing = model.firing(at.state, move.looks)
    if firing is None:
        return None
    state, silent = model.call(at.state, firing)
    tokenless = sum(not model.net.transitions[n].inputs for n in state.waiting)
    if tokenless > IN_FLIGHT or len(state.waiting) - tokenless > IN_FLIGHT + model.tokens:
        return None
    return _Reached(at, move, state, (*firing, *silent))


def _note(walked: Walked, reached: _Reached) -> None:
    walked.fired.update(reached.fired)
    walked.highest = [max(pair) for pair in zip(walked.highest, reached.state.marking, strict=True)]


def _grows(model: NetModel, reached: _Reached, walked: Walked) -> bool:
    """Whether the steps from an earlier, smaller marking to this one can be repeated for ever."""
    steps: list[_Reached] = []
    for earlier in reached.path():
        if earlier is not reached and _covers(reached.state, earlier.state):
            gain = tuple(new - old for new, old in zip(reached.state.marking, earlier.state.marking, strict=True))
            if model.may_grow(gain) and _repeats(model, reached, list(reversed(steps)), gain):
                lead = [step for step in earlier.path() if step.fired]
                walked.lead = _names(model, list(reversed(lead)))
                walked.growth = _names(model, list(reversed(steps)))
                walked.growing = tuple(p for p, more in zip(model.net.places, gain, strict=True) if more)
                return True
        steps.append(earlier)
    return False


def _covers(state: NetState, earlier: NetState) -> bool:
    pairs = zip(state.marking, earlier.marking, strict=True)
    return state.waiting == earlier.waiting and all(new >= old for new, old in pairs)


def _repeats(model: NetModel, reached: _Reached, steps: list[_Reached], gain: Marking) -> bool:
    """Whether the steps fire the same, with the same gain, until more tokens make no difference."""
    at = reached
    for _ in range(model.weight + 2):
        before = at.state.marking
        for step in steps:
            assert step.move is not None
            moved = _moved(model, at, step.move)
            if moved is None or moved.fired != step.fired:
                return False
            at = moved
        if tuple(new - old for new, old in zip(at.state.marking, before, strict=True)) != gain:
            return False
    return True


def _names(model: NetModel, steps: list[_Reached]) -> tuple[str, ...]:
    return tuple(t.name for step in steps for t in model.named(step.fired))
