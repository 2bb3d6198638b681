"""The search over sessions: every state that a stack's rules and one rule of a property can reach together.

Sessions are gone through by the number of their calls, so that the first one found is a shortest. What has been
searched is a certificate, which `certificate.check` verifies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..monitor.program import Program
from ..policy import Policy
from ..stack.merge import BudgetEntry, LimitEntry
from ..values.work_budget import Work
from .components import ASK, DENY, IN_FLIGHT, NOTHING, Component, InputClass, Reaction, Standard
from .explorer import Explored, Price, shortest

if TYPE_CHECKING:
    from .played_rule import PlayedRule


class SessionStep(NamedTuple):
    """The next event in a session.

    `kind` is `call`, `end` (of a call in flight), `turn`, `run`, `user` or `finish`. `level` is what the stack
    answers to a call. `outcome` is how it ends at once: the number of its output, FAILED, RUNNING or REFUSED.
    """

    kind: str
    call: InputClass | None = None
    level: int = NOTHING
    outcome: int = 0
    slot: int = 0
    text: str = ""


FAILED, RUNNING, REFUSED = -1, -2, -3
NONE_RUNNING: tuple[int, ...] = (-1,) * IN_FLIGHT

State: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Where each component stands, and the class of the call in each slot of those in flight; -1: none."""


class SessionProduct(NamedTuple):
    """The rules of a stack that are looked at, one rule of a property, and what may happen.

    `phantoms`: also calls without an example. `alike` has for each call the first that ends as it does, which stands
    for it while it is in flight. `any_refused`: each call may also be refused by a part of the stack that is not
    looked at, which may end the run.
    """

    stack: Sequence[Component]
    rule: Component
    calls: Sequence[InputClass]
    texts: Sequence[str]
    standard: Standard
    phantoms: bool = True
    alike: Sequence[int] = ()
    any_refused: bool = False

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
        at, flying = state
        if any(n in part.beyond for part, n in zip(self._parts, at, strict=True)):
            return
        for call in self._calls:
            yield from self._called(at, flying, call)
        yield from self._ends(at, flying)
        yield from self._events(at, flying)

    def _called(
        self, before: tuple[int, ...], flying: tuple[int, ...], call: InputClass
    ) -> Iterator[tuple[SessionStep, State | None]]:
        product = self._product
        at = [part.requested(n, call) for part, n in zip(self._parts, before, strict=True)]
        *found, broken = [part.level(n, call) for part, n in zip(self._parts, at, strict=True)]
        level = max(found, default=NOTHING)
        if (level >= ASK or product.any_refused) and self._watches_denial[call.number]:
            after, left = self._refused(at, call, flying)
            yield SessionStep("call", call, level, REFUSED), (after, left)
            if product.any_refused and left != NONE_RUNNING:
                yield SessionStep("call", call, level, REFUSED), (after, NONE_RUNNING)
        if level >= DENY:
            return
        if product.standard.breaks(broken, level, of_call=True):
            yield SessionStep("call", call, level, RUNNING), None
            return
        ran = self._started(at, call, IN_FLIGHT)
        if not self._watches_end[call.number]:
            yield SessionStep("call", call, level, 0), (ran, flying)
            return
        for outcome, ended in self._ended(ran, call, IN_FLIGHT, flying):
            yield SessionStep("call", call, level, outcome), ended
        if -1 in flying:
            free = flying.index(-1)
            now = (*flying[:free], product.alike[call.number], *flying[free + 1 :])
            yield SessionStep("call", call, level, RUNNING, free), (self._started(at, call, free), now)

    def _started(self, at: Sequence[int], call: InputClass, slot: int) -> tuple[int, ...]:
        return tuple([part.started(n, call, slot) for part, n in zip(self._parts, at, strict=True)])

    def _refused(self, at: Sequence[int], call: InputClass, flying: tuple[int, ...]) -> State:
        """Where a refusal leads, which breaks nothing: the call never ran."""
        outcomes = [part.denied(n, call) for part, n in zip(self._parts, at, strict=True)]
        ends = any(found >= DENY for found, _ in outcomes[:-1])
        return tuple(after for _, after in outcomes), NONE_RUNNING if ends else flying

    def _ended(
        self, at: Sequence[int], call: InputClass, slot: int, flying: tuple[int, ...]
    ) -> Iterator[tuple[int, State | None]]:
        """The outcomes of a call in a slot that a part tells apart, and where each may lead."""
        seen = set()
        for output in (*range(len(call.outputs)), None):
            outcomes = tuple([part.ended(n, call, slot, output) for part, n in zip(self._parts, at, strict=True)])
            if outcomes not in seen:
                seen.add(outcomes)
                yield from ((FAILED if output is None else output, state) for state in self._over(outcomes, flying))

    def _over(self, outcomes: Sequence[Reaction], flying: tuple[int, ...]) -> list[State | None]:
        """Where an outcome may lead; None where it breaks the property. What the stack denies of it ends the run, or
        it goes on where the adapter can refuse later calls.
        """
        after = tuple([n for _, n in outcomes])
        found = [each for each, _ in outcomes]
        level = max(found[:-1], default=NOTHING)
        if level >= DENY:
            return [(after, NONE_RUNNING), *([(after, flying)] if self._goes_on(found) else [])]
        return [None if self._product.standard.breaks(found[-1], level) else (after, flying)]

    def _goes_on(self, found: Sequence[int]) -> bool:
        """Whether a run may go on although the stack denies what has happened."""
        return all(part.goes_on for part, each in zip(self._parts[:-1], found, strict=False) if each >= DENY)

    def _ends(self, at: tuple[int, ...], flying: tuple[int, ...]) -> Iterator[tuple[SessionStep, State | None]]:
        for slot, number in enumerate(flying):
            if number < 0:
                continue
            call = self._product.calls[number]
            left = (*flying[:slot], -1, *flying[slot + 1 :])
            for outcome, ended in self._ended(at, call, slot, left):
                yield SessionStep("end", call, outcome=outcome, slot=slot), ended

    def _events(self, at: tuple[int, ...], flying: tuple[int, ...]) -> Iterator[tuple[SessionStep, State | None]]:
        parts = self._parts
        if any(part.turns for part in parts):
            yield from self._begun("turn", [part.turned(n) for part, n in zip(parts, at, strict=True)], flying)
        if any(part.runs for part in parts):
            again = [part.resumed(n) for part, n in zip(parts, at, strict=True)]
            yield from self._begun("run", again, NONE_RUNNING)
        for text in self._product.texts:
            wrote = tuple(part.wrote(n, text) for part, n in zip(parts, at, strict=True))
            yield SessionStep("user", text=text), (wrote, flying)

    def _begun(
        self, kind: str, outcomes: list[Reaction], flying: tuple[int, ...]
    ) -> Iterator[tuple[SessionStep, State | None]]:
        """A turn or a run begins, unless the stack ends it at once."""
        found = [each for each, _ in outcomes]
        level = max(found[:-1], default=NOTHING)
        if level < DENY or self._goes_on(found):
            broken = level < DENY and self._product.standard.breaks(found[-1], level)
            yield SessionStep(kind), None if broken else (tuple(n for _, n in outcomes), flying)


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

    return shortest(product.initial, steps, deepest)


