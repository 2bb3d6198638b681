"""The search over sessions: every state that a stack's rules and one rule of a property can reach together.

Sessions are gone through by the number of their calls, so that the first one found is a shortest.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ..rules.machine import Machine
from ..rules.petri_net import NetMachine
from ..stack.merge import BudgetEntry
from ..values.work_budget import Work
from .components import (
    ASK,
    AT_ONCE,
    DENY,
    MOST_TOKENS,
    NOTHING,
    RUNS_ON,
    Component,
    InputClass,
    Reaction,
    RuleComponent,
    Standard,
)
from .explorer import Explored, Price, shortest
from .played_rule import SplitComponent


class SessionStep(NamedTuple):
    """The next event in a session.

    `kind` is `call`, `end` (of the call that runs on), `turn`, `run`, `user`, `budget` (used up by other runs) or
    `finish`. `level` is what the stack answers to a call. `outcome` is how it ends at once: the number of its output,
    FAILED, RUNNING or DENIED.
    """

    kind: str
    call: InputClass | None = None
    level: int = NOTHING
    outcome: int = 0
    text: str = ""
    budget: BudgetEntry | None = None


FAILED, RUNNING, DENIED = -1, -2, -3
NONE_RUNNING = -1

State: TypeAlias = tuple[tuple[int, ...], int]
"""Where each component stands, and the class of the call that runs on."""


class SessionProduct(NamedTuple):
    """The rules of a stack that are looked at, one rule of a property, and what may happen.

    `phantoms`: also calls without an example. `alike` has for each call the first that ends as it does, which stands
    for it while it is in flight. `any_denied`: each call may also be denied by a part of the stack that is not
    looked at, which may end the run.
    """

    stack: Sequence[Component]
    rule: Component
    calls: Sequence[InputClass]
    texts: Sequence[str]
    standard: Standard
    phantoms: bool = True
    alike: Sequence[int] = ()
    any_denied: bool = False

    @property
    def parts(self) -> tuple[Component, ...]:
        """All components, the property's last."""
        return (*self.stack, self.rule)

    @property
    def initial(self) -> State:
        """Where a session begins."""
        return tuple(part.start for part in self.parts), NONE_RUNNING


