"""`count` and its other spelling `max_calls`: how often a tool may or must be called."""

from collections.abc import Hashable, Iterator

from ..language.selectors import NameScope, Selector
from ..values.amounts import counted
from ..values.model_base import Issue, Natural, Positive
from .machine import Evaluate, EvaluatedCall, Finding, Machine, RuleState, Spend, listed, slots_of
from .rule import LARGEST, Cap, Note, Obligation, Of, Profile, Rule, names, times

BEHIND = 32
"""How many turns late a subagent's call may come, which counts in the turn that requested it; a rule with
`within_turns` denies later ones.
"""


class Count(Rule, tag="count", frozen=True):
    """At most `max`, at least `min`, or exactly `exact` calls.

    Attributes:
        tool: The calls that are counted.
        max: The most calls that may be made.
        min: The fewest calls, by the end of the run.
        exact: The exact number of calls; overrides the other two.
        of: The calls that count: those `started`, `completed`, or `attempted`.
        within_turns: With `max`: count over this many of the latest turns.
    """

    tool: Selector
    max: Natural | None = None
    min: Natural | None = None
    exact: Natural | None = None
    of: Of = "started"
    within_turns: Positive | None = None

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        if self.max is None and self.min is None and self.exact is None:
            yield (), "a `count` rule needs `max`, `min` or `exact`"
        if self.min == 0 and self.max is None and self.exact is None:
            yield ("min",), "`min: 0` asks for nothing"
        if self.exact is None and None not in (self.min, self.max) and (self.min or 0) > (self.max or 0):
            yield ("min",), f"`min` {self.min} is more than `max` {self.max}"
        if self.within_turns is not None and self.max is None:
            yield ("within_turns",), "`within_turns` goes with `max`"

    def profile(self) -> Profile:
        """It requires no calls for every value of a `key`, nor if denied attempts count."""
        least, most = (self.min or 0, self.max) if self.exact is None else (self.exact, self.exact)
        figures = (("exactly", self.exact), ("at least", self.min), ("at most", self.max))
        given = [(word, n) for word, n in figures if n is not None]
        words = [*(f"{word} {n}" for word, n in given[:-1]), *(f"{word} {times(n)}" for word, n in given[-1:])]
        attempts = self.of == "attempted"
        requires = least > 0 and self.key is None and not attempts
        return Profile(
            words=f"{names(self.tool)} {' and '.join(words)}",
            restricts=(self.tool,),
            obligation=Obligation(self.tool, least, self.of) if requires else None,
            requires_attempts=attempts and least > 0,
            caps=() if most is None else (Cap((self.tool,), most, self.of, self.within_turns),),
            abstraction=self._abstraction(least if requires else None, most),
            drawing=tuple(Note(self.tool, f"{word} {n}") for word, n in given),
        )

    def _abstraction(self, least: int | None, most: int | None) -> tuple[Rule, ...]:
        """Its small figures, without those that hold for each value of the key."""
        if most == 0:
            return (Count(tool=self.tool, max=0),)
        if most is not None and (most > LARGEST or self.within_turns is not None or self.key is not None):
            most = None
        least = least and min(least, LARGEST)
        of: Of = "completed" if self.of == "completed" else "started"
        return (Count(tool=self.tool, max=most, min=least, of=of),) if (least, most) != (None, None) else ()


class MaxCalls(Rule, tag="max_calls", frozen=True):
    """`count` with `max`.

    Attributes:
        tool: The calls that are counted.
        max: The most calls that may be made.
    """

    tool: Selector
    max: Natural

    def compile(self, scope: NameScope) -> Machine:
        return self._as_count().compile(scope)

    def _as_count(self) -> Count:
        return Count(tool=self.tool, max=self.max, key=self.key)

    def profile(self) -> Profile:
        return self._as_count().profile()


class CountState(RuleState):
    """The total, the attempts, and the calls of each turn that `within_turns` may look back at; `forgotten` is the
    last turn whose calls were dropped.
    """

    total: int = 0
    attempts: int = 0
    turns: dict[int, int] = {}
    forgotten: int = 0


