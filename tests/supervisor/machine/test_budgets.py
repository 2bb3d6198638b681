"""Shared budgets of runs: reserved before they are used, settled afterwards (docs: Shared budgets)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from supervised import around

from proctor.policies import Deny, Policy, PolicyViolationError, Price, RunContext, compile_policy, merge_policies
from proctor.policies import events as ev
from proctor.policies.limits import Budget, BudgetAccount, Limit, Limits
from proctor.policies.policy import Approval
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
    """The result of a run, also if a policy ended it."""
    stack = more.pop("stack", None) or [policy(*budgets)]
    try:
        return await run_once(FakeAdapter(steps, gate=gate), "go", policies=stack, store=store, **more)
    except PolicyViolationError as error:
        result: RunResult = error.partial
        return result


async def left(store: MemoryStore) -> list[tuple[float, float, float]]:
    """The used, reserved and remaining amount of each budget."""
    return [(budget.used, budget.reserved, budget.left) for budget in await store.budgets()]


def of(result: RunResult, *types: type[ev.Event]) -> list[Any]:
    return [event for event in result.events if isinstance(event, types)]


async def test_calls_at_once_that_an_earlier_approval_covers_all_run() -> None:
    """Each reserves again once its approval is on record, while the others of the first reservation are decided."""

    async def for_the_session(request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(granted=True, by="ana", scope="session", input_digest=request.input_digest)

    calls = Budget(name="calls", max_tool_calls=50)
    asks = Policy(
        name="org",
        budgets=(calls,),
        approval=Approval(scope="session"),
        tool_rules=[Deny(["write"], action="request_approval")],
    )
    at_once = Together(tuple(Ask(name="write", id=f"at once {n}") for n in range(4)))
    steps = [Ask(name="write", id="first"), at_once]
    result = await ran(MemoryStore(), steps, stack=[asks], approver=for_the_session)

    assert result.status == "completed"
    assert len(of(result, ev.ToolCallCompleted)) == 5


async def test_usage_of_runs_is_added_and_no_reservation_remains() -> None:
    """Even if the last report comes right before the end."""
    store = MemoryStore()
    for usd in (1.5, 2.25):
        result = await ran(store, [spent(usd), Ask(name="a"), spent(0.25)], money())
        assert result.status == "completed"

    assert await left(store) == [(4.25, 0, 5.75)]


async def test_a_run_that_cannot_reserve_does_not_start() -> None:
    """With any action except `warn`. The event log says how much is used, by whom, and when the window ends."""
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
async def test_a_run_keeps_the_amount_it_started_with(own: float, other: float, over: bool) -> None:
    """Another run has since started with another amount for the same budget, as after an edit of the policy."""
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
    # the last response's cost beyond the budget counts, and there is one violation
    ([spent(6), A, spent(6), B], policy(money()), "cancelled", "a", [("budget", "interrupted", None)], (12, 0, 0)),
    ([spent(6), A, spent(4)], policy(money()), "completed", "a", [], (10, 0, 0)),
    ([spent(10), A], policy(money()), "cancelled", "", [("budget", "prevented", "a")], (10, 0, 0)),
    # the reservation for a call that another rule denies is returned at once
    ([X, X, X, A, B], TWO_CALLS, "completed", "ab", [("deny", "prevented", "x")] * 3, (2, 0, 0)),
    # with `request_approval`, each later call is held and its usage counts
    ([A, B], ASKED_AFTER_ONE, "completed", "ab", [], (2, 0, 0)),
], ids=["past it", "up to it", "nothing left", "refused by another rule", "let past it"])  # fmt: skip
async def test_the_usage_of_a_run_decides_about_its_next_call(
    steps: list[Any], stack: Policy, status: str, ran_calls: str, found: list[Any], of_it: tuple[float, float, float]
) -> None:
    """A budget that is used up exactly does not end a run that needs no more."""
    store = MemoryStore()
    result = await ran(store, steps, stack=[stack], approver=FakeApprover(True))

    assert (result.status, await left(store)) == (status, [of_it])
    assert "".join(event.tool_name for event in of(result, ev.ToolCallStarted)) == ran_calls
    assert [(v.kind, v.enforcement, v.tool_name) for v in result.policy.violations] == found


@pytest.mark.parametrize("gate", ["some", "none"])
async def test_an_agent_without_a_gate_is_cancelled_when_nothing_can_be_reserved(gate: Any) -> None:
    """It could continue at the expense of other runs' reservations."""
    result = await ran(MemoryStore(), [spent(10), Pause()], money(), gate=gate)

    assert result.status == "cancelled"
    assert [v.kind for v in result.policy.violations] == ["budget"]


async def test_calls_are_counted_before_they_run() -> None:
    """Of several at once, only as many run as the budget allows. Denied calls do not count."""
    store = MemoryStore()
    calls = Budget(name="calls", max_tool_calls=3, action="deny", tell_model="No more today.")
    result = await ran(
        store, [Ask(name="a"), Together((Ask(name="b"), Ask(name="c"), Ask(name="d"))), Ask(name="e")], calls
    )

    assert result.status == "completed"
    assert len(of(result, ev.ToolCallStarted)) == 3
    assert [event.tell_model for event in of(result, ev.ToolCallDenied)] == ["No more today."] * 2
    assert await left(store) == [(3, 0, 0)]


