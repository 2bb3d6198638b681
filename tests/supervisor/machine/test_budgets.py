"""Budgets that runs share: reserved before they are used, settled after (docs: Shared budgets)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from supervised import around

from proctor.policies import Deny, Policy, PolicyViolationError, Price, RunContext, compile_policy, merge_policies
from proctor.policies import events as ev
from proctor.policies.limits import Budget, BudgetAccount, Limit, Limits
from proctor.supervisor import MemoryStore, RunResult, StoreError, Supervisor, run_once
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.errors import StoreErrorKind
from proctor.supervisor.launch.plan import written
from proctor.supervisor.ports.budget_ledger import Reservation
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest, Owner, RunInfo
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover, Pause, Together

pytestmark = pytest.mark.anyio


def policy(*budgets: Budget, **more: Any) -> Policy:
    return Policy(name="org", budgets=budgets, **more)


def money(most: float = 10, **more: Any) -> Budget:
    return Budget(name="money", max_cost_usd=most, **more)


def spent(usd: float) -> ev.TokenUsageUpdated:
    return ev.TokenUsageUpdated(cost_usd=usd)


async def ran(store: MemoryStore, steps: Any, *budgets: Budget, gate: Any = "all", **more: Any) -> RunResult:
    """The result of a run, also where a policy refused it."""
    stack = more.pop("stack", None) or [policy(*budgets)]
    try:
        return await run_once(FakeAdapter(steps, gate=gate), "go", policies=stack, store=store, **more)
    except PolicyViolationError as error:
        result: RunResult = error.partial
        return result


async def left(store: MemoryStore) -> list[tuple[float, float, float]]:
    """What is used, reserved and left of each budget."""
    return [(budget.used, budget.reserved, budget.left) for budget in await store.budgets()]


def of(result: RunResult, *types: type[ev.Event]) -> list[Any]:
    return [event for event in result.events if isinstance(event, types)]


async def test_what_runs_use_is_added_up_and_nothing_stays_reserved() -> None:
    """Also where the last report comes right before the end."""
    store = MemoryStore()
    for usd in (1.5, 2.25):
        result = await ran(store, [spent(usd), Ask(name="a"), spent(0.25)], money())
        assert result.status == "completed"

    assert await left(store) == [(4.25, 0, 5.75)]


async def test_a_run_that_can_reserve_nothing_does_not_start() -> None:
    """Whatever its action, but for `warn`; the record says what was used, by whom, and when it starts again."""
    store = MemoryStore()
    await ran(store, [spent(10)], money(window="day", per="$.tenant"), context=RunContext(tenant="t"))
    for action in ("cancel", "deny", "request_approval"):
        adapter = FakeAdapter([Ask(name="a")])
        stack = [policy(money(window="day", per="$.tenant", action=action))]
        with pytest.raises(PolicyViolationError) as raised:
            await run_once(adapter, "go", policies=stack, store=store, context=RunContext(tenant="t"))
        violation = raised.value.violations[0]

        assert adapter.launches == []
        assert (violation.kind, violation.rule, violation.action, violation.enforcement) == (
            *("budget", "money", "cancel", "interrupted"),
        )
        assert violation.details["key"] == '$.tenant="t"'
        assert (violation.details["used"], violation.details["max"]) == (10, 10)
        assert "it starts again at" in violation.message
        assert violation.details["resets_at"]
    warned = await ran(
        store, [Ask(name="a")], money(action="warn", window="day", per="$.tenant"), context=RunContext(tenant="t")
    )
    other = await ran(store, [Ask(name="a")], money(window="day", per="$.tenant"), context=RunContext(tenant="u"))

    assert (warned.status, [v.action for v in warned.policy.violations]) == ("completed", ["warn"])
    assert other.status == "completed"


@pytest.mark.parametrize(("own", "other", "over"), [(10, 4, False), (5, 20, True)], ids=["lowered", "raised"])
async def test_a_run_ends_under_the_amount_it_began_with(own: float, other: float, over: bool) -> None:
    """Another run has another amount of the same budget since, as after an edit of the policy."""
    store = MemoryStore()

    async def others(request: ApprovalRequest) -> ApprovalAnswer:
        await ran(store, [], money(other))
        return ApprovalAnswer(granted=True, by="ana")

    asks = policy(money(own), tool_rules=(Deny(tools=("a",), action="request_approval"),))
    steps = [spent(6 if own > other else 2), Ask(name="a"), *([] if own > other else [spent(4)])]
    result = await ran(store, steps, stack=[asks], approver=others)

    assert [(event.used, event.max) for event in of(result, ev.BudgetReserved) if not event.granted] == (
        [(6, own)] if over else []
    )
    assert [event.kind for event in of(result, ev.PolicyViolated)] == (["budget"] if over else [])


A, B, X = Ask(name="a"), Ask(name="b"), Ask(name="x")
TWO_CALLS = policy(Budget(name="c", max_tool_calls=2), tool_rules=[Deny(["x"], action="deny")])
ASKED_AFTER_ONE = policy(Budget(name="calls", max_tool_calls=1, action="request_approval"))


@pytest.mark.parametrize(("steps", "stack", "status", "ran_calls", "found", "of_it"), [
    # what the last response cost beyond the budget is counted, and there is one violation
    ([spent(6), A, spent(6), B], policy(money()), "cancelled", "a", [("budget", "interrupted", None)], (12, 0, 0)),
    ([spent(6), A, spent(4)], policy(money()), "completed", "a", [], (10, 0, 0)),
    ([spent(10), A], policy(money()), "cancelled", "", [("budget", "prevented", "a")], (10, 0, 0)),
    # what was set aside for a call that another rule refuses goes back at once
    ([X, X, X, A, B], TWO_CALLS, "completed", "ab", [("deny", "prevented", "x")] * 3, (2, 0, 0)),
    # with `request_approval` each later call is held, and what it used is counted
    ([A, B], ASKED_AFTER_ONE, "completed", "ab", [], (2, 0, 0)),
], ids=["past it", "up to it", "nothing left", "refused by another rule", "let past it"])  # fmt: skip
async def test_what_a_run_uses_of_a_budget_decides_on_its_next_call(
    steps: list[Any], stack: Policy, status: str, ran_calls: str, found: list[Any], of_it: tuple[float, float, float]
) -> None:
    """A budget that is used up exactly ends no run that needs no more."""
    store = MemoryStore()
    result = await ran(store, steps, stack=[stack], approver=FakeApprover(True))

    assert (result.status, await left(store)) == (status, [of_it])
    assert "".join(event.tool_name for event in of(result, ev.ToolCallStarted)) == ran_calls
    assert [(v.kind, v.enforcement, v.tool_name) for v in result.policy.violations] == found


@pytest.mark.parametrize("gate", ["some", "none"])
async def test_an_agent_that_cannot_be_held_is_ended_when_nothing_can_be_reserved(gate: Any) -> None:
    """It could go on with what others have set aside."""
    result = await ran(MemoryStore(), [spent(10), Pause()], money(), gate=gate)

    assert result.status == "cancelled"
    assert [v.kind for v in result.policy.violations] == ["budget"]


async def test_calls_are_counted_before_they_run() -> None:
    """Of several at once as many run as there is room for; refused ones are not counted."""
    store = MemoryStore()
    calls = Budget(name="calls", max_tool_calls=3, action="deny", tell_model="No more today.")
    result = await ran(
        store, [Ask(name="a"), Together((Ask(name="b"), Ask(name="c"), Ask(name="d"))), Ask(name="e")], calls
    )

    assert result.status == "completed"
    assert len(of(result, ev.ToolCallStarted)) == 3
    assert [event.tell_model for event in of(result, ev.ToolCallDenied)] == ["No more today."] * 2
    assert await left(store) == [(3, 0, 0)]


async def test_a_warning_comes_once_in_a_window_whichever_run_passes_the_fraction() -> None:
    """With what is used by all, and whose it is."""
    store = MemoryStore()
    budget = money(10, warn_at=[0.5, 0.8], per="$.user")
    warnings = []
    for usd in (4, 2, 1, 2):
        result = await ran(store, [spent(usd)], budget, context=RunContext(user="u"))
        warnings.append([(w.limit, w.used, w.max, w.key) for w in of(result, ev.BudgetWarned)])

    key = '$.user="u"'
    assert warnings == [[], [("org/money", 6, 10, key)], [], [("org/money", 9, 10, key)]]


async def test_a_warning_comes_at_its_fraction_and_not_one_call_later() -> None:
    """55 % of 100 calls are 55; so for a limit."""
    steps = [spent(55), Ask(name="a")]
    result = await ran(MemoryStore(), steps, money(100, warn_at=0.55))
    limits = Limits(max_cost_usd=Limit(max=100, warn_at=0.55))
    limited = await ran(MemoryStore(), steps, stack=[Policy(name="org", limits=limits)])

    assert [(w.limit, w.used) for w in of(result, ev.BudgetWarned)] == [("org/money", 55)]
    assert [(w.limit, w.used) for w in of(limited, ev.BudgetWarned)] == [("max_cost_usd", 55)]


async def test_no_more_runs_go_on_at_once_than_a_budget_has_places() -> None:
    """The next starts when one has ended."""
    store = MemoryStore()
    stack = [policy(Budget(name="places", max_running=2))]
    async with Supervisor(store) as supervisor:
        one, two = [await supervisor.start(FakeAdapter([Pause()]), "go", policies=stack) for _ in range(2)]
        third = await supervisor.start(FakeAdapter([]), "go", policies=stack)
        with pytest.raises(PolicyViolationError, match="`org`: 2 runs at once reserved; expected at most 2 runs"):
            await third.wait()
        await one.cancel()
        await one.wait()
        fourth = await supervisor.start(FakeAdapter([]), "go", policies=stack)
        assert (await fourth.wait()).status == "completed"
        await two.cancel()

    assert await left(store) == [(0, 0, 2)]


async def test_what_must_be_free_is_set_aside_and_kept_from_others() -> None:
    """`reserve` is all or nothing; without it a run takes what is left."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        stack = [policy(money(10, reserve=6))]
        going = await supervisor.start(FakeAdapter([Pause()]), "go", policies=stack)
        async with supervisor.subscribe(run_id=going.run_id) as events:
            async for event in events:
                if isinstance(event, ev.BudgetReserved):
                    break
        assert await left(store) == [(0, 6, 4)]
        refused = await supervisor.start(FakeAdapter([]), "go", policies=stack)
        with pytest.raises(PolicyViolationError):
            await refused.wait()
        small = await supervisor.start(FakeAdapter([spent(1)]), "go", policies=[policy(money(10))])
        assert (await small.wait()).status == "completed"
        await going.cancel()

    assert await left(store) == [(1, 0, 9)]


