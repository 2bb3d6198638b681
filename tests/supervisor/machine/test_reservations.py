"""What one run asks of the store about shared budgets, step by step: how much, when, and what it makes of answers."""

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
    """A run of these budgets, its record durable at once; `left` is what the store gives of each at most."""

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
        self.stored = 0
        self.commands: list[Effect] = []
        self.keys = 0
        self.judge_is_broken = False
        if not record:
            self.tell(interface.Begin(now_ms=1, prompt="go"))

    def restored(self) -> RunMachine:
        return RunMachine.restore(self.machine.snapshot(), self.compiled.restore(self.monitor.snapshot()))

    def tell(self, input: interface.Input) -> None:
        self.latest = input
        restored = self.restored()
        self.commands += (commands := self.machine.handle(input))
        assert self.judge_is_broken or [*map(repr, restored.handle(input))] == [*map(repr, commands)]
        while self.machine.unwritten:
            taken = self.machine.drain_record()
            self.record += taken
            self.stored += len(taken)
            self.commands += self.machine.handle(interface.Stored(now_ms=input.now_ms, count=self.stored))

    def spends(self, usd: float, now_ms: int = 2) -> None:
        self.tell(interface.Reported(now_ms=now_ms, event=ev.TokenUsageUpdated(cost_usd=usd)))

    def asks(self, *tools: str, now_ms: int = 2) -> None:
        for tool in tools:
            self.keys += 1
            call = ToolCall(id=f"c{self.keys}", name=tool)
            self.tell(interface.Proposed(now_ms=now_ms, key=self.keys, call=call))

    def of_commands(self, kind: type[Any]) -> list[Effect]:
        return [command for command in self.commands if isinstance(command, kind)]

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """What was asked last."""
        return [command for command in self.commands if isinstance(command, Reserve)][-1].reservations

    def gets(self, *held: float, now_ms: int = 2, granted: bool = True) -> None:
        """The store holds so much of each for the run."""
        answers = zip(self.reservations, held, strict=True)
        drawn = [
            ReservationResult(claim=draw.claim, granted=granted, held=much, used=draw.used, before=0, reserved=much)
            for draw, much in answers
        ]
        self.tell(interface.Reserved(now_ms=now_ms, results=tuple(drawn)))

    @property
    def allowed(self) -> list[bool]:
        return [command.answer.allowed for command in self.commands if isinstance(command, AnswerGate)]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.record if isinstance(event, kind)]


MONEY = Budget(name="money", max_cost_usd=10)
TIME = Budget(name="time", max_duration_ms=600_000)


def test_before_its_first_response_a_run_sets_a_part_aside_then_as_much_as_the_largest_took() -> None:
    """Others can start beside it, and the next response is not begun on nothing; once granted, it is counted."""
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


def test_time_is_set_aside_a_slice_at_once_and_more_of_it_before_that_is_over() -> None:
    """The alarm is set to when it is used up."""
    run = Run(TIME)
    run.gets(SLICE_MS)
    armed = [command.at_ms for command in run.commands if isinstance(command, ArmDeadline)]
    before = len(run.commands)
    run.tell(interface.Ticked(now_ms=SLICE_MS))
    early = [command for command in run.commands[before:] if isinstance(command, Reserve)]
    run.tell(interface.Ticked(now_ms=1 + SLICE_MS))

    assert (run.reservations[0].want, run.reservations[0].used) == (SLICE_MS, SLICE_MS)
    assert armed == [1 + SLICE_MS]
    assert early == []


@pytest.mark.parametrize("budget", [TIME, MONEY, Budget(name="tokens", max_total_tokens=1_000)])
def test_a_refusal_says_what_is_used_up_in_its_unit(budget: Budget) -> None:
    """Whatever is counted."""
    run = Run(budget)
    run.gets(0, granted=False)
    (violation,) = run.of(ev.PolicyViolated)
    unit = {"time": " ms ", "money": "$", "tokens": " tokens "}[budget.name]

    assert all(unit in f" {violation.details[each]} " for each in ("expected", "actual"))


