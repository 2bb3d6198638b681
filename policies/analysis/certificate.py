"""The certificates of proofs, and their check. That of a search is an inductive invariant: a set of states with the
first one, which no step leaves, and in none of which the property is broken.

The check repeats no search and uses none of its code. It asks the rules' own machines again for every state and
every call, and remembers nothing of what the search was answered.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from ..policy import Policy
from ..rules.python_check import Check
from ..stack.merge import BudgetEntry, LimitEntry, price_tables
from .components import ASK, AT_ONCE, DENY, LEVELS, NOTHING, RUNS_ON, WARN, Component, InputClass, Reaction, Standard
from .session_search import SessionProduct, State, ending_alike

if TYPE_CHECKING:
    from .played_rule import PlayedRule, Side


class ProofCertificate(NamedTuple):
    """The rules, the calls and the states of one proof: that a stack's rules imply one rule of a property."""

    product: SessionProduct
    states: frozenset[State]


class SameRuleCertificate(NamedTuple):
    """A rule of the stack that is, word by word, one of the property, and their actions."""

    mine: PlayedRule
    rule: PlayedRule
    standard: Standard

    def holds(self) -> bool:
        mine, rule, standard = self
        as_strict = not standard.widened and _as_strict(mine.rule.action, rule.rule.action, standard)
        names = mine.clause.scope.same_names(rule.clause.scope) and mine.virtual_tools == rule.virtual_tools
        only_warns = standard.strict and isinstance(rule.clause.record, Check)  # it may answer a `Refuse` that warns
        return as_strict and names and not only_warns and mine.sentence == rule.sentence


class AmountCertificate(NamedTuple):
    """Limits of the stack that together end a run before it exceeds one of the property, or the very same limit; by
    the prices of both policies.
    """

    mine: tuple[LimitEntry, ...]
    limit: LimitEntry
    standard: Standard
    stack: Policy
    property: Policy

    def holds(self) -> bool:
        mine, limit, standard, stack, property = self
        money, bounding = limit.kind.is_money, [(limit.name,), *BOUNDED_BY.get(limit.name, [])]
        if tuple(entry.name for entry in mine) not in bounding or (money and not _costs_no_less(stack, property)):
            return False
        if all(entry.action == "cancel" for entry in mine):  # a run that ends uses no more
            wide = all(entry.limit.scope == "session" or limit.limit.scope == "run" for entry in mine)
            return wide and sum(entry.limit.max for entry in mine) <= limit.limit.max
        alike = [(e.name, e.limit.max, e.limit.scope) for e in (*mine, limit)]
        agreed = mine[0].action == limit.action == "request_approval" and not standard.widened
        same = len(mine) == len(set(alike)) == 1 and (not money or _costs_no_less(property, stack))
        return same and (mine[0].action == "deny" or agreed)


class BudgetCertificate(NamedTuple):
    """A budget of the stack that is one of the property, with no more in it, by the prices of both policies."""

    mine: BudgetEntry
    budget: BudgetEntry
    standard: Standard
    stack: Policy
    property: Policy

    def holds(self) -> bool:
        mine, budget, standard, stack, property = self
        if mine.budget.kind.is_money and not _costs_no_less(stack, property):
            return False
        name = mine.budget.limit
        alike = replace(mine.budget, action=budget.budget.action, **{name: getattr(budget.budget, name)})
        same = mine.id == budget.id and alike == budget.budget and mine.budget.max <= budget.budget.max
        return same and _as_strict(mine.action, budget.action, standard)


class NothingCertificate(NamedTuple):
    """A property that nothing can break, by the standard of the question."""

    property: Side
    standard: Standard

    def holds(self) -> bool:
        property, standard = self
        figures: tuple[Any, ...] = (*property.limits, *property.program.budgets.entries)
        return not property.rules and all(not standard.strict and LEVELS[e.action] <= WARN for e in figures)


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


def check(certificate: Certificate) -> list[str]:
    """The errors in a certificate, one sentence each; empty if it proves what it claims."""
    if isinstance(certificate, ProofCertificate):
        return list(_Checker(certificate).problems())
    return [] if certificate.holds() else [f"not so: {type(certificate).__doc__}"]


def _as_strict(mine: str, other: str, standard: Standard) -> bool:
    """Whether one action is as strict as another, wherever both are given."""
    stack, property = LEVELS[mine], LEVELS[other]
    agreed = not standard.widened and (stack == property == ASK or (not standard.strict and stack >= property))
    return stack == DENY or agreed


def _costs_no_less(stack: Policy, property: Policy) -> bool:
    """Whether each use costs at least as much by the stack's prices, and what has no price is no less refused."""
    refused = stack.unpriced == "reject" or property.unpriced != "reject"
    return refused and price_tables(stack).at_least(price_tables(property))


NONE = -1