@pytest.mark.parametrize("unpriced", ["warn", "reject"])
async def test_money_of_a_model_without_a_price_is_reported_or_refused(unpriced: Any) -> None:
    """As with limits."""
    store = MemoryStore()
    usage = ev.TokenUsageUpdated(input_tokens=10, model="nobody-knows")
    prices = {"other": Price(input_usd_per_mtok=1, output_usd_per_mtok=1)}
    stack = [policy(money(), unpriced=unpriced, prices=prices)]
    result = await ran(store, [usage], stack=stack)

    if unpriced == "warn":
        assert result.policy.metadata["skipped_budgets"] == ["org/money"]
    else:
        assert [v.kind for v in result.policy.violations] == ["budget"]
        assert result.status == "cancelled"


async def test_a_store_that_cannot_reserve_lets_nothing_start() -> None:
    """Nothing is used that nobody counts."""

    async def fails(*_: Any, **owned: Any) -> None:
        raise StoreError("the disk is full")

    adapter = FakeAdapter([Ask(name="a")])
    with pytest.raises(StoreError, match="disk is full"):
        await run_once(adapter, "go", policies=[policy(money())], store=around(reserve=fails))

    assert adapter.launches == []


@pytest.mark.trio
@pytest.mark.parametrize(("failures", "kind", "attempts"), [(2, "unwritable", 3), (99, "gone", 1)])
async def test_a_store_that_cannot_settle_is_asked_again_and_does_not_hold_the_run_up(
    failures: int, kind: StoreErrorKind, attempts: int, autojump_clock: object
) -> None:
    """Nobody else tells it what was used since; one that is gone is not asked: who reserves next finds it over."""
    settled: list[str] = []

    async def hiccups(settle: Any, run_id: str, *used: Any, **owned: Any) -> Any:
        settled.append(run_id)
        if len(settled) <= failures:
            raise StoreError("the server is restarting", kind=kind)
        return await settle(run_id, *used, **owned)

    store = around(settle=hiccups)
    assert (await ran(store, [spent(2), Ask(name="a"), spent(1)], money(reserve=1))).status == "completed"

    assert [(b.reserved, b.runs) for b in await store.budgets()] == [(0, 0)]
    assert kind == "gone" or [b.used for b in await store.budgets()] == [3]
    assert len(settled) == attempts