def test_of_two_budgets_of_calls_only_the_one_that_is_used_up_refuses() -> None:
    """The other has room. Calls that wait together are asked for together."""
    run = Run(Budget(name="few", max_tool_calls=2), Budget(name="many", max_tool_calls=100))
    run.gets(0, 0)
    run.asks("a", "b", "c")
    run.gets(1, 1)
    wanted = [(draw.want, draw.least) for draw in run.reservations]
    run.gets(1, 2)

    assert wanted == [(2, 1), (2, 1)]
    assert [event.tool_name for event in run.of(ev.ToolCallStarted)] == ["a", "b"]
    assert [violation.rule for violation in run.of(ev.PolicyViolated)] == ["few"]
    assert [(event.budget, event.granted) for event in run.of(ev.BudgetReserved)] == [
        ("org/few", True),
        ("org/many", True),
        ("org/few", False),
    ]


@pytest.mark.parametrize("used_up", [False, True])
def test_a_run_resumed_from_its_record_keeps_asking(used_up: bool) -> None:
    """And records no answer anew that is on record; that there is something again of what was used up is news."""
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


def test_what_was_used_is_settled_once_at_the_end() -> None:
    """Whatever happens later."""
    run = Run(MONEY)
    run.gets(0.1)
    run.spends(1)
    run.gets(1)
    run.tell(interface.AdapterEnded(now_ms=5))
    run.spends(7, now_ms=6)
    run.tell(interface.AdapterEnded(now_ms=7))
    settled = [command.used for command in run.commands if isinstance(command, Settle)]

    assert settled == [{"cost_usd": 1}]


def test_the_alarm_is_set_to_the_first_of_several_times() -> None:
    """What is used up first ends the run first."""
    run = Run(TIME, Budget(name="long", max_duration_ms=60_000_000))
    run.gets(20_000, 60_000)
    armed = [command.at_ms for command in run.commands if isinstance(command, ArmDeadline)]

    assert armed[-1] == 20_001


def test_a_run_that_ends_while_the_store_is_asked_settles_after_the_answer() -> None:
    """And its end is written when that is known; it reserves nothing for what it used meanwhile."""
    run = Run(MONEY)
    run.gets(0.1)
    run.spends(1)
    run.spends(2)
    run.tell(interface.AdapterEnded(now_ms=3))
    early = run.of_commands(Settle)
    run.gets(1)
    (settle,) = (command for command in run.commands if isinstance(command, Settle))
    unfinished = run.record[-1].type
    run.tell(interface.Settled(now_ms=4, results=()))

    assert (early, settle.used) == ([], {"cost_usd": 3})
    assert len(run.of_commands(Reserve)) == 2
    assert not unfinished.startswith("run_failed")
    assert run.record[-1].type == "run_failed"
    assert isinstance(run.commands[-1], Finish)


def test_a_run_that_is_refused_from_the_start_draws_on_nothing() -> None:
    """Its session had used up a limit before."""
    spent = Limits(max_total_tokens=Limit(max=10, scope="session"))
    before = Run(limits=spent)
    before.tell(interface.Reported(now_ms=2, event=ev.TokenUsageUpdated(input_tokens=11)))
    before.tell(interface.AdapterEnded(now_ms=3))
    run = Run(MONEY, limits=spent, record=before.record, run_id="r2")
    run.tell(interface.Begin(now_ms=4, prompt="go", first=False))

    assert run.machine.cancelling
    assert not [command for command in run.commands if isinstance(command, Reserve)]


def test_while_a_run_settles_it_is_not_cancelled_and_no_call_runs() -> None:
    """Its agent is gone: it has ended as it has, and what it used is told already."""
    run = Run(MONEY)
    run.gets(0.1)
    run.tell(interface.AdapterEnded(now_ms=3))
    run.tell(interface.CancelAsked(now_ms=4, reason="no"))
    run.asks("late", now_ms=4)
    run.tell(interface.Settled(now_ms=5, results=()))

    assert (run.allowed, run.of(ev.ToolCallStarted)) == ([False], [])
    assert run.record[-1].type == "run_failed"


@pytest.mark.parametrize(("used", "news"), [(11, [(False, "usage")]), (1, [])])
def test_what_the_last_response_used_up_is_on_record(used: float, news: list[tuple[bool, str]]) -> None:
    """Though no call comes after it; what is settled within the budget is no news."""
    run = Run(MONEY)
    run.gets(0.1)
    run.tell(interface.AdapterEnded(now_ms=3))
    (claim,) = (each.claim for each in run.reservations)
    settled = ReservationResult(claim=claim, granted=not news, held=0, used=used, before=0, reserved=0)
    run.tell(interface.Settled(now_ms=4, results=(settled,)))

    assert [(event.granted, event.asked_for) for event in run.of(ev.BudgetReserved)] == [(True, "start"), *news]


