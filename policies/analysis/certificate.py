"""The certificate of a proof, and its check: a set of states that nothing leads out of, none of which is wrong.

The check repeats no search and uses none of its code. It asks the rules' own machines again for every state and
every call, and remembers nothing of what the search was answered.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..stack.merge import LimitEntry
from .alphabet import PlayedRule
from .components import ASK, DENY, IN_FLIGHT, LEVELS, NOTHING, WARN, LimitComponent
from .session_search import ending_alike
from .split_component import SplitComponent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .components import InputClass, Outcome
    from .session_search import SessionProduct, State
    from .split_component import Component


class ProofCertificate(NamedTuple):
    """The rules, the calls and the states of one proof: that a stack's rules imply one rule of a property."""

    product: SessionProduct
    states: frozenset[State]


class SameRuleCertificate(NamedTuple):
    """A rule of the stack that is, word by word, one of the property, and their actions."""

    mine: PlayedRule
    rule: PlayedRule
    strict: bool


class AmountCertificate(NamedTuple):
    """Limits of the stack that together end a run before it exceeds one of the property, or the very same limit."""

    mine: tuple[LimitEntry, ...]
    limit: LimitEntry


Certificate: TypeAlias = ProofCertificate | SameRuleCertificate | AmountCertificate
BOUNDED_BY: dict[str, list[tuple[str, ...]]] = {
    "max_total_tokens": [("max_input_tokens", "max_output_tokens")],
    "max_input_tokens": [("max_total_tokens",)],
    "max_output_tokens": [("max_total_tokens",)],
    "max_idle_ms": [("max_duration_ms",)],
}
"""For an amount other limits that together bound it, in each way."""


def check(certificate: Certificate) -> list[str]:
    """The errors in a certificate, one sentence each; empty if it proves what it claims."""
    if isinstance(certificate, SameRuleCertificate):
        return [] if _is_same(*certificate) else ["the rules are not the same"]
    if isinstance(certificate, AmountCertificate):
        return [] if _bounds(*certificate) else ["the limits do not bound the amount"]
    return list(_Checker(certificate).problems())


def _is_same(mine: PlayedRule, rule: PlayedRule, strict: bool) -> bool:
    stack, property = LEVELS[mine.rule.action], LEVELS[rule.rule.action]
    as_strict = stack == DENY or stack == property == ASK or (not strict and stack >= property)
    names = mine.clause.scope.same_names(rule.clause.scope) and mine.virtual_tools == rule.virtual_tools
    return as_strict and names and mine.clause.record == rule.clause.record


def _bounds(mine: tuple[LimitEntry, ...], limit: LimitEntry) -> bool:
    named = tuple(entry.name for entry in mine)
    if named not in [(limit.name,), *BOUNDED_BY.get(limit.name, [])]:
        return False
    if all(entry.action == "cancel" for entry in mine):  # a run that ends uses no more
        wide = all(entry.limit.scope == "session" or limit.limit.scope == "run" for entry in mine)
        return wide and sum(entry.limit.max for entry in mine) <= limit.limit.max
    alike = [(e.name, e.limit.max, e.limit.scope) for e in mine] == [(limit.name, limit.limit.max, limit.limit.scope)]
    return alike and (mine[0].action == "deny" or mine[0].action == limit.action == "request_approval")


