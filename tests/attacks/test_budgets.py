"""Attempts to exceed a shared budget (docs: Shared budgets, What holds)."""

from typing import Any

import anyio
import pytest

from proctor.policies import Budget, Policy, PolicyViolationError, RunContext
from proctor.policies import events as ev
from proctor.supervisor import MemoryStore, ProctorError, RunResult, Supervisor, create_run, execute_run, run_once
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.testing import Ask, Crash, FakeAdapter, Pause

pytestmark = pytest.mark.anyio


def org(most: float = 10, **more: Any) -> Policy:
    return Policy(name="org", locked=True, budgets=[Budget(name="money", max_cost_usd=most, **more)])


def spent(usd: float, **more: Any) -> ev.TokenUsageUpdated:
    return ev.TokenUsageUpdated(cost_usd=usd, **more)


async def ran(store: MemoryStore, steps: Any, *policies: Policy, **more: Any) -> RunResult:
    try:
        return await run_once(FakeAdapter(steps), "go", policies=list(policies), store=store, **more)
    except ProctorError as error:
        result: RunResult = error.partial  # type: ignore[attr-defined]
        return result


async def used(store: MemoryStore) -> dict[str, float]:
    return {budget.key: budget.used for budget in await store.budgets()}


def calls(result: RunResult) -> int:
    return sum(isinstance(event, ev.ToolCallStarted) for event in result.events)


async def test_a_resumed_session_keeps_its_usage() -> None:
    """A session budget counts all its runs, also with another label."""
    store, policy = MemoryStore(), org(window="session")
    first = await ran(store, [spent(7)], policy, session_id="s", context=RunContext(labels={"n": 1}))
    again = await ran(store, [spent(7), Ask(name="a")], policy, session_id="s", context=RunContext(labels={"n": 2}))
    third = await ran(store, [Ask(name="a")], policy, session_id="s")

    assert (first.status, again.status, third.status) == ("completed", "cancelled", "cancelled")
    assert (calls(again), calls(third)) == (0, 0)
    assert await used(store) == {'$.session_id="s"': 14}


async def test_another_label_is_another_budget_and_the_global_one_still_applies() -> None:
    """Whoever sets the labels chooses the account. A budget without `per` can't be evaded."""
    store = MemoryStore()
    policy = Policy(
        name="org",
        budgets=[Budget(name="team", max_cost_usd=6, per="$.labels.team"), Budget(name="all", max_cost_usd=10)],
    )
    statuses = [
        (await ran(store, [spent(6), Ask(name="x")], policy, context=RunContext(labels={"team": team}))).status
        for team in "ab"
    ]
    renamed = await ran(store, [Ask(name="x")], policy, context=RunContext(labels={"team": "c"}))

    assert statuses == ["cancelled", "cancelled"]
    assert (renamed.status, calls(renamed)) == ("cancelled", 0)


@pytest.mark.parametrize("seven", [7, 7.0, "7"])
async def test_a_label_of_another_type_is_the_same_label(seven: Any) -> None:
    """7, 7.0 and "7"."""
    store, policy = MemoryStore(), org(per="$.labels.team")
    await ran(store, [spent(10)], policy, context=RunContext(labels={"team": 7}))
    result = await ran(store, [Ask(name="a")], policy, context=RunContext(labels={"team": seven}))

    assert (result.status, calls(result)) == ("cancelled", 0)


async def test_a_run_without_a_required_label_does_not_start() -> None:
    """Otherwise it would have no budget."""
    adapter = FakeAdapter([Ask(name="a")])
    with pytest.raises(PolicyViolationError, match=r"its `per` asks for `\$.labels.team`"):
        await run_once(adapter, "go", policies=[org(per="$.labels.team")])

    assert adapter.launches == []


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["org", "team"])
async def test_a_policy_that_redefines_the_budget_changes_nothing(first: bool, name: str) -> None:
    """With the same name or another, before or after it, larger and weaker."""
    store = MemoryStore()
    loose = Policy(name=name, budgets=[Budget(name="money", max_cost_usd=1000, action="warn", warn_at=0.001)])
    stack = [loose, org()] if first else [org(), loose]
    result = await ran(store, [spent(11), Ask(name="a")], *stack)

    assert (result.status, calls(result)) == ("cancelled", 0)


async def test_a_policy_with_lower_prices_changes_nothing() -> None:
    """A locked budget uses at least its own prices, or the public ones."""
    from proctor.policies import Price

    store = MemoryStore()
    dear = Price(input_usd_per_mtok=1_000_000, output_usd_per_mtok=1_000_000)
    free = Price(input_usd_per_mtok=0, output_usd_per_mtok=0)
    locked = Policy(name="org", locked=True, prices={"m": dear}, budgets=[Budget(name="money", max_cost_usd=10)])
    cheap = Policy(name="team", prices={"m": free, "*": free})
    result = await ran(store, [ev.TokenUsageUpdated(input_tokens=11, model="m"), Ask(name="a")], locked, cheap)

    assert (result.status, await used(store)) == ("cancelled", {"": 11})


