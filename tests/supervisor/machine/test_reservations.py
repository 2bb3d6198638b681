"""How one run reserves shared budgets, step by step: how much, when, and what follows from the store's results."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from proctor.policies import Budget, Check, Limit, Limits, Policy, RunContext, compile_policy, merge_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.interface import AnswerGate, ArmDeadline, Effect, Finish, Reserve, RunChecks, Settle
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.reservations import SLICE_MS
from proctor.supervisor.machine.run_state import RunIdentity
from proctor.supervisor.ports.budget_ledger import Reservation, ReservationResult


class Run:
    """A run with these budgets; its events are durable at once, while it `stores`."""

    def __init__(
        self,
        *budgets: Budget,
        record: Sequence[ev.Event] = (),
        run_id: str = "r",
        limits: Limits | None = None,
        rules: tuple[Check, ...] = (),
    ) -> None:
        policy = Policy(name="org", on_violation="deny", budgets=budgets, limits=limits or Limits(), rules=rules)
        who = RunIdentity(run_id=run_id, session_id="s", provider="x", gates_all=True)
        self.compiled = compile_policy(merge_policies([policy]))
        self.monitor = self.compiled.monitor(RunContext())
        self.machine = RunMachine.resume(who, self.monitor, record)
        self.record = [*record]
        self.written = 0
        self.stores = True
        self.effects: list[Effect] = []
        self.keys = 0
        self.monitor_is_broken = False
        if not record:
            self.feed(interface.Begin(now_ms=1, prompt="go"))

    def restored(self) -> RunMachine:
        return RunMachine.restore(self.machine.snapshot(), self.compiled.restore(self.monitor.snapshot()))

    def feed(self, input: interface.Input) -> None:
        self.latest = input
        restored = self.restored()
        self.effects += (effects := self.machine.handle(input))
        assert self.monitor_is_broken or [*map(repr, restored.handle(input))] == [*map(repr, effects)]
        while self.machine.unwritten:
            events = self.machine.drain_record()
            self.record += events
            self.written += len(events)
            if self.stores:
                self.effects += self.machine.handle(interface.Stored(now_ms=input.now_ms, count=self.written))

    def spends(self, usd: float, now_ms: int = 2) -> None:
        self.feed(interface.Reported(now_ms=now_ms, event=ev.TokenUsageUpdated(cost_usd=usd)))

    def asks(self, *tools: str, now_ms: int = 2) -> None:
        for tool in tools:
            self.keys += 1
            call = ToolCall(id=f"c{self.keys}", name=tool)
            self.feed(interface.Proposed(now_ms=now_ms, key=self.keys, call=call))

    def effects_of(self, kind: type[Any]) -> list[Effect]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """The latest requested reservations."""
        return [effect for effect in self.effects if isinstance(effect, Reserve)][-1].reservations

    def gets(self, *held: float, now_ms: int = 2, granted: bool = True) -> None:
        """The store now has these amounts reserved for the run."""
        answers = zip(self.reservations, held, strict=True)
        drawn = [
            ReservationResult(claim=draw.claim, granted=granted, held=much, used=draw.used, before=0, reserved=much)
            for draw, much in answers
        ]
        self.feed(interface.Reserved(now_ms=now_ms, results=tuple(drawn)))

    @property
    def allowed(self) -> list[bool]:
        return [effect.answer.allowed for effect in self.effects if isinstance(effect, AnswerGate)]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.record if isinstance(event, kind)]


MONEY = Budget(name="money", max_cost_usd=10)
TIME = Budget(name="time", max_duration_ms=600_000)


def test_a_run_reserves_a_fraction_first_and_then_as_much_as_its_largest_response() -> None:
    """Other runs can start beside it, and no response starts without a reservation. Once granted, the
    budget counts.
    """
    run = Run(MONEY)
    assert run.monitor.metadata.get("uncounted_budgets") == ["org/money"]
    wanted = [run.reservations[0].want]
    for usd in (0.5, 3, 1):
        run.gets(0.1)
        run.spends(usd)
        wanted.append(run.reservations[0].want)

    assert "uncounted_budgets" not in run.monitor.metadata
    assert wanted == [0.1, 0.5, 3, 3]
    assert run.reservations[0].used == 4.5


@pytest.mark.parametrize("limit_ms", [SLICE_MS // 2, 2 * SLICE_MS])
def test_the_next_deadline_is_the_earlier_of_the_slices_end_and_a_limit(limit_ms: int) -> None:
    """Although both count the same time."""
    run = Run(TIME, limits=Limits(max_duration_ms=limit_ms))
    run.gets(SLICE_MS)
    armed = [effect.at_ms for effect in run.effects if isinstance(effect, ArmDeadline)]

    assert armed[-1] == min(1 + SLICE_MS, 2 + limit_ms)


def test_time_is_reserved_a_slice_at_a_time_before_the_last_one_ends() -> None:
    """The deadline is the end of the slice."""
    run = Run(TIME)
    run.gets(SLICE_MS)
    armed = [effect.at_ms for effect in run.effects if isinstance(effect, ArmDeadline)]
    before = len(run.effects)
    run.feed(interface.Ticked(now_ms=SLICE_MS))
    early = [effect for effect in run.effects[before:] if isinstance(effect, Reserve)]
    run.feed(interface.Ticked(now_ms=1 + SLICE_MS))

    assert (run.reservations[0].want, run.reservations[0].used) == (SLICE_MS, SLICE_MS)
    assert armed == [1 + SLICE_MS]
    assert early == []


@pytest.mark.parametrize("budget", [TIME, MONEY, Budget(name="tokens", max_total_tokens=1_000)])
def test_the_violation_of_a_budget_has_its_unit(budget: Budget) -> None:
    run = Run(budget)
    run.gets(0, granted=False)
    (violation,) = run.of(ev.PolicyViolated)
    unit = {"time": " ms ", "money": "$", "tokens": " tokens "}[budget.name]

    assert all(unit in f" {violation.details[each]} " for each in ("expected", "actual"))


def test_of_two_call_budgets_only_the_exhausted_one_denies() -> None:
    """The other has calls left. Pending calls are reserved for together."""
    run = Run(Budget(name="few", max_tool_calls=2), Budget(name="many", max_tool_calls=100))
    run.gets(0, 0)
    run.asks("a", "b", "c")
    run.gets(1, 1)
    wanted = [(draw.want, draw.least) for draw in run.reservations]
    run.gets(1, 2)
    reserved = [(event.budget, event.granted) for event in run.of(ev.BudgetReserved)]

    assert wanted == [(2, 1), (2, 1)]
    assert [event.tool_name for event in run.of(ev.ToolCallStarted)] == ["a", "b"]
    assert [violation.rule for violation in run.of(ev.PolicyViolated)] == ["few"]
    assert reserved == [("org/few", True), ("org/many", True), ("org/few", False)]


def test_a_budget_of_calls_lets_a_run_start_though_more_than_its_amount_is_used() -> None:
    """Its amount was lowered, or calls ran that no gate holds: the run's calls are denied."""
    run = Run(Budget(name="few", max_tool_calls=2))
    over = [ReservationResult(claim=run.reservations[0].claim, granted=False, held=0, used=3, before=3, reserved=0)]
    run.feed(interface.Reserved(now_ms=2, results=tuple(over)))
    run.asks("search")
    run.feed(interface.Reserved(now_ms=2, results=tuple(over)))

    assert not run.of(ev.RunCancelled)
    assert [event.action for event in run.of(ev.PolicyViolated)] == ["deny"]
    assert run.allowed == [False]


