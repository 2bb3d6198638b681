"""`after` and `eventually`: calls that must follow in time."""

from collections.abc import Hashable

from ..language.selectors import NameScope, Selector
from ..values.amounts import counted
from ..values.model_base import Positive
from .machine import EvaluatedCall, Finding, Machine, RuleState, listed, slots_of
from .rule import KEYLESS, LARGEST, Link, Note, Obligation, Profile, Rule, calls, names


class Require(Rule, tag="require", frozen=True):
    """The tool must have been called by the end of the run.

    Attributes:
        tool: The call that must be made.
    """

    tool: Selector

    keyless = KEYLESS

    def profile(self) -> Profile:
        """It restricts the end of the run."""
        return Profile(
            words=f"{names(self.tool)} must be called",
            restricts=(self.tool,),
            of_other_calls=(self.tool,),
            obligation=Obligation(self.tool),
            abstraction=(self,),
            drawing=(Note(self.tool, "required"),),
        )


class RequireState(RuleState):
    """Whether the tool was called."""

    called: bool = False


class RequireMachine(Machine, evaluates=Require):
    """Satisfied by the first call, once and for all."""

    state_type = RequireState
    always_exercised = True

    def __init__(self, rule: Require, scope: NameScope) -> None:
        self.slots = slots_of(scope, (rule.tool, True))

    def started(self, state: RequireState, call: EvaluatedCall, mask: int, now: int) -> None:
        state.called = True

    def finding_at_end(self, state: RequireState) -> Finding | None:
        if state.called:
            return None
        tools = listed(self.slots[0].names)
        return Finding(f"a call of {tools}", f"{tools} was never called", suggestion=f"call {tools} before the end")


TRIGGER, THEN = 1, 2


class After(Rule, tag="after", frozen=True):
    """Each `trigger` must be answered by `then` within `within` calls.

    Attributes:
        trigger: The calls that must be answered.
        then: The calls that answer.
        within: The answer must be one of this many calls after the trigger.
    """

    trigger: Selector
    then: Selector
    within: Positive = 1

    def profile(self) -> Profile:
        """It restricts its triggers; names decide it if the answer is due soon."""
        next_ = self.within == 1
        when = "right after" if next_ else f"within {self.within} calls after"
        word = "then next" if next_ else f"then within {self.within} calls"
        return Profile(
            words=f"{names(self.then)} {when} {names(self.trigger)}",
            restricts=(self.trigger,),
            others=(self.then,),
            obligation=Obligation(self.then, after=self.trigger),
            abstraction=(self,) if self.key is None and self.within <= LARGEST else (),
            drawing=(Link(word, (self.trigger,), self.then),),
        )


class Eventually(Rule, tag="eventually", frozen=True):
    """One of the first `within` calls must be `tool`.

    Attributes:
        tool: The call that must come.
        within: It must be one of this many first calls.
    """

    tool: Selector
    within: Positive

    keyless = KEYLESS

    def profile(self) -> Profile:
        """It restricts no call by its name; if the call is not due soon, names decide only that it must come."""
        when = f"{'as' if self.within == 1 else 'within'} the first {calls(self.within)}"
        return Profile(
            words=f"{names(self.tool)} {when}",
            others=(self.tool,),
            obligation=Obligation(self.tool),
            abstraction=(self if self.within <= LARGEST else Require(tool=self.tool),),
            drawing=(Note(self.tool, when),),
        )


class AfterState(RuleState):
    """The ordinals by which open triggers must be answered, earliest first."""

    due: list[int] = []


class AfterMachine(Machine, evaluates=After):
    """One answer closes every open trigger; so does the violation of an unanswered one."""

    state_type = AfterState
    restricts = TRIGGER
    order_dependent = True
    evaluates_order = True

    def __init__(self, rule: After, scope: NameScope) -> None:
        self.slots = slots_of(scope, (rule.trigger, False), (rule.then, True))
        self.within = rule.within

    def evaluate(self, state: AfterState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """Deny the call that would leave the earliest trigger unanswered."""
        if mask & THEN or not state.due or state.due[0] > now + 1:
            return None
        return self._unanswered(f"`{call.name}` came instead of")

    def started(self, state: AfterState, call: EvaluatedCall, mask: int, now: int) -> None:
        """An answer closes every trigger, a trigger opens one."""
        if mask & THEN:
            state.due = []
        else:
            while state.due and state.due[0] <= now + 1:
                state.due.pop(0)
        if mask & TRIGGER:
            state.due.append(now + 1 + self.within)

    def due(self, state: AfterState, now: int) -> int | None:
        """When the earliest trigger must be answered."""
        return max(state.due[0], now + 1) if state.due else None

    def equivalence_key(self, state: AfterState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """How many calls are left for the earliest answer."""
        return max(0, state.due[0] - now) if state.due else None

    def finding_at_end(self, state: AfterState) -> Finding | None:
        return self._unanswered("the session ended without") if state.due else None

    def _unanswered(self, what: str) -> Finding:
        trigger, then = (listed(slot.names) for slot in self.slots)
        return Finding(
            expected=f"{then} within {counted(self.within, 'call')} after {trigger}",
            actual=f"{what} {then}",
            details={"within": self.within, "then": list(self.slots[1].names)},
            suggestion=f"call {then} next",
            cause="step",
        )


class EventuallyState(RuleState):
    """Whether the tool came, or its time has passed."""

    called: bool = False
    passed: bool = False


class EventuallyMachine(Machine, evaluates=Eventually):
    """Due at the last call that could still be the tool."""

    state_type = EventuallyState
    always_exercised = True
    order_dependent = True
    evaluates_order = True

    def __init__(self, rule: Eventually, scope: NameScope) -> None:
        self.slots = slots_of(scope, (rule.tool, True))
        self.within = rule.within

    def evaluate(self, state: EventuallyState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """Deny another tool as the last call that could be the tool."""
        if state.called or state.passed or mask or now + 1 < self.within:
            return None
        return self._finding(f"`{call.name}` would be call number {now + 1} without")

    def started(self, state: EventuallyState, call: EvaluatedCall, mask: int, now: int) -> None:
        if mask:
            state.called = True
        elif now + 1 >= self.within:
            state.passed = True

    def due(self, state: EventuallyState, now: int) -> int | None:
        return None if state.called or state.passed else max(self.within, now + 1)

    def equivalence_key(self, state: EventuallyState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """How many calls are left, as long as that matters."""
        return (state.called, state.passed) if state.called or state.passed else max(0, self.within - now)

    def finding_at_end(self, state: EventuallyState) -> Finding | None:
        """Violated if it never came; a late one was already reported."""
        return None if state.called or state.passed else self._finding("the session ended without")

    def _finding(self, what: str) -> Finding:
        names = listed(self.slots[0].names)
        return Finding(
            f"{names} within the first {counted(self.within, 'call')}",
            f"{what} {names}",
            {"within": self.within},
            f"call {names} now",
            cause="step",
        )