class _Checker:
    def __init__(self, certificate: ProofCertificate) -> None:
        product = certificate.product
        self.states, self.calls, self.texts = certificate.states, product.calls, product.texts
        self.stack = [_forgetful(part) for part in product.stack]
        self.property = _forgetful(product.rule)
        self.parts = [*self.stack, self.property]
        self.standard, self.any_refused = product.standard, product.any_refused
        self.alike = ending_alike(self.parts, self.calls)

    def problems(self) -> Iterator[str]:
        """The first state must be in the set, no state be wrong, and nothing lead out."""
        if [call.number for call in self.calls] != list(range(len(self.calls))):
            yield "the classes of calls are not numbered in order"
            return
        start = (tuple(part.start for part in self.parts), NONE)
        if start not in self.states:
            yield "the beginning of a session is not among the states"
        for state in self.states:
            if not self._fits(state):
                yield f"{state} is no state of these rules"
                continue
            if self._ends_wrong(state[0]):
                yield f"the property is broken if the session ends at {state}"
            for after, what in self._moves(state):
                if after not in self.states:
                    where = "breaks the property" if after is None else f"leads to {after}, not among the states,"
                    yield f"{what} {where} at {state}"

    def _fits(self, state: State) -> bool:
        at, in_flight = state
        in_range = all(0 <= n < part.size for n, part in zip(at, self.parts, strict=False))
        return len(at) == len(self.parts) and in_range and NONE <= in_flight < len(self.calls)

    def _ends_wrong(self, at: tuple[int, ...]) -> bool:
        kept = all(part.obligation(n) < ASK for part, n in zip(self.stack, at, strict=False))
        return kept and self.property.obligation(at[-1]) > (NOTHING if self.standard.strict else WARN)

    def _moves(self, state: State) -> Iterator[tuple[State | None, str]]:
        """Each step from a state, in words, with the state after it; None where it breaks the property."""
        at, in_flight = state
        for call in self.calls:
            yield from self._of_call(at, in_flight, call)
        if in_flight != NONE:
            for after in self._endings(at, self.calls[in_flight], RUNS_ON, NONE):
                yield after, f"the end of a call of `{self.calls[in_flight].name}`"
        if any(part.turns for part in self.parts):
            begun = self._begun([part.turned(n) for part, n in zip(self.parts, at, strict=True)], in_flight)
            yield from ((after, "another turn") for after in begun)
        if any(part.runs for part in self.parts):
            begun = self._begun([part.resumed(n) for part, n in zip(self.parts, at, strict=True)], NONE)
            yield from ((after, "another run") for after in begun)
        for text in self.texts:
            yield (
                (tuple(p.wrote(n, text) for p, n in zip(self.parts, at, strict=True)), in_flight),
                "a user's message",
            )

    def _of_call(self, at: tuple[int, ...], in_flight: int, call: InputClass) -> Iterator[tuple[State | None, str]]:
        """The states after a call of a class, in each way it may be decided and end, with the call in words."""
        what = f"a call of `{call.name}` with {call.input}"
        at = tuple(part.requested(n, call) for part, n in zip(self.parts, at, strict=True))
        level = max((part.level(n, call) for part, n in zip(self.stack, at, strict=False)), default=NOTHING)
        if (level >= ASK or self.any_refused) and any(part.watches_denial(call) for part in self.parts):
            refused = [part.denied(n, call) for part, n in zip(self.parts, at, strict=True)]
            where = tuple(n for _, n in refused)
            ends = any(found >= DENY for found, _ in refused[:-1])
            if not ends:
                yield (where, in_flight), f"{what}, refused,"
            if ends or self.any_refused:
                yield (where, NONE), f"{what}, refused,"
        if level >= DENY:
            return
        found = self.property.level(at[-1], call)
        if self._is_wrong(found, level) or (self.standard.widened and found == level == ASK):
            yield None, what
            return
        ran = self._run(at, call, AT_ONCE)
        if not any(part.watches_end(call) for part in self.parts):
            yield (ran, in_flight), what
            return
        yield from ((after, what) for after in self._endings(ran, call, AT_ONCE, in_flight))
        if in_flight == NONE:
            yield (self._run(at, call, RUNS_ON), self.alike[call.number]), f"{what}, running,"

    def _run(self, at: tuple[int, ...], call: InputClass, slot: int) -> tuple[int, ...]:
        return tuple(part.started(n, call, slot) for part, n in zip(self.parts, at, strict=True))

    def _endings(self, at: tuple[int, ...], call: InputClass, slot: int, in_flight: int) -> Iterator[State | None]:
        for output in (*range(len(call.outputs)), None):
            outcomes = [part.ended(n, call, slot, output) for part, n in zip(self.parts, at, strict=True)]
            level = max((found for found, _ in outcomes[:-1]), default=NOTHING)
            if level >= DENY:
                yield tuple(n for _, n in outcomes), NONE
            yield from self._begun(outcomes, in_flight)

    def _begun(self, outcomes: list[Reaction], in_flight: int) -> Iterator[State | None]:
        """The state after what has happened, if the run goes on; None where that breaks the property."""
        level = max((found for found, _ in outcomes[:-1]), default=NOTHING)
        denying = [part for part, (found, _) in zip(self.stack, outcomes, strict=False) if found >= DENY]
        if all(part.refuses_later for part in denying):
            wrong = not denying and self._is_wrong(outcomes[-1][0], level)
            yield None if wrong else (tuple(n for _, n in outcomes), in_flight)

    def _is_wrong(self, found: int, level: int) -> bool:
        if not self.standard.strict:
            return found > max(level, WARN)
        return found != NOTHING and not (found == ASK and level >= ASK)


def _forgetful(part: Component) -> Component:
    made = copy.copy(part)
    made.forget()  # the states stay, the answers that the search was given go
    return made