class CountMachine(Machine, evaluates=Count):
    """Counts started calls; with `of: completed`, a call in flight counts until it fails."""

    state_type = CountState
    restricts = 1

    def __init__(self, rule: Count, scope: NameScope) -> None:
        self.slots = slots_of(scope, (rule.tool, False))
        self.max = rule.exact if rule.exact is not None else rule.max
        self.min = rule.exact if rule.exact is not None else rule.min
        self.of = rule.of
        self.within = rule.within_turns
        self.watches_turns = self.within is not None
        self.outcomes = 1 if rule.of == "completed" else 0
        self.attempts = 1 if rule.of == "attempted" else 0
        self._counts_all = self.within is None and not self.attempts
        self._most = 0 if self.max is None else self.max

    @property
    def denies_none(self) -> bool:
        return self.max is None

    def compile_evaluate(self, mask: int) -> Evaluate | None:
        """Without a maximum no call is denied."""
        if self.max is None:
            return None
        return self._evaluate_total if self._counts_all else self.evaluate

    def _evaluate_total(self, state: CountState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """`evaluate` for a rule that counts every started call, without a window."""
        return None if state.total < self._most else self.evaluate(state, call, mask, now)

    def _used(self, state: CountState, turn: int) -> int:
        if self.within is not None:
            return sum(n for seen, n in state.turns.items() if seen > turn - self.within)
        return state.attempts if self.attempts else state.total

    def evaluate(self, state: CountState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """Refuse the call that would exceed the maximum; without one, no call is evaluated."""
        # An attempt is counted when it is asked for, so the one being evaluated is in the figure already.
        if self.within is not None and 0 < state.forgotten > call.turn - self.within:
            return Finding(
                expected=f"a call of the last {self.within + BEHIND} turns",
                actual=f"what came before turn {call.turn} is forgotten",
                details={"max": self._most, "turn": call.turn},
                cause="step",
            )
        number = self._used(state, call.turn) + (not self.attempts)
        if number <= self._most:
            return None
        tools = listed(self.slots[0].names)
        window = f" in {self.within} turns" if self.within else ""
        return Finding(
            expected=f"at most {counted(self._most, f'{self.of} call')} of {tools}{window}",
            actual=f"`{call.name}` would be call number {number}",
            details={"max": self._most, "used": number - 1, "of": self.of},
            suggestion=f"stop after {self._most}, or raise `max`",
            cause="budget" if self.within is None else "step",
        )

    def requested(self, state: CountState, call: EvaluatedCall, mask: int) -> None:
        if self.attempts:
            state.attempts += 1
            self._add(state, call.turn, 1)

    def compile_spend(self, mask: int) -> Spend | None:
        """Without a window, only the total grows."""
        return self._one_more if self._counts_all else self.started

    def _one_more(self, state: CountState, call: EvaluatedCall, mask: int, now: int) -> None:
        state.total += 1

    def started(self, state: CountState, call: EvaluatedCall, mask: int, now: int) -> None:
        state.total += 1
        if self.within is not None and not self.attempts:
            self._add(state, call.turn, 1)

    def failed(self, state: CountState, call: EvaluatedCall, mask: int) -> Finding | None:
        """Discount a call that did not complete."""
        if self.of == "completed":
            state.total -= 1
            self._add(state, call.turn, -1)
        return None

    def _add(self, state: CountState, turn: int, n: int) -> None:
        if self.within is None:
            return
        if n > 0 or turn in state.turns:
            state.turns[turn] = state.turns.get(turn, 0) + n
        for old in [seen for seen in state.turns if seen <= turn - self.within - BEHIND]:
            del state.turns[old]
            state.forgotten = max(state.forgotten, old)

    def equivalence_key(self, state: CountState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """The totals, and the calls of each turn in the window."""
        most = max(self.max or 0, self.min or 0) + 1 + (in_flight if self.of == "completed" else 0)
        totals = (min(state.total, most), min(state.attempts, most))
        if self.within is None:
            return totals
        ago = {turn - each: min(n, most) for each, n in state.turns.items() if n}
        window = tuple(sorted((turns, n) for turns, n in ago.items() if turns < self.within))
        return window if self.min is None else (totals, window)

    def finding_at_end(self, state: CountState) -> Finding | None:
        """Violated if there were too few calls or, with `exact`, another number."""
        count = state.attempts if self.of == "attempted" else state.total
        if self.min is None or count >= self.min:
            return None
        return Finding(
            expected=f"at least {counted(self.min, 'call')} of {listed(self.slots[0].names)}",
            actual=f"{counted(count, 'call')} of {listed(self.slots[0].names)}",
            details={"min": self.min, "used": count},
            suggestion=f"{self.min - count} more before the end",
        )

    def denies_all(self, state: CountState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        return self.max is not None and bool(sure & 1) and self._used(state, ahead.turn) >= self.max