async def test_a_run_without_budgets_never_asks_for_them() -> None:
    """Using none of it costs nothing."""

    async def unasked(*_: Any, **__: Any) -> None:
        raise AssertionError("nobody needs to know")

    store = around(reserve=unasked, settle=unasked, budgets=unasked)
    result = await ran(store, [spent(2), Ask(name="a")], stack=[Policy(name="none")])

    assert result.status == "completed"


async def test_the_answers_are_on_record_when_they_are_news() -> None:
    """Granted at the start, refused once; folding the record again finds the same."""
    store = MemoryStore()
    calls = Budget(name="calls", max_tool_calls=2, action="deny")
    result = await ran(store, [Ask(name="a"), Ask(name="b"), Ask(name="c"), Ask(name="d")], calls)
    answers = [(e.granted, e.asked_for, e.used) for e in of(result, ev.BudgetReserved)]
    monitor = compile_policy(merge_policies([policy(calls)])).monitor(RunContext())
    for event in result.events:
        monitor.observe(event)

    assert answers == [(True, "start", 0), (False, "call", 2)]
    assert len(of(result, ev.PolicyViolated)) == 2
    assert monitor.narrow(["a"]) == []
    assert "uncounted_budgets" not in monitor.metadata


async def lost_run(store: MemoryStore, *events: ev.Event, want: float, policies: Sequence[Policy] = ()) -> Owner:
    """A run that has reserved that much, and the owner who will be gone."""
    metadata = {"policies": written(policies)}
    owner = await store.register(Owner(owner_id="o"), lease_s=60)
    await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=owner.epoch)
    claim = BudgetAccount(budget="org/money", key="", counts="cost_usd", window="", max=10)
    await store.append([ev.RunStarted(run_id="r", session_id="s", metadata=metadata), *events], epoch=owner.epoch)
    await store.reserve("r", [Reservation(claim=claim, used=1, want=want)], epoch=owner.epoch)
    return owner


