"""`precondition`: what must have happened before a call, to the same thing."""

from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeAlias

from msgspec import UNSET

from ..language.conditions import OutputRef
from ..language.selectors import NameScope, Selector, items_of
from ..values.model_base import Issue
from .machine import EvaluatedCall, Finding, Machine, RuleState, ToolReturn, slots_of
from .precedence import PERSON, Before, approval_of
from .prior_calls import PriorEvidence, PriorTest, Requirement, without_references
from .rule import ComparedPath, Link, PriorOutput, Profile, Rule, names

TOOL = 1


class Precondition(Rule, tag="precondition", frozen=True):
    """`tool` only if every requirement holds.

    Attributes:
        tool: The calls that have requirements.
        requires: The requirements; all of them must hold.
    """

    tool: Selector
    requires: tuple[Requirement, ...]

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        if not self.requires:
            yield ("requires",), "requires nothing: list at least one requirement"

    def profile(self) -> Profile:
        """Every `prior` is evidence for the tool, and is looked up for a call."""
        flat = [inner for requirement in self.requires for inner in requirement.flat()]
        return Profile(
            words=f"{names(self.tool)} needs {', and '.join(requirement.words() for requirement in self.requires)}",
            restricts=(self.tool,),
            evidence=tuple(prior for requirement in self.requires for prior in requirement.priors()),
            of_other_calls=(),
            own_action="request_approval" if any(inner.asks_person for inner in flat) else None,
            inputs=tuple(read for inner in flat for read in self._bound_inputs(inner)),
            follows=tuple(ComparedPath(same.path) for inner in flat for same in inner.same),
            outputs=tuple(
                PriorOutput(
                    inner.prior,
                    inner.output,
                    tuple(same.prior_output_path for same in inner.same if same.prior_output_path),
                    tuple(same.prior_output_regex for same in inner.same if same.prior_output_regex),
                )
                for inner in flat
                if inner.prior is not UNSET
            ),
            abstraction=tuple(self._abstraction(each) for each in self.requires if not each.free),
            drawing=tuple(Link(each.link_word, tuple(each.sources()), self.tool) for each in self.requires),
        )

    def _bound_inputs(self, requirement: Requirement) -> Iterator[tuple[Selector, str]]:
        """The input paths that the calls are bound by."""
        for same in requirement.same:
            yield self.tool, same.path
            if requirement.prior is not UNSET and not same.of_output:
                yield requirement.prior, same.prior_path or same.path

    def _abstraction(self, requirement: Requirement) -> Rule:
        """One of the calls before, whatever their values, where only calls can meet a requirement."""
        priors = (item for prior in requirement.priors() for item in items_of(prior))
        first = tuple(without_references(item) for item in priors)
        return Before(first=first, then=self.tool, first_must=requirement.weakest)


Serves: TypeAlias = Callable[[PriorTest, PriorEvidence, Any], bool]
"""Whether the evidence of a `prior` meets it, for a call or for some future call."""


class PreconditionState(RuleState):
    """The evidence kept for each `prior`, by its number in the rule."""

    priors: dict[int, PriorEvidence] = {}


_NO_EVIDENCE = PriorEvidence()