class SessionSteps:
    """The steps from each state of a product. Each part answers once what a call does to it."""

    def __init__(self, product: SessionProduct) -> None:
        self._product, self._parts = product, product.parts
        self._calls = [call for call in product.calls if product.phantoms or not call.phantom]
        self._watches_end = {c.number: any(p.watches_end(c) for p in self._parts) for c in product.calls}
        self._watches_denial = {c.number: any(p.watches_denial(c) for p in self._parts) for c in product.calls}

    def broken_at_end(self, at: Sequence[int]) -> bool:
        """Whether the property is broken, and the stack is not, were the session to end."""
        product = self._product
        broken = product.standard.breaks_at_end(product.rule.obligation(at[-1]))
        return broken and all(part.obligation(n) < ASK for part, n in zip(product.stack, at, strict=False))

    def __call__(self, state: State) -> Iterator[tuple[SessionStep, State | None]]:
        """The possible next events and the state each leads to; None where it breaks the property."""
        at, in_flight = state
        if any(n in part.beyond for part, n in zip(self._parts, at, strict=True)):
            return
        for call in self._calls:
            yield from self._called(at, in_flight, call)
        if in_flight != NONE_RUNNING:
            call = self._product.calls[in_flight]
            for outcome, ended in self._ended(at, call, RUNS_ON, NONE_RUNNING):
                yield SessionStep("end", call, outcome=outcome), ended
        yield from self._events(at, in_flight)

    def _called(
        self, before: tuple[int, ...], in_flight: int, call: InputClass
    ) -> Iterator[tuple[SessionStep, State | None]]:
        product = self._product
        at = [part.requested(n, call) for part, n in zip(self._parts, before, strict=True)]
        *found, broken = [part.level(n, call) for part, n in zip(self._parts, at, strict=True)]
        level = max(found, default=NOTHING)
        if (level >= ASK or product.any_denied) and self._watches_denial[call.number]:
            after, left = self._denied(at, call, in_flight)
            yield SessionStep("call", call, level, DENIED), (after, left)
            if product.any_denied and left != NONE_RUNNING:
                yield SessionStep("call", call, level, DENIED), (after, NONE_RUNNING)
        if level >= DENY:
            return
        if product.standard.breaks(broken, level, of_call=True):
            yield SessionStep("call", call, level, RUNNING), None
            return
        ran = self._started(at, call, AT_ONCE)
        if not self._watches_end[call.number]:
            yield SessionStep("call", call, level, 0), (ran, in_flight)
            return
        for outcome, ended in self._ended(ran, call, AT_ONCE, in_flight):
            yield SessionStep("call", call, level, outcome), ended
        if in_flight == NONE_RUNNING:
            running = self._started(at, call, RUNS_ON), product.alike[call.number]
            yield SessionStep("call", call, level, RUNNING), running

    def _started(self, at: Sequence[int], call: InputClass, slot: int) -> tuple[int, ...]:
        return tuple([part.started(n, call, slot) for part, n in zip(self._parts, at, strict=True)])

    def _denied(self, at: Sequence[int], call: InputClass, in_flight: int) -> State:
        """Where a denial leads, which breaks nothing: the call never ran."""
        outcomes = [part.denied(n, call) for part, n in zip(self._parts, at, strict=True)]
        ends = any(found >= DENY for found, _ in outcomes[:-1])
        return tuple(after for _, after in outcomes), NONE_RUNNING if ends else in_flight

    def _ended(
        self, at: Sequence[int], call: InputClass, slot: int, in_flight: int
    ) -> Iterator[tuple[int, State | None]]:
        """The outcomes of a call in a slot that a part tells apart, and where each may lead."""
        seen = set()
        for output in (*range(len(call.outputs)), None):
            outcomes = tuple([part.ended(n, call, slot, output) for part, n in zip(self._parts, at, strict=True)])
            if outcomes not in seen:
                seen.add(outcomes)
                outcome = FAILED if output is None else output
                if any(found >= DENY for found, _ in outcomes[:-1]):  # it ends the run
                    yield outcome, (tuple([n for _, n in outcomes]), NONE_RUNNING)
                yield from ((outcome, state) for state in self._going_on(outcomes, in_flight))

    def _going_on(self, outcomes: Sequence[Reaction], in_flight: int) -> Iterator[State | None]:
        """The state after what has happened, if the run goes on; None where that breaks the property. It goes on
        unless the stack denies what has happened, and cannot deny later calls instead.
        """
        *denials, (broken, _) = outcomes
        level = max([found for found, _ in denials], default=NOTHING)
        denying = [part for part, (found, _) in zip(self._parts, denials, strict=False) if found >= DENY]
        if not denying and self._product.standard.breaks(broken, level):
            yield None
        elif all(part.denies_later for part in denying):
            yield tuple([n for _, n in outcomes]), in_flight

    def _events(self, at: tuple[int, ...], in_flight: int) -> Iterator[tuple[SessionStep, State | None]]:
        parts = self._parts
        if any(part.turns for part in parts):
            turned = [part.turned(n) for part, n in zip(parts, at, strict=True)]
            yield from ((SessionStep("turn"), state) for state in self._going_on(turned, in_flight))
        if any(part.runs for part in parts):
            resumed = [part.resumed(n) for part, n in zip(parts, at, strict=True)]
            yield from ((SessionStep("run"), state) for state in self._going_on(resumed, NONE_RUNNING))
        for text in self._product.texts:
            wrote = tuple(part.wrote(n, text) for part, n in zip(parts, at, strict=True))
            yield SessionStep("user", text=text), (wrote, in_flight)


FEWEST_PARTS = 4
"""Fewer parts of a stack have so few states together that looking ahead is not worth it."""
MOST_MOVES = 40
"""How many states of one part are looked at to know what moves it; of one with more, nothing is said."""


class _Moves(NamedTuple):
    """The states of one part by itself, and the numbers of the calls that move it from one to another: all, and those
    that are no goals.
    """

    states: Sequence[int]
    movers: frozenset[int]
    first: frozenset[int]