@pytest.mark.parametrize("used", [{"cost_usd": 3.0}, {"input_tokens": 3, "model": "own"}], ids=repr)
async def test_a_lost_run_gives_back_what_it_held_and_pays_for_what_it_used(used: dict[str, Any]) -> None:
    """Whoever ends it settles what its record says, by the prices there, also what its owner had told nobody."""
    store = MemoryStore()
    stack = [policy(prices={"own": Price(input_usd_per_mtok=1_000_000, output_usd_per_mtok=0)}), policy()]
    owner = await lost_run(store, ev.TokenUsageUpdated(run_id="r", session_id="s", **used), want=5, policies=stack)
    await store.release(owner.epoch)
    await reap(store)

    assert await left(store) == [(3, 0, 7)]


@pytest.mark.parametrize("action", ["warn", "deny"])
async def test_a_run_that_goes_on_past_a_budget_of_time_asks_the_store_seldom(action: Any) -> None:
    """Once a minute, and before a call, which may have something again: not for every moment that passes."""
    reservations: list[str] = []

    async def reserve(usual: Any, run_id: str, *draws: Any, **owned: Any) -> Any:
        reservations.append(run_id)
        return await usual(run_id, *draws, **owned)

    store = around(reserve=reserve)
    steps = [Pause(0.05), Ask(name="a"), Pause(0.05)]
    result = await ran(store, steps, Budget(name="time", max_duration_ms=20, action=action))

    assert result.status == "completed"
    assert [event.granted for event in of(result, ev.BudgetReserved)] == [True, False]
    assert len(of(result, ev.ToolCallStarted)) == (action == "warn")
    assert len(reservations) <= 4


async def test_a_lost_run_pays_for_the_time_that_its_record_shows() -> None:
    """Not only for what its owner has last told the store."""
    store, start = MemoryStore(), datetime(2026, 3, 1, tzinfo=UTC)
    owner = await store.register(Owner(owner_id="o"), lease_s=60)
    await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=owner.epoch)
    claim = BudgetAccount(budget="org/time", key="", counts="duration_ms", window="", max=100_000)
    last = ev.MessageReceived(run_id="r", session_id="s", at=start + timedelta(seconds=50))
    await store.append([ev.RunStarted(run_id="r", session_id="s", at=start), last], epoch=owner.epoch)
    await store.reserve("r", [Reservation(claim=claim, used=10_000, want=60_000)], epoch=owner.epoch)
    await store.release(owner.epoch)
    await reap(store)

    assert await left(store) == [(50_000, 0, 50_000)]


async def test_a_run_is_not_refused_for_what_lost_runs_had_set_aside() -> None:
    """Its supervisor has looked for lost runs before that one was lost, and looks again before it starts the next."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        first = await supervisor.start(FakeAdapter([]), "go", policies=[policy(money())])
        await first.wait()
        owner = await lost_run(store, want=9)
        there = await supervisor.start(FakeAdapter([]), "go", policies=[policy(money(reserve=5))])
        with pytest.raises(PolicyViolationError, match=r"\$9\.00 reserved"):
            await there.wait()
        await store.release(owner.epoch)
        gone = await supervisor.start(FakeAdapter([]), "go", policies=[policy(money(reserve=5))])
        await gone.wait()

    assert await left(store) == [(1, 0, 9)]