@pytest.mark.parametrize("used_up", [False, True])
def test_a_run_resumed_from_its_log_continues_to_reserve(used_up: bool) -> None:
    """It does not record a result again. That an exhausted budget has a balance again is recorded."""
    budgets = (MONEY, Budget(name="other", max_total_tokens=1_000))
    before = Run(*budgets)
    before.gets(0.1, 10)
    (money, other) = before.of(ev.BudgetReserved)
    refusal = [msgspec.structs.replace(money, granted=False, asked_for="usage")] if used_up else []
    run = Run(*budgets, record=[*before.record, *refusal])
    run.spends(2)
    used = [draw.used for draw in run.reservations]
    run.gets(2, 10)
    news = run.of(ev.BudgetReserved)[2 + used_up :]

    assert [(event.budget, event.asked_for) for event in (money, other)] == [
        ("org/money", "start"),
        ("org/other", "start"),
    ]
    assert used == [2, 0]
    assert [(event.budget, event.granted) for event in news] == [("org/money", True)] * used_up


def test_a_resumed_run_reserves_as_much_as_its_largest_response() -> None:
    """What it used in all is no single response, nor is what an earlier run used."""
    record: list[ev.Event] = [
        ev.RunStarted(run_id="q"),
        ev.TokenUsageUpdated(run_id="q", cost_usd=8),
        ev.RunCompleted(run_id="q"),
        ev.RunStarted(run_id="r"),
        *(ev.TokenUsageUpdated(run_id="r", cost_usd=usd) for usd in (0.5, 3, 1)),
    ]
    numbered = [msgspec.structs.replace(event, session_id="s", seq=n) for n, event in enumerate(record, 1)]
    run = Run(MONEY, record=numbered)
    run.asks("search")

    assert (run.reservations[0].used, run.reservations[0].want) == (4.5, 3)