async def test_the_usage_of_a_cancelled_run_counts() -> None:
    """An interrupted turn costs what it has used."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([spent(4), Pause()]), "go", policies=[org()])
        async with supervisor.subscribe(run_id=handle.run_id) as events:
            async for event in events:
                if isinstance(event, ev.TokenUsageUpdated):
                    break
        await handle.cancel()

    assert await used(store) == {"": 4}


@pytest.mark.parametrize("steps", [
    [spent(4), Crash(ProviderError("gone"))],
    [ev.MessageReceived(content="done"), spent(4), ev.RunCompleted(output="done")],
    [spent(1, scope="cumulative"), spent(4, scope="cumulative"), spent(2, scope="cumulative")],
    [spent(4, event_id="e"), spent(4, event_id="e")],
], ids=["a crash", "usage at the end", "a total that falls", "a report twice"])  # fmt: skip
async def test_usage_counts_once_however_it_is_reported(steps: list[Any]) -> None:
    """Late, twice, or lower than before."""
    store = MemoryStore()
    await ran(store, steps, org())

    assert await used(store) == {"": 4}


async def test_concurrent_calls_of_many_runs_share_the_rest_of_a_budget() -> None:
    """With two supervisors on one store."""
    store = MemoryStore()
    policy = Policy(name="org", budgets=[Budget(name="calls", max_tool_calls=5, action="deny")])
    results: list[RunResult] = []
    async with Supervisor(store) as one, Supervisor(store) as other:

        async def run(supervisor: Supervisor) -> None:
            handle = await supervisor.start(FakeAdapter([Ask(name="a")] * 3), "go", policies=[policy])
            results.append(await handle.wait())

        async with anyio.create_task_group() as tasks:
            for n in range(6):
                tasks.start_soon(run, (one, other)[n % 2])

    assert sum(map(calls, results)) == 5


async def test_a_retry_of_a_denied_call_needs_its_own_reservation() -> None:
    """With any id."""
    store = MemoryStore()
    policy = Policy(name="org", budgets=[Budget(name="calls", max_tool_calls=1, action="deny")])
    result = await ran(store, [Ask(name="a", id="1"), *[Ask(name="a", id="2")] * 5, Ask(name="a", id="1")], policy)

    assert calls(result) == 1


async def test_an_agent_cannot_answer_for_the_store() -> None:
    """Budget events that it reports are rejected."""
    store = MemoryStore()
    policy = Policy(name="org", budgets=[Budget(name="calls", max_tool_calls=1, action="deny")])
    lie: ev.Event = ev.BudgetReserved(budget="org/calls", granted=True, used=0, max=1)
    result = await ran(store, [Ask(name="a"), Ask(name="b"), lie, Ask(name="c")], policy)

    assert calls(result) == 1


async def test_a_clock_set_back_returns_no_budget() -> None:
    """Usage under a later date counts until that date has passed."""
    now = 1_761_868_800.0
    store = MemoryStore(wall_clock=lambda: now)
    await ran(store, [spent(10)], org(window="day"))
    now -= 86_400
    back = await ran(store, [Ask(name="a")], org(window="day"))
    now += 2 * 86_400
    next_day = await ran(store, [Ask(name="a")], org(window="day"))

    assert (back.status, next_day.status) == ("cancelled", "completed")


async def test_a_created_run_uses_the_budget_of_its_context() -> None:
    """Whoever executes it can't omit the context."""
    store = MemoryStore()
    policy = org(per="$.labels.team")
    await ran(store, [spent(10)], policy, context=RunContext(labels={"team": "a"}))
    run_id = await create_run(store, "go", context=RunContext(labels={"team": "a"}))
    with pytest.raises(PolicyViolationError):
        await execute_run(store, FakeAdapter([Ask(name="a")]), run_id, policies=[policy])


async def test_a_child_run_uses_the_rest_of_the_budget() -> None:
    """It has its parent's context, and can't use its parent's reservation."""
    store, policy = MemoryStore(), org(per="$.user", reserve=3)
    context = RunContext(user="u")
    inner: list[RunResult] = []

    async def child_run() -> None:
        inner.append(await ran(store, [spent(4), Ask(name="b")], policy, context=context))

    outer = await ran(store, [spent(2), Ask(name="task", meanwhile=child_run)], policy, context=context)

    assert outer.status == "completed"
    assert [(result.status, calls(result)) for result in inner] == [("cancelled", 0)]
    assert await used(store) == {'$.user="u"': 6}
