"""The breaker of one client, whatever attempts overlap and however they end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proctor.adapters.agents.fallback import Breaker

MOST, REST_S = 3, 10.0


class Attempts(RuleBasedStateMachine):
    """Attempts begin where they may, and end well, badly or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(MOST, REST_S)
        self.now = 0.0
        self.open: list[bool] = []
        self.in_a_row = 0
        self.rested_at: float | None = None

    @rule(by=st.sampled_from([0.0, 1.0, REST_S, 3 * REST_S]))
    def time_goes_by(self, by: float) -> None:
        self.now += by

    @rule()
    def begins(self) -> None:
        """An attempt, if it may."""
        if self.breaker.may_try(self.now):
            self.open.append(self.breaker.begin(self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), ok=st.sampled_from([True, False, None]))
    def ends(self, data: st.DataObject, ok: bool | None) -> None:
        """One of those that go on."""
        trial = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        before = self.breaker.health
        self.breaker.end(self.now, ok=ok, trial=trial)
        if ok:
            self.in_a_row, self.rested_at = 0, None
        elif ok is None:
            assert self.breaker.health.failures == before.failures
            assert self.breaker.health.closed_until == before.closed_until
        else:
            self.in_a_row += 1
            if trial or self.in_a_row >= MOST or self.rested_at is not None:
                self.rested_at = self.now

    @invariant()
    def it_rests_after_so_many_failures_in_a_row_and_for_so_long(self) -> None:
        rests = self.rested_at is not None and self.now < self.rested_at + REST_S
        assert not (rests and self.breaker.may_try(self.now))
        if self.rested_at is None:
            assert self.breaker.may_try(self.now)
        assert self.breaker.health.failures == self.in_a_row

    @invariant()
    def one_at_most_is_on_trial(self) -> None:
        assert sum(self.open) <= 1 or self.breaker.health.closed_until is None

    @invariant()
    def after_its_rest_it_is_tried_again(self) -> None:
        rested = self.rested_at is not None and self.now >= self.rested_at + REST_S
        if rested and not any(self.open):
            assert self.breaker.may_try(self.now)


TestAttempts = Attempts.TestCase
TestAttempts.settings = settings(max_examples=200, deadline=None)
