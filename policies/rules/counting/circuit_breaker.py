"""`circuit_breaker`: an agent that keeps failing."""

from __future__ import annotations

from collections.abc import Iterator

from ...language.record import Positive
from ...language.selectors import NameScope
from ...values.complaints import Complaint
from ..machine import Ahead, Finding, JudgedCall, Machine, ToolReturn, counted, slots_of
from ..machine import RuleState as NoState
from ..record import Roles, Rule, drawn_in_words, owes_nothing, undecided


class CircuitBreaker(Rule, tag="circuit_breaker", frozen=True):
    """After too many refusals and failures, in a row or in all, every call is refused.

    Attributes:
        consecutive: The number of refusals and failures in a row that trips it.
        total: The number in all that trips it.
    """

    consecutive: Positive | None = None
    total: Positive | None = None

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        yield from super().problems()
        if self.consecutive is None and self.total is None:
            yield (), "a `circuit_breaker` needs `consecutive` or `total`"

    def roles(self) -> Roles:
        """It looks at every call."""
        return Roles()

    def words(self) -> str:
        """The rule in words."""
        limits = ((self.consecutive, "in a row"), (self.total, "in all"))
        limit_texts = " or ".join(f"{n} {word}" for n, word in limits if n is not None)
        return f"nothing more after refusals and failures: {limit_texts}"

    owes = owes_nothing
    outline = undecided  # a run in which all goes well never sees it
    drawing = drawn_in_words


class BreakerState(NoState):
    """Refusals and failures: without a completion between, and in all; and whether it has tripped."""

    consecutive: int = 0
    total: int = 0
    open: bool = False


class CircuitBreakerMachine(Machine, judges=CircuitBreaker):
    """Trips on the refusal or failure that makes so many, and stays open."""

    state_type = BreakerState
    restricts_all = True
    outcomes = 1

    def __init__(self, rule: CircuitBreaker, scope: NameScope) -> None:
        self.slots = slots_of(scope, ("*", False))
        self.consecutive = rule.consecutive
        self.total = rule.total

    def judge(self, state: BreakerState, call: JudgedCall, mask: int, now: int) -> Finding | None:
        """Refuse everything once it has tripped."""
        return self._finding(state) if state.open else None

    def completed(self, state: BreakerState, call: JudgedCall, mask: int, output: ToolReturn) -> None:
        """A completion ends a row of failures."""
        state.consecutive = 0

    def failed(self, state: BreakerState, call: JudgedCall, mask: int) -> Finding | None:
        """One more; the one that makes so many trips the breaker."""
        state.consecutive += 1
        state.total += 1
        if state.open:
            return None
        state.open = self.consecutive is not None and state.consecutive >= self.consecutive
        state.open |= self.total is not None and state.total >= self.total
        return self._finding(state) if state.open else None

    denied = failed

    def _finding(self, state: BreakerState) -> Finding:
        limits = [f"{n} {word}" for n, word in ((self.consecutive, "in a row"), (self.total, "in all")) if n]
        return Finding(
            expected=f"fewer refusals and failures than {' or '.join(limits)}",
            actual=f"{counted(state.total, 'call')} refused or failed",
            details={"consecutive": state.consecutive, "total": state.total},
            suggestion="stop and look at what keeps failing",
            cause="budget",
        )

    def closed(self, state: BreakerState, sure: int, maybe: int, now: int, ahead: Ahead) -> bool:
        """It has tripped."""
        return state.open