def test_usage_is_settled_once_at_the_end() -> None:
    run = Run(MONEY)
    run.gets(0.1)
    run.spends(1)
    run.gets(1)
    run.feed(interface.AdapterEnded(now_ms=5))
    run.spends(7, now_ms=6)
    run.feed(interface.AdapterEnded(now_ms=7))
    settled = [effect.used for effect in run.effects if isinstance(effect, Settle)]

    assert settled == [{"cost_usd": 1}]


def test_the_deadline_is_the_earliest_of_several_time_budgets() -> None:
    run = Run(TIME, Budget(name="long", max_duration_ms=60_000_000))
    run.gets(20_000, 60_000)
    armed = [effect.at_ms for effect in run.effects if isinstance(effect, ArmDeadline)]

    assert armed[-1] == 20_001


def test_a_run_that_ends_during_a_reservation_settles_after_the_result() -> None:
    """The end is written after that. The run reserves nothing for its usage meanwhile."""
    run = Run(MONEY)
    run.gets(0.1)
    run.spends(1)
    run.spends(2)
    run.feed(interface.AdapterEnded(now_ms=3))
    early = run.effects_of(Settle)
    run.gets(1)
    (settle,) = (effect for effect in run.effects if isinstance(effect, Settle))
    unfinished = run.record[-1].type
    run.feed(interface.Settled(now_ms=4, results=()))

    assert (early, settle.used) == ([], {"cost_usd": 3})
    assert len(run.effects_of(Reserve)) == 2
    assert not unfinished.startswith("run_failed")
    assert run.record[-1].type == "run_failed"
    assert isinstance(run.effects[-1], Finish)


def test_a_run_that_is_cancelled_at_its_start_reserves_nothing() -> None:
    """Its session had exceeded a limit before."""
    spent = Limits(max_total_tokens=Limit(max=10, scope="session"))
    before = Run(limits=spent)
    before.feed(interface.Reported(now_ms=2, event=ev.TokenUsageUpdated(input_tokens=11)))
    before.feed(interface.AdapterEnded(now_ms=3))
    run = Run(MONEY, limits=spent, record=before.record, run_id="r2")
    run.feed(interface.Begin(now_ms=4, prompt="go", first=False))

    assert run.machine.cancelling
    assert not [effect for effect in run.effects if isinstance(effect, Reserve)]


def test_a_settling_run_is_not_cancelled_and_allows_no_call() -> None:
    """Its agent has gone, its outcome is fixed, and its usage is reported."""
    run = Run(MONEY)
    run.gets(0.1)
    run.feed(interface.AdapterEnded(now_ms=3))
    run.feed(interface.CancelAsked(now_ms=4, reason="no"))
    run.asks("late", now_ms=4)
    run.feed(interface.Settled(now_ms=5, results=()))

    assert (run.allowed, run.of(ev.ToolCallStarted)) == ([False], [])
    assert run.record[-1].type == "run_failed"


@pytest.mark.parametrize(("used", "news"), [(11, [(False, "usage")]), (1, [])])
def test_a_budget_exhausted_by_the_last_response_is_recorded(used: float, news: list[tuple[bool, str]]) -> None:
    """Although no call follows. A settlement within the budget is not recorded."""
    run = Run(MONEY)
    run.gets(0.1)
    run.feed(interface.AdapterEnded(now_ms=3))
    (claim,) = (each.claim for each in run.reservations)
    settled = ReservationResult(claim=claim, granted=not news, held=0, used=used, before=0, reserved=0)
    run.feed(interface.Settled(now_ms=4, results=(settled,)))

    assert [(event.granted, event.asked_for) for event in run.of(ev.BudgetReserved)] == [(True, "start"), *news]


def test_a_call_asks_the_store_only_if_it_needs_a_reservation() -> None:
    """The reserved amount covers it, and nothing was used since."""
    run = Run(MONEY)
    run.gets(0.1)
    reserved = len([effect for effect in run.effects if isinstance(effect, Reserve)])
    run.asks("a", "b")

    assert len([effect for effect in run.effects if isinstance(effect, Reserve)]) == reserved == 1
    assert [event.tool_name for event in run.of(ev.ToolCallStarted)] == ["a", "b"]


