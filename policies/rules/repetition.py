"""`loop`, `max_parallel` and `circuit_breaker`: calls repeated, made at once, or failing too often."""

from collections.abc import Hashable, Iterator
from typing import Annotated, TypeAlias

from msgspec import Meta

from ..language.selectors import NameScope, Selector
from ..values.amounts import counted
from ..values.model_base import Issue, Natural, Positive
from .count import Count
from .machine import BOUND, EvaluatedCall, Finding, Machine, RuleState, ToolReturn, slots_of
from .rule import Profile, Rule, names, times

Window: TypeAlias = Annotated[int, Meta(ge=1, le=BOUND)]
_TURNS_KEPT = 64
"""How many turns' calls are counted; `max_parallel` denies calls of earlier ones."""


class Loop(Rule, tag="loop", frozen=True):
    """The same call `threshold` times among the last `window` calls.

    Attributes:
        window: How many of the last calls are compared, this one included.
        threshold: How many equal ones among them, this one included, are too many.
        tool: The calls that are compared.
    """

    window: Window
    threshold: Positive
    tool: Selector = "*"

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        if self.threshold > self.window:
            yield (("threshold",), f"`threshold` {self.threshold} can never be reached in a window of {self.window}")

    def profile(self) -> Profile:
        """It blocks the tool if one call is too many; else another input is allowed."""
        fewer = f"fewer than {times(self.threshold)} in {counted(self.window, 'call')}"
        return Profile(
            words=f"{names(self.tool)} with one input {fewer}",
            restricts=(self.tool,),
            abstraction=(Count(tool=self.tool, max=0),) if self.threshold == 1 else (),
        )


class LoopState(RuleState):
    """The latest calls by ordinal that may be in the window."""

    recent: list[tuple[int, str]] = []