def ending_alike(parts: Sequence[Component], calls: Sequence[InputClass]) -> list[int]:
    """For each call the number of the first whose end makes no other difference."""
    first: dict[object, int] = {}
    return [first.setdefault((tuple(part.ends_as(c) for part in parts), str(c.outputs)), c.number) for c in calls]


class Side(NamedTuple):
    """A policy as the search sees it: its rules by id, its limits, and its program without checks in Python."""

    program: Program
    rules: dict[str, PlayedRule]
    limits: tuple[LimitEntry, ...]


class ProofCertificate(NamedTuple):
    """The rules, the calls and the states of one proof: that a stack's rules imply one rule of a property."""

    product: SessionProduct
    states: frozenset[State]


class SameRuleCertificate(NamedTuple):
    """A rule of the stack that is, word by word, one of the property, and their actions."""

    mine: PlayedRule
    rule: PlayedRule
    standard: Standard


class AmountCertificate(NamedTuple):
    """Limits of the stack that together end a run before it exceeds one of the property, or the very same limit; by
    the prices of both policies.
    """

    mine: tuple[LimitEntry, ...]
    limit: LimitEntry
    standard: Standard
    stack: Policy
    property: Policy


class BudgetCertificate(NamedTuple):
    """A budget of the stack that is one of the property, with no more in it, by the prices of both policies."""

    mine: BudgetEntry
    budget: BudgetEntry
    standard: Standard
    stack: Policy
    property: Policy


class NothingCertificate(NamedTuple):
    """A property that nothing can break, by the standard of the question."""

    property: Side
    standard: Standard


Certificate: TypeAlias = (
    ProofCertificate | SameRuleCertificate | AmountCertificate | BudgetCertificate | NothingCertificate
)
BOUNDED_BY: dict[str, list[tuple[str, ...]]] = {
    "max_total_tokens": [("max_input_tokens", "max_output_tokens")],
    "max_input_tokens": [("max_total_tokens",)],
    "max_output_tokens": [("max_total_tokens",)],
    "max_idle_ms": [("max_duration_ms",)],
}
"""For an amount other limits that together bound it, in each way."""