async def test_a_budget_warns_once_a_window_whichever_run_reaches_the_fraction() -> None:
    """With the total usage and the account."""
    store = MemoryStore()
    budget = money(10, warn_at=[0.5, 0.8], per="$.user")
    warnings = []
    for usd in (4, 2, 1, 2):
        result = await ran(store, [spent(usd)], budget, context=RunContext(user="u"))
        warnings.append([(w.limit, w.used, w.max, w.key) for w in of(result, ev.BudgetWarned)])

    key = '$.user="u"'
    assert warnings == [[], [("org/money", 6, 10, key)], [], [("org/money", 9, 10, key)]]


async def test_a_warning_comes_exactly_at_its_fraction() -> None:
    """55 % of 100 calls are 55. The same holds for a limit."""
    steps = [spent(55), Ask(name="a")]
    result = await ran(MemoryStore(), steps, money(100, warn_at=0.55))
    limits = Limits(max_cost_usd=Limit(max=100, warn_at=0.55))
    limited = await ran(MemoryStore(), steps, stack=[Policy(name="org", limits=limits)])

    assert [(w.limit, w.used) for w in of(result, ev.BudgetWarned)] == [("org/money", 55)]
    assert [(w.limit, w.used) for w in of(limited, ev.BudgetWarned)] == [("max_cost_usd", 55)]


async def test_max_running_limits_the_active_runs() -> None:
    """The next run starts when one has ended."""
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


async def test_reserve_is_reserved_at_the_start_and_kept_from_others() -> None:
    """It is reserved whole or not at all. Without `reserve`, a run takes what remains."""
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
async def test_the_cost_of_a_model_without_a_price_is_reported_or_rejected(unpriced: Any) -> None:
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


async def test_no_run_starts_if_the_store_cannot_reserve() -> None:
    """Otherwise its usage would not be counted."""

    async def fails(*_: Any, **owned: Any) -> None:
        raise StoreError("the disk is full")

    adapter = FakeAdapter([Ask(name="a")])
    with pytest.raises(StoreError, match="disk is full"):
        await run_once(adapter, "go", policies=[policy(money())], store=around(reserve=fails))

    assert adapter.launches == []


@pytest.mark.trio
@pytest.mark.parametrize(("failures", "kind", "attempts"), [(2, "unwritable", 3), (99, "gone", 1)])
async def test_a_failed_settlement_is_retried_without_delaying_the_run(
    failures: int, kind: StoreErrorKind, attempts: int, autojump_clock: object
) -> None:
    """No other process knows the run's latest usage. A lost one is not retried: the next reservation releases it."""
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


async def test_a_run_without_budgets_never_asks_the_store_for_them() -> None:
    async def unasked(*_: Any, **__: Any) -> None:
        raise AssertionError("nobody needs to know")

    store = around(reserve=unasked, settle=unasked, budgets=unasked)
    result = await ran(store, [spent(2), Ask(name="a")], stack=[Policy(name="none")])

    assert result.status == "completed"


async def test_reservations_are_recorded_only_when_they_change_something() -> None:
    """A grant at the start and one denial. Replaying the log gives the same state."""
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
    """The owner of a run with this reservation, about to be lost."""
    metadata = {"policies": written(policies)}
    owner = await store.register(Owner(owner_id="o"), lease_s=60)
    await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=owner.epoch)
    claim = BudgetAccount(budget="org/money", key="", counts="cost_usd", window="", max=10)
    await store.append([ev.RunStarted(run_id="r", session_id="s", metadata=metadata), *events], epoch=owner.epoch)
    await store.reserve("r", [Reservation(claim=claim, used=1, want=want)], epoch=owner.epoch)
    return owner


@pytest.mark.parametrize("used", [{"cost_usd": 3.0}, {"input_tokens": 3, "model": "own"}], ids=repr)
async def test_a_lost_run_returns_its_reservation_and_pays_for_its_usage(used: dict[str, Any]) -> None:
    """The process that ends it settles the usage in the event log at the stored prices, including usage that was
    never settled.
    """
    store = MemoryStore()
    stack = [policy(prices={"own": Price(input_usd_per_mtok=1_000_000, output_usd_per_mtok=0)}), policy()]
    owner = await lost_run(store, ev.TokenUsageUpdated(run_id="r", session_id="s", **used), want=5, policies=stack)
    await store.release(owner.epoch)
    await reap(store)

    assert await left(store) == [(3, 0, 7)]


@pytest.mark.parametrize("action", ["warn", "deny"])
async def test_a_run_past_its_time_budget_asks_the_store_rarely(action: Any) -> None:
    """Once a minute, and before a call, when the budget may have time again."""
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


async def test_a_lost_run_pays_for_the_time_its_log_shows() -> None:
    """Not only for the time that its owner last reported to the store."""
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


async def test_reservations_of_lost_runs_do_not_deny_a_start() -> None:
    """The supervisor searched for lost runs before that run was lost, and searches again before it starts
    the next.
    """
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