class LoopMachine(Machine, evaluates=Loop):
    """Remembers digests of the calls in the window."""

    state_type = LoopState
    restricts = 1
    order_dependent = True
    compares_inputs = True

    def __init__(self, rule: Loop, scope: NameScope) -> None:
        self.slots = slots_of(scope, (rule.tool, False))
        self.window = rule.window
        self.threshold = rule.threshold

    def evaluate(self, state: LoopState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        oldest = now + 1 - self.window
        mark = call.normalized_digest()
        same = 1 + sum(1 for ordinal, seen in state.recent if ordinal > oldest and seen == mark)
        if same < self.threshold:
            return None
        return Finding(
            expected=f"fewer than {counted(self.threshold, 'equal call')} among the last {self.window}",
            actual=f"`{call.name}` would come {counted(same, 'time')} with the same input",
            details={"threshold": self.threshold, "window": self.window, "repeated": same},
            suggestion="do something else: the same call gives the same answer",
            cause="input",
        )

    def started(self, state: LoopState, call: EvaluatedCall, mask: int, now: int) -> None:
        """Remember the call while it is in the window."""
        oldest = now + 1 - self.window
        drop = 0
        for ordinal, _ in state.recent:
            if ordinal > oldest:
                break
            drop += 1
        del state.recent[:drop]
        if mask:
            state.recent.append((now + 1, call.normalized_digest()))

    def equivalence_key(self, state: LoopState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """The calls in the window, by distance."""
        return tuple((now - ordinal, mark) for ordinal, mark in state.recent if ordinal > now + 1 - self.window)


class MaxParallel(Rule, tag="max_parallel", frozen=True):
    """At most `max` calls in one turn.

    Attributes:
        max: The most calls of one turn.
        tool: The calls that are counted.
    """

    max: Natural
    tool: Selector = "*"

    def profile(self) -> Profile:
        """It blocks the tool if no call is allowed; else the next turn allows calls."""
        return Profile(
            words=f"{names(self.tool)} at most {times(self.max)} in one turn",
            restricts=(self.tool,),
            abstraction=(Count(tool=self.tool, max=0),) if self.max == 0 else (),
        )


class ParallelState(RuleState):
    """The calls of the latest turns; `forgotten` is the last turn whose calls were dropped."""

    turns: dict[int, int] = {}
    forgotten: int = 0


class MaxParallelMachine(Machine, evaluates=MaxParallel):
    """Counts the started calls of each of the latest turns."""

    state_type = ParallelState
    restricts = 1
    watches_turns = True

    def __init__(self, rule: MaxParallel, scope: NameScope) -> None:
        self.slots = slots_of(scope, (rule.tool, False))
        self.max = rule.max

    def evaluate(self, state: ParallelState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        used = state.turns.get(call.turn, 0)
        if call.turn <= state.forgotten and call.turn not in state.turns:
            return Finding(
                expected=f"a call of one of the last {_TURNS_KEPT} turns",
                actual=f"how many calls turn {call.turn} has is forgotten",
                details={"max": self.max, "turn": call.turn},
                cause="step",
            )
        if used < self.max:
            return None
        return Finding(
            expected=f"at most {counted(self.max, 'call')} in one turn",
            actual=f"`{call.name}` would be call number {used + 1} in turn {call.turn}",
            details={"max": self.max, "used": used, "turn": call.turn},
            suggestion="ask for it in the next turn",
            cause="step",
        )

    def started(self, state: ParallelState, call: EvaluatedCall, mask: int, now: int) -> None:
        state.turns[call.turn] = state.turns.get(call.turn, 0) + 1
        while len(state.turns) > _TURNS_KEPT:
            oldest = next(iter(state.turns))
            del state.turns[oldest]
            state.forgotten = max(state.forgotten, oldest)

    def equivalence_key(self, state: ParallelState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        return min(state.turns.get(turn, 0), self.max + 1)


class CircuitBreaker(Rule, tag="circuit_breaker", frozen=True):
    """After this many denials and failures, in a row or in all, every call is denied.

    Attributes:
        consecutive: The number of denials and failures in a row.
        total: The number of denials and failures in all.
    """

    consecutive: Positive | None = None
    total: Positive | None = None

    denies_later = True

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        if self.consecutive is None and self.total is None:
            yield (), "a `circuit_breaker` needs `consecutive` or `total`"

    def profile(self) -> Profile:
        return Profile(words=f"no call after denials and failures: {self.figures()}")

    def figures(self) -> str:
        """How many are too many, in words."""
        figures = ((self.consecutive, "in a row"), (self.total, "in all"))
        return " or ".join(f"{n} {word}" for n, word in figures if n is not None)


class BreakerState(RuleState):
    """Denials and failures, in a row and in all, and whether it has tripped."""

    consecutive: int = 0
    total: int = 0
    open: bool = False


class CircuitBreakerMachine(Machine, evaluates=CircuitBreaker):
    """Trips permanently at the denial or failure that reaches a bound."""

    state_type = BreakerState
    restricts_all = True
    outcomes = 1

    def __init__(self, rule: CircuitBreaker, scope: NameScope) -> None:
        self.slots = slots_of(scope, ("*", False))
        self.consecutive = rule.consecutive
        self.total = rule.total
        self._figures = rule.figures()

    def evaluate(self, state: BreakerState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        return self._finding(state) if state.open else None

    def completed(self, state: BreakerState, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        state.consecutive = 0

    def failed(self, state: BreakerState, call: EvaluatedCall, mask: int) -> Finding | None:
        state.consecutive += 1
        state.total += 1
        if state.open:
            return None
        state.open = self.consecutive is not None and state.consecutive >= self.consecutive
        state.open |= self.total is not None and state.total >= self.total
        return self._finding(state) if state.open else None

    denied = failed

    def has_tripped(self, state: BreakerState) -> bool:
        return state.open

    def equivalence_key(self, state: BreakerState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """The figures that are bounded, until it has tripped."""
        return "open" if state.open else (self.consecutive and state.consecutive, self.total and state.total)

    def _finding(self, state: BreakerState) -> Finding:
        return Finding(
            expected=f"fewer denials and failures than {self._figures}",
            actual=f"{counted(state.total, 'call')} denied or failed",
            details={"consecutive": state.consecutive, "total": state.total},
            suggestion="stop and look at what keeps failing",
            cause="budget",
        )