def test_a_call_asks_the_store_only_where_there_is_something_to_ask() -> None:
    """What was set aside covers it, and nothing was used since."""
    run = Run(MONEY)
    run.gets(0.1)
    reserved = len([command for command in run.commands if isinstance(command, Reserve)])
    run.asks("a", "b")

    assert len([command for command in run.commands if isinstance(command, Reserve)]) == reserved == 1
    assert [event.tool_name for event in run.of(ev.ToolCallStarted)] == ["a", "b"]


@pytest.mark.parametrize(
    "gone",
    [interface.AdapterEnded(now_ms=3), interface.Withdrawn(now_ms=3, key=1, call_id="c1")],
    ids=["agent", "call"],
)
def test_a_call_that_is_gone_before_the_store_answers_does_not_run(gone: interface.Input) -> None:
    """It was refused meanwhile; what was set aside for it permits nothing."""
    run = Run(Budget(name="calls", max_tool_calls=2))
    run.gets(0)
    run.asks("a")
    run.tell(gone)
    run.gets(1, now_ms=4)

    assert run.of(ev.ToolCallStarted) == []
    assert run.allowed == [False]


def test_a_run_that_has_settled_draws_on_nothing_more() -> None:
    """Though its time went on until it was told to have ended, and no alarm is set for it."""
    run = Run(TIME)
    run.gets(SLICE_MS)
    run.tell(interface.AdapterEnded(now_ms=2 + SLICE_MS))
    run.tell(interface.Ticked(now_ms=3 + SLICE_MS))
    draws = [command for command in run.commands if isinstance(command, Reserve | Settle)]

    assert [type(command) for command in draws] == [Reserve, Settle]


def test_a_draw_that_is_answered_after_the_end_changes_nothing() -> None:
    """Judging failed while the store was asked, so the run has ended without its answer."""
    run = Run(MONEY)
    run.tell(interface.AdapterEnded(now_ms=3))

    def broken(now_ms: int) -> Any:
        raise ValueError("boom")

    run.judge_is_broken = True
    run.monitor.tick = broken  # type: ignore[method-assign]
    run.tell(interface.Ticked(now_ms=4))
    done = len(run.commands)
    run.gets(0.1, now_ms=5)

    assert isinstance(run.record[-1], ev.TERMINAL)
    assert isinstance(run.commands[done - 1], Finish)
    assert run.commands[done:] == []


async def asked_elsewhere(call: ToolCall) -> bool:
    """An asynchronous check; its answers are handed in below."""
    raise AssertionError(call)


@pytest.mark.parametrize(("answer", "passes"), [(True, True), (False, False), (ValueError("out"), False)])
def test_a_call_that_an_asynchronous_check_is_asked_about_is_reserved_for_once(answer: object, passes: bool) -> None:
    """After the check has answered: what is reserved counts for other runs, so nothing is while it is asked. A
    machine that is restored meanwhile asks again: what a snapshot made of the answer could be taken for a yes.
    """
    run = Run(Budget(name="calls", max_tool_calls=2), rules=(Check(check=asked_elsewhere, id="check"),))
    run.gets(0)
    run.asks("x")
    before = [type(command) for command in run.commands if isinstance(command, Reserve | RunChecks | AnswerGate)]
    run.tell(interface.Checked(now_ms=3, key=1, answers={"check": answer}))
    restored = run.restored()
    run.judge_is_broken = True  # only in that a machine restored here asks the check again
    run.gets(1)
    again = restored.handle(run.latest)

    assert before == [Reserve, RunChecks]
    assert len(run.of_commands(Reserve)) == (2 if passes else 3)  # what a refused call does not take is given back
    assert run.allowed == [passes]
    assert RunChecks in map(type, again)


def test_what_was_set_aside_for_a_call_that_is_taken_back_lets_the_next_run() -> None:
    """The store had one left for two that waited."""
    run = Run(Budget(name="calls", max_tool_calls=2))
    run.gets(0)
    run.asks("a", "b", "c")
    run.gets(1)
    run.tell(interface.Withdrawn(now_ms=2, key=2, call_id="c2"))
    run.gets(1)

    assert [event.tool_name for event in run.of(ev.ToolCallStarted)] == ["a", "c"]
    assert run.of(ev.PolicyViolated) == []