class CallsAhead:
    """A lower bound on the calls still to come, up to the one that breaks the property.

    A part that denies all calls that could break it, the goals, must be moved by another call first; so must one that
    denies all calls that move such a part. Only parts count that no call but a goal moves together. There is no bound
    where more than a call may break the property.
    """

    def __init__(self, product: SessionProduct) -> None:
        self._product, self._parts = product, product.parts
        self._goals: list[InputClass] = []
        self._moves_of: dict[int, _Moves] = {}
        rule = self._moves(product.rule, frozenset()) if len(product.stack) >= FEWEST_PARTS else None
        if rule is None or any(map(product.rule.obligation, rule.states)):
            return
        self._goals = [call for call in product.calls if any(product.rule.level(at, call) for at in rule.states)]
        goals = frozenset(call.number for call in self._goals)
        found = [*(self._moves(part, goals) for part in product.stack), rule]
        moved: set[int] = set()
        for n, moves in sorted(enumerate(found), key=lambda each: len(each[1].first) if each[1] else 0):
            if moves and moves.first and moved.isdisjoint(moves.first):
                self._moves_of[n] = moves
                moved |= moves.first

    def _moves(self, part: Component, goals: frozenset[int]) -> _Moves | None:
        """What moves a part; None if that is too much, or if more than a call that runs may move or break it."""
        if not isinstance(part, RuleComponent | SplitComponent) or _may_grow(part.rule.machine):
            return None
        calls, texts = self._product.calls, self._product.texts
        if part.turns or any(map(part.watches_denial, calls)):
            return None
        states, movers = [part.start], set[int]()
        for at in states:
            if len(states) > MOST_MOVES or any(part.wrote(at, text) != at for text in texts):
                return None
            for call in calls:
                for found, after in _reactions(part, at, call):
                    if found:
                        return None
                    if after != at:
                        movers.add(call.number)
                    if after not in states:
                        states.append(after)
        return _Moves(states, frozenset(movers), frozenset(movers - goals))

    def __call__(self, state: State) -> int:
        if not self._goals:
            return 0
        at, in_flight = state
        waiting = {n: moves for n, moves in self._moves_of.items() if in_flight not in moves.movers}
        rule = waiting.pop(len(at) - 1, None)
        ahead = 1 + self._denying(at, waiting, self._goals)
        if rule is None or any(self._product.rule.level(at[-1], call) for call in self._goals):
            return ahead
        # Until the rule is moved, goals may run, and one of them may move several parts.
        unmoved = {n: moves for n, moves in waiting.items() if moves.first == moves.movers}
        return ahead + 1 + self._denying(at, unmoved, self._calls(rule))

    def _denying(self, at: Sequence[int], waiting: dict[int, _Moves], calls: Sequence[InputClass]) -> int:
        """How many of these parts have to leave their states before one of these calls can run; they are removed."""
        ahead = [calls]
        for each in ahead:
            denying = [n for n in waiting if all(self._parts[n].level(at[n], call) >= DENY for call in each)]
            ahead += [self._calls(waiting.pop(n)) for n in denying]
        return len(ahead) - 1

    def _calls(self, moves: _Moves) -> Sequence[InputClass]:
        return [self._product.calls[number] for number in moves.first]


def _may_grow(machine: Machine) -> bool:
    """Whether it is a net that may come to hold more tokens than are followed."""
    if not isinstance(machine, NetMachine):
        return False
    net = machine.net
    most = (net.capacity.get(place, MOST_TOKENS + 1) for t in net.transitions for place in t.outputs)
    return max((*net.initial_marking.values(), *most), default=0) > MOST_TOKENS


def _reactions(part: RuleComponent | SplitComponent, at: int, call: InputClass) -> Iterator[Reaction]:
    """What a call may do to a part: at its start, and at its end, also if others came between."""
    ran = part.started(at, call, AT_ONCE)
    if not part.watches_end(call):
        yield NOTHING, ran
        return
    yield NOTHING, part.started(at, call, RUNS_ON)
    for output in (*range(len(call.outputs)), None):
        yield part.ended(ran, call, AT_ONCE, output)
        yield part.ended(at, call, RUNS_ON, output)


def explore(product: SessionProduct, work: Work, deepest: int | None = None) -> Explored[State, SessionStep]:
    """A shortest session that breaks the property, or every state there is. Raises SearchEndedError.

    `deepest`: sessions of more calls than that are of no interest.
    """
    weight = len(product.parts) * len(product.calls) // 4
    last_spent = 0
    possible = SessionSteps(product)

    def steps(state: State) -> Iterator[tuple[SessionStep, Price, State | None]]:
        nonlocal last_spent
        now = sum(part.spent for part in product.parts)
        work.spend(now - last_spent + weight)
        last_spent = now
        if possible.broken_at_end(state[0]):
            yield SessionStep("finish"), (0, 0), None
            return
        for step, after in possible(state):
            work.spend()
            yield step, (1, 0) if step.kind == "call" else (0, 1), after

    return shortest(product.initial, steps, deepest, CallsAhead(product))


def ending_alike(parts: Sequence[Component], calls: Sequence[InputClass]) -> list[int]:
    """For each call the number of the first whose end makes no other difference."""
    first: dict[object, int] = {}
    return [first.setdefault((tuple(part.ends_as(c) for part in parts), str(c.outputs)), c.number) for c in calls]