@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize(
    "gone",
    [interface.AdapterEnded(now_ms=3), interface.Withdrawn(now_ms=3, key=1, call_id="c1")],
    ids=["agent", "call"],
)
def test_a_call_that_is_gone_before_the_store_answers_does_not_run(gone: interface.Input, stores: bool) -> None:
    """It was denied meanwhile, so its reservation allows nothing, even while the denial is not durable yet."""
    run = Run(Budget(name="calls", max_tool_calls=2))
    run.gets(0)
    run.asks("a")
    run.stores = stores
    run.feed(gone)
    run.gets(1, now_ms=4)
    run.feed(interface.Stored(now_ms=5, count=run.written))

    assert run.of(ev.ToolCallStarted) == []
    assert run.allowed == [False]


def test_no_call_with_a_pending_reservation_runs_after_one_that_cancels_the_run() -> None:
    """Both waited for the same one."""
    run = Run(
        Budget(name="calls", max_tool_calls=5), rules=(Check(lambda call: call.name != "bad", action="cancel"),)
    )
    run.gets(0)
    run.asks("first", "bad", "good")
    run.gets(1)
    run.gets(2)

    assert [event.tool_name for event in run.of(ev.ToolCallStarted)] == ["first"]
    assert run.allowed == [True, False, False]


def test_a_settled_run_reserves_nothing() -> None:
    """Although its clock ran until the settlement; no deadline is set."""
    run = Run(TIME)
    run.gets(SLICE_MS)
    run.feed(interface.AdapterEnded(now_ms=2 + SLICE_MS))
    run.feed(interface.Ticked(now_ms=3 + SLICE_MS))
    draws = [effect for effect in run.effects if isinstance(effect, Reserve | Settle)]

    assert [type(effect) for effect in draws] == [Reserve, Settle]


def test_a_reservation_that_arrives_after_the_end_changes_nothing() -> None:
    """The monitor raised during the reservation, so the run ended without the result."""
    run = Run(MONEY)
    run.feed(interface.AdapterEnded(now_ms=3))

    def broken(now_ms: int) -> Any:
        raise ValueError("boom")

    run.monitor_is_broken = True
    run.monitor.tick = broken  # type: ignore[method-assign]
    run.feed(interface.Ticked(now_ms=4))
    done = len(run.effects)
    run.gets(0.1, now_ms=5)

    assert isinstance(run.record[-1], ev.TERMINAL)
    assert isinstance(run.effects[done - 1], Finish)
    assert run.effects[done:] == []


async def asked_elsewhere(call: ToolCall) -> bool:
    """An asynchronous check; the test supplies its results."""
    raise AssertionError(call)


@pytest.mark.parametrize(("answer", "passes"), [(True, True), (False, False), (ValueError("out"), False)])
def test_a_call_with_an_asynchronous_check_is_reserved_for_once(answer: object, passes: bool) -> None:
    """After the check, as a reservation is charged to other runs too. A machine restored in between calls the check
    again, since a snapshot of its result could be read as an approval.
    """
    run = Run(Budget(name="calls", max_tool_calls=2), rules=(Check(check=asked_elsewhere, id="check"),))
    run.gets(0)
    run.asks("x")
    before = [type(effect) for effect in run.effects if isinstance(effect, Reserve | RunChecks | AnswerGate)]
    run.feed(interface.Checked(now_ms=3, key=1, answers={"check": answer}))
    restored = run.restored()
    run.monitor_is_broken = True  # a machine restored here calls the check again
    run.gets(1)
    again = restored.handle(run.latest)

    assert before == [Reserve, RunChecks]
    assert len(run.effects_of(Reserve)) == (2 if passes else 3)  # a denied call returns its reservation
    assert run.allowed == [passes]
    assert RunChecks in map(type, again)


def test_a_withdrawn_call_leaves_no_answer_of_its_checks() -> None:
    """They may be any objects, and a long run has many calls that are withdrawn."""
    run = Run(Budget(name="calls", max_tool_calls=2), rules=(Check(check=asked_elsewhere, id="check"),))
    run.gets(0)
    run.asks("x")
    run.feed(interface.Checked(now_ms=3, key=1, answers={"check": True}))
    kept = [*run.machine._gate._checked]
    run.feed(interface.Withdrawn(now_ms=4, key=1, call_id="c1"))

    assert kept == [1]
    assert run.machine._gate._checked == {}


def test_the_reservation_of_a_withdrawn_call_allows_the_next() -> None:
    """The store had one call left for two pending ones."""
    run = Run(Budget(name="calls", max_tool_calls=2))
    run.gets(0)
    run.asks("a", "b", "c")
    run.gets(1)
    run.feed(interface.Withdrawn(now_ms=2, key=2, call_id="c2"))
    run.gets(1)

    assert [event.tool_name for event in run.of(ev.ToolCallStarted)] == ["a", "c"]
    assert run.of(ev.PolicyViolated) == []
