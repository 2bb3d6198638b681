"""A second reading of a proof: its certificate, checked without the search that found it.

The check asks the rules' own machines again for every state and every call, and remembers nothing of what the search
was answered.
"""

import copy
from collections import defaultdict
from collections.abc import Iterator

from proctor.policies.analysis.components import (
    ASK,
    AT_ONCE,
    DENY,
    NOTHING,
    RUNS_ON,
    WARN,
    Component,
    InputClass,
    Reaction,
    RuleComponent,
)
from proctor.policies.analysis.played_rule import SplitComponent
from proctor.policies.analysis.refinement import Certificate, ProofCertificate
from proctor.policies.analysis.session_search import State, ending_alike


def check(certificate: Certificate) -> list[str]:
    """The errors in a certificate, one sentence each; empty if it proves what it claims."""
    if isinstance(certificate, ProofCertificate):
        return list(_Checker(certificate).problems())
    return [] if certificate.holds() else [f"not so: {type(certificate).__doc__}"]


NONE = -1


class _Checker:
    def __init__(self, certificate: ProofCertificate) -> None:
        product = certificate.product
        self.states, self.calls, self.texts = certificate.states, product.calls, product.texts
        self.stack = [_forgetful(part) for part in product.stack]
        self.property = _forgetful(product.rule)
        self.parts = [*self.stack, self.property]
        self.standard, self.any_denied = product.standard, product.any_denied
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
        return len(at) == len(self.parts) and NONE <= in_flight < len(self.calls)

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
        if (level >= ASK or self.any_denied) and any(part.watches_denial(call) for part in self.parts):
            refused = [part.denied(n, call) for part, n in zip(self.parts, at, strict=True)]
            where = tuple(n for _, n in refused)
            ends = any(found >= DENY for found, _ in refused[:-1])
            if not ends:
                yield (where, in_flight), f"{what}, refused,"
            if ends or self.any_denied:
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
        if all(part.denies_later for part in denying):
            wrong = not denying and self._is_wrong(outcomes[-1][0], level)
            yield None if wrong else (tuple(n for _, n in outcomes), in_flight)

    def _is_wrong(self, found: int, level: int) -> bool:
        if not self.standard.strict:
            return found > max(level, WARN)
        return found != NOTHING and not (found == ASK and level >= ASK)


def _forgetful(part: Component) -> Component:
    """The same component without the answers that the search was given; its states keep their numbers."""
    made = copy.copy(part)
    if isinstance(made, RuleComponent):
        made._memo, made._numbers, made.moments = defaultdict(dict), dict(made._numbers), list(made.moments)
    elif isinstance(made, SplitComponent):
        made._memo, made._numbers, made.states = defaultdict(dict), dict(made._numbers), list(made.states)
        followed, others = _forgetful(made.followed), _forgetful(made.others)
        assert isinstance(followed, RuleComponent)
        assert isinstance(others, RuleComponent)
        made.followed, made.others = followed, others
    return made