class _Checker:
    def __init__(self, certificate: ProofCertificate) -> None:
        product = certificate.product
        self.states, self.calls, self.texts = certificate.states, product.calls, product.texts
        self.stack = [_forgetful(part) for part in product.stack]
        self.property = _forgetful(product.rule)
        self.parts = [*self.stack, self.property]
        self.strict, self.any_refused = product.strict, product.any_refused
        self.alike = ending_alike(self.parts, self.calls)

    def problems(self) -> Iterator[str]:
        """The first state must be in the set, no state be wrong, and nothing lead out."""
        if [call.number for call in self.calls] != list(range(len(self.calls))):
            yield "the classes of calls are not numbered in order"
            return
        start = (tuple(part.start for part in self.parts), (-1,) * IN_FLIGHT)
        if start not in self.states:
            yield "the beginning of a session is not among the states"
        for state in self.states:
            if not self._fits(state):
                yield f"{state} is no state of these rules"
                continue
            if self._ends_wrong(state[0]):
                yield f"the property is broken if the session ends at {state}"
            yield from self._leads_out(state)

    def _fits(self, state: State) -> bool:
        at, flying = state
        if (len(at), len(flying)) != (len(self.parts), IN_FLIGHT):
            return False
        in_range = all(0 <= n < _size(part) for n, part in zip(at, self.parts, strict=True))
        return in_range and all(-1 <= number < len(self.calls) for number in flying)

    def _ends_wrong(self, at: tuple[int, ...]) -> bool:
        least = NOTHING if self.strict else WARN
        kept = all(part.owes(n) < ASK for part, n in zip(self.stack, at, strict=False))
        return kept and self.property.owes(at[-1]) > least

    def _leads_out(self, state: State) -> Iterator[str]:
        for after, what in self._moves(state):
            if after is None:
                yield f"the property is broken by {what} at {state}"
            elif after not in self.states:
                yield f"{what} leads from {state} to {after}, which is not among the states"

    def _moves(self, state: State) -> Iterator[tuple[State | None, str]]:
        at, flying = state
        for call in self.calls:
            yield from self._of_call(at, flying, call)
        for slot, number in enumerate(flying):
            if number >= 0:
                left = _with(flying, slot, -1)
                for after in self._endings(at, self.calls[number], slot, left):
                    yield after, f"the end of a call of `{self.calls[number].name}`"
        if any(part.turns for part in self.parts):
            found = [part.turned(n) for part, n in zip(self.parts, at, strict=True)]
            yield from ((after, "another turn") for after in self._begun(found, flying))
        if any(isinstance(part, LimitComponent) and part.runs for part in self.parts):
            found = [part.resumed(n) for part, n in zip(self.parts, at, strict=True)]
            yield from ((after, "another run") for after in self._begun(found, (-1,) * IN_FLIGHT))
        for text in self.texts:
            yield (tuple(p.wrote(n, text) for p, n in zip(self.parts, at, strict=True)), flying), "a user's message"

    def _of_call(
        self, at: tuple[int, ...], flying: tuple[int, ...], call: InputClass
    ) -> Iterator[tuple[State | None, str]]:
        what = f"a call of `{call.name}` with {call.input}"
        at = tuple(part.requested(n, call) for part, n in zip(self.parts, at, strict=True))
        level = max((part.level(n, call) for part, n in zip(self.stack, at, strict=False)), default=NOTHING)
        if (level >= ASK or self.any_refused) and any(part.watches_denial(call) for part in self.parts):
            refused = [part.denied(n, call) for part, n in zip(self.parts, at, strict=True)]
            where = tuple(n for _, n in refused)
            ends = any(found >= DENY for found, _ in refused[:-1])
            none: tuple[int, ...] = (-1,) * IN_FLIGHT
            if not ends:
                yield (where, flying), f"{what}, refused,"
            if ends or self.any_refused:
                yield (where, none), f"{what}, refused,"
        if level >= DENY:
            return
        if self._is_wrong(self.property.level(at[-1], call), level):
            yield None, what
            return
        ran = self._run(at, call, IN_FLIGHT)
        if not any(part.watches_end(call) for part in self.parts):
            yield (ran, flying), what
            return
        for after in self._endings(ran, call, IN_FLIGHT, flying):
            yield after, what
        if -1 in flying:
            slot = flying.index(-1)
            yield (self._run(at, call, slot), _with(flying, slot, self.alike[call.number])), f"{what}, running,"

    def _run(self, at: tuple[int, ...], call: InputClass, slot: int) -> tuple[int, ...]:
        return tuple(part.started(n, call, slot) for part, n in zip(self.parts, at, strict=True))

    def _endings(
        self, at: tuple[int, ...], call: InputClass, slot: int, flying: tuple[int, ...]
    ) -> Iterator[State | None]:
        for output in (*range(len(call.outputs)), None):
            outcomes = [part.ended(n, call, slot, output) for part, n in zip(self.parts, at, strict=True)]
            level = max((found for found, _ in outcomes[:-1]), default=NOTHING)
            if level >= DENY:
                yield tuple(n for _, n in outcomes), (-1,) * IN_FLIGHT
            yield from self._begun(outcomes, flying)

    def _begun(self, outcomes: list[Outcome], flying: tuple[int, ...]) -> Iterator[State | None]:
        """Where a run that goes on gets to by something that has happened; nowhere if the stack ends it."""
        level = max((found for found, _ in outcomes[:-1]), default=NOTHING)
        denying = [part for part, (found, _) in zip(self.stack, outcomes, strict=False) if found >= DENY]
        if all(part.goes_on for part in denying):
            wrong = not denying and self._is_wrong(outcomes[-1][0], level)
            yield None if wrong else (tuple(n for _, n in outcomes), flying)

    def _is_wrong(self, found: int, level: int) -> bool:
        if not self.strict:
            return found > max(level, WARN)
        return found != NOTHING and not (found == ASK and level >= ASK)


def _with(flying: tuple[int, ...], slot: int, number: int) -> tuple[int, ...]:
    return (*flying[:slot], number, *flying[slot + 1 :])


def _size(part: Any) -> int:
    """How many states a component has; a limit's are amounts."""
    if isinstance(part, LimitComponent):
        return int(part.entry.limit.max) + 2
    return len(part.states if isinstance(part, SplitComponent) else part.moments)


def _forgetful(part: Component) -> Component:
    """The component with its states, without the answers that the search was given."""
    made = copy.copy(part)
    if not isinstance(made, LimitComponent):
        made.forget()
    return made