class PreconditionMachine(Machine, evaluates=Precondition):
    """Keeps evidence, indexed by the values it can be bound to, and looks it up."""

    state_type = PreconditionState
    restricts = TOOL
    evaluates_order = True

    def __init__(self, rule: Precondition, scope: NameScope) -> None:
        self.requires = rule.requires
        self.slots = slots_of(scope, (rule.tool, False))
        self._priors: dict[int, PriorTest] = {}
        flat = (inner for requirement in rule.requires for inner in requirement.flat())
        self._turns = [inner.turns_gte for inner in flat if inner.turns_gte is not UNSET]
        self.watches_turns = bool(self._turns)
        self.phrases = tuple(self._prepare(rule.requires, scope))
        self.outcomes = self._asks_for("completed")
        self.starts = self._asks_for("started")

    def _asks_for(self, must: str) -> int:
        """The slots of the calls that are evidence at stage `must`."""
        return sum(prior.mask for prior in self._priors.values() if prior.must == must)

    def _prepare(self, requires: tuple[Requirement, ...], scope: NameScope) -> Iterator[str]:
        for requirement in requires:
            if requirement.prior is not UNSET:
                test = PriorTest(requirement, scope, first_slot=len(self.slots))
                self.slots += test.slots
                self._priors[id(requirement)] = test
                test.number = len(self._priors) - 1
            elif requirement.any_of is not UNSET:
                yield from self._prepare(requirement.any_of, scope)
            elif requirement.user_said is not UNSET:
                yield requirement.user_said

    @property
    def outputs(self) -> tuple[OutputRef, ...]:
        return (*super().outputs, *(ref for test in self._priors.values() for ref in test.outputs))

    def evaluate(self, state: PreconditionState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """Deny a call for which a requirement fails; request approval if only that is missing."""
        for requirement in self.requires:
            if not self._holds(requirement, state, call, PriorTest.met):
                wanted = self._words(requirement)
                lacks = f", which requires: {wanted}" if requirement.description else f" without {wanted}"
                return Finding(
                    expected=f"{wanted} before `{call.name}`",
                    actual=f"`{call.name}` was requested{lacks}",
                    details={"requires": wanted, **self._missed(requirement, state, call)},
                    suggestion=f"first: {wanted}",
                    cause="step",
                )
        if all(self._holds(each, state, call, PriorTest.met, approved=False) for each in self.requires):
            return None
        return approval_of(call)

    def _missed(self, requirement: Requirement, state: PreconditionState, call: EvaluatedCall) -> dict[str, Any]:
        """The conditions that the last possible call does not meet, and their values."""
        test = self._priors.get(id(requirement))
        evidence = state.priors.get(test.number) if test is not None else None
        missed = test.missed(evidence, call) if test is not None and evidence is not None else []
        return {"conditions": missed} if missed else {}

    def _holds(
        self,
        requirement: Requirement,
        state: PreconditionState,
        facts: EvaluatedCall,
        serves: Serves,
        *,
        approved: bool = True,
    ) -> bool:
        if requirement.any_of is not UNSET:
            return any(self._holds(inner, state, facts, serves, approved=approved) for inner in requirement.any_of)
        if approved and requirement.asks_person:
            return True
        if requirement.turns_gte is not UNSET:
            return facts.turn - 1 >= requirement.turns_gte
        if requirement.user_said is not UNSET:
            return facts.user_said(requirement.user_said, requirement.in_ == "latest")
        test = self._priors[id(requirement)]
        evidence = state.priors.get(test.number)
        return evidence is not None and serves(test, evidence, facts)

    def started(self, state: PreconditionState, call: EvaluatedCall, mask: int, now: int) -> None:
        self._note(state, call, mask, None)

    def completed(self, state: PreconditionState, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        self._note(state, call, mask, output)

    def _note(self, state: PreconditionState, call: EvaluatedCall, mask: int, output: ToolReturn | None) -> None:
        for test in self._priors.values():
            if mask & test.mask and (test.must == "completed") == (output is not None):
                evidence = state.priors.setdefault(test.number, PriorEvidence())
                test.note(evidence, call, mask, output)

    def restricted(self, state: PreconditionState, keeps: Callable[[str], bool]) -> PreconditionState:
        return PreconditionState(priors={n: each.restricted(keeps) for n, each in state.priors.items()})

    def equivalence_key(self, state: PreconditionState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """For each `prior` the last calls about each thing, or that there was one; the turn as far as it counts."""
        found: set[Hashable] = set()
        for test in self._priors.values():
            evidence = state.priors.get(test.number, _NO_EVIDENCE)
            for key, numbers in evidence.about.items():
                good = [evidence.items[n].good for n in numbers]
                found.add((test.number, key, good[-1] if test.pick == "latest" else any(good)))
            if evidence.lost:
                found.add((test.number, "", None))
        return frozenset(found), min(turn, max(self._turns, default=-1) + 1)

    def denies_all(self, state: PreconditionState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        return bool(sure & TOOL) and not all(self._holds(r, state, ahead, PriorTest.meetable) for r in self.requires)

    def _words(self, requirement: Requirement) -> str:
        if requirement.description:
            return requirement.description
        if requirement.any_of is not UNSET:
            return " or ".join(self._words(inner) for inner in requirement.any_of)
        if requirement.turns_gte is not UNSET:
            return f"{requirement.turns_gte} turns of the model"
        if requirement.user_said is not UNSET:
            return f"a user message that matches `{requirement.user_said}`"
        calls = self._priors[id(requirement)].words()
        if not requirement.asks_person:
            return calls
        return f"{calls} or {PERSON}" if self._priors[id(requirement)].slots else PERSON
