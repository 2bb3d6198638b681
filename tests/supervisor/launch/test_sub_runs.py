"""Child runs, which an agent starts: they use the shared budgets of their parent run."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from proctor.adapters import FunctionAdapter, LoopGate, supervise
from proctor.adapters.stores import SQLiteStore
from proctor.policies import Policy, PolicyViolationError, RunContext, parse_policies
from proctor.policies.events import BudgetReserved
from proctor.supervisor import MemoryStore, Store, Supervisor, create_run, execute_run, run_once, run_once_sync
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.machine.interface import RunResult
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover

pytestmark = pytest.mark.anyio
ORG = parse_policies("""
name: org
budgets:
  - {name: team, max_tool_calls: 6, per: $.labels.team, action: deny}
""")
FREE = parse_policies("name: free")
WEB = RunContext(tenant="acme", user="ana", labels={"team": "web"})


def agent(*steps: Callable[[LoopGate], Awaitable[Any]], calls: int = 1) -> FunctionAdapter:
    """An agent that makes a number of calls, then its steps."""

    async def loop(gate: LoopGate, prompt: str) -> None:
        search = gate.tool(name="search", refused="tell")(lambda: "found")
        for _ in range(calls):
            await search()
        for step in steps:
            await step(gate)

    return FunctionAdapter(loop)


def starting(run: Callable[[], Awaitable[RunResult]], found: list[RunResult]) -> Callable[[LoopGate], Awaitable[Any]]:
    """A step that runs another agent in a tool."""

    async def step(gate: LoopGate) -> None:
        async def delegate() -> str:
            found.append(await run())
            return "done"

        await gate.tool(delegate)()

    return step


async def used(store: Store) -> dict[str, float]:
    return {f"{line.budget} {line.key}".strip(): line.used for line in await store.budgets()}


async def test_a_child_run_without_its_parents_policy_store_or_context_uses_its_budgets() -> None:
    """On three levels, the calls of all runs together stay within the budget, and events name the account."""
    store, found = MemoryStore(), list[RunResult]()
    third = agent(calls=9)
    second = agent(starting(partial(run_once, third, "go", policies=FREE), found), calls=2)
    first = agent(starting(partial(run_once, second, "go", policies=FREE), found), calls=1)

    top = await run_once(first, "go", policies=ORG, store=store, context=WEB)

    below, middle = found
    assert [len(one.calls) for one in (top, middle, below)] == [2, 3, 1]
    assert await used(store) == {'org/team $.labels.team="web"': 6}
    assert [violation.policy for violation in below.policy.violations] == ["org"] * 8
    runs = {run.run_id: run for run in await store.runs()}
    assert [runs[one.run_id].spec["parent"]["run_id"] for one in (middle, below)] == [top.run_id, middle.run_id]
    assert {(run.tenant, run.labels["team"]) for run in runs.values()} == {("acme", "web")}
    answers = [event for event in below.events if isinstance(event, BudgetReserved)]
    assert {(event.budget, event.key) for event in answers} == {("org/team", '$.labels.team="web"')}
    assert [event.granted for event in answers][-1] is False


async def in_a_block(adapter: FunctionAdapter, prompt: str, **more: Any) -> RunResult:
    """Three calls, as `agent(calls=3)` makes them."""
    async with supervise(prompt=prompt, **more) as gate:
        for _ in range(3):
            await gate.tool(name="search")(lambda: "found")()
    return gate.result


@pytest.mark.parametrize("run", [run_once, in_a_block])
async def test_a_child_run_with_another_team_uses_both_budgets(run: Callable[..., Awaitable[RunResult]]) -> None:
    """It has its own context, and also uses its parent's account."""
    store, found = MemoryStore(), list[RunResult]()
    sub = partial(run, agent(calls=3), "go", policies=ORG, context=RunContext(labels={"team": "ops"}))

    await run_once(agent(starting(sub, found)), "go", policies=ORG, store=store, context=WEB)

    assert await used(store) == {'org/team $.labels.team="ops"': 3, 'org/team $.labels.team="web"': 5}


async def test_a_child_runs_own_amount_for_the_same_budget_applies_if_it_is_stricter() -> None:
    """A larger amount weakens nothing. Each account is charged once, under the strictest amount."""
    store, found = MemoryStore(), list[RunResult]()
    tight, lax = (
        parse_policies(f"""
name: org
budgets: [{{name: team, max_tool_calls: {most}, per: $.labels.team, action: {action}}}]
""")
        for most, action in ((3, "deny"), (100, "warn"))
    )
    subs = [starting(partial(run_once, agent(calls=9), "go", policies=own), found) for own in (tight, lax)]

    await run_once(agent(*subs, calls=0), "go", policies=ORG, store=store, context=WEB)

    assert [len(one.calls) for one in found] == [2, 2]  # the tool that starts a child is itself a call of the parent
    assert await used(store) == {'org/team $.labels.team="web"': 6}


async def test_policies_of_one_name_with_a_budget_of_one_name_each_apply_to_a_child_run() -> None:
    """Under one key the strictest amount applies; under another, it is another account."""
    same = parse_policies("""
policies:
- {name: org, budgets: [{name: team, max_tool_calls: 5, when: [{path: $.user, equals: ana}], action: deny}]}
- {name: org, budgets: [{name: team, max_tool_calls: 3, when: [{path: $.tenant, equals: acme}], action: deny}]}
- {name: org, budgets: [{name: team, max_tool_calls: 9, per: $.labels.team, action: deny}]}
""")
    store, found = MemoryStore(), list[RunResult]()
    sub = starting(partial(run_once, agent(calls=9), "go", policies=FREE), found)

    await run_once(agent(sub, calls=0), "go", policies=same, store=store, context=WEB)

    assert [len(one.calls) for one in found] == [2]
    assert await used(store) == {"org/team": 3, 'org/team $.labels.team="web"': 3}


async def test_a_session_budget_applies_to_the_sessions_that_it_starts() -> None:
    """The account is that of the parent's session."""
    own = parse_policies("{name: p, budgets: [{name: s, max_tool_calls: 4, window: session, action: deny}]}")
    store, found = MemoryStore(), list[RunResult]()
    subs = [starting(partial(run_once, agent(calls=2), "go", policies=FREE), found) for _ in range(2)]

    await run_once(agent(*subs, calls=0), "go", policies=own, store=store, session_id="s1")

    assert [len(one.calls) for one in found] == [2, 0]
    assert await used(store) == {'p/s $.session_id="s1"': 4}


async def test_a_child_runs_cost_uses_its_parents_prices() -> None:
    """Even for a model that only the parent's policy has a price for."""
    priced = parse_policies("""
name: org
prices: {own: {input_usd_per_mtok: 1000000, output_usd_per_mtok: 0}}
budgets: [{name: money, max_cost_usd: 10}]
""")

    async def spend(gate: LoopGate) -> None:
        for _ in range(20):
            await gate.usage(input_tokens=1, model="own")

    store, found = MemoryStore(), list[RunResult]()
    sub = partial(run_once, agent(spend, calls=0), "go", policies=FREE)
    with pytest.raises(PolicyViolationError, match=r"\$12\.00 used"):
        await run_once(agent(starting(sub, found), calls=0), "go", policies=priced, store=store)

    assert 10 < (await used(store))["org/money"] < 20  # of 20, if the calls were not counted


async def test_supervised_runs_and_runs_executed_later_are_child_runs_too() -> None:
    """Whoever executes them: the stored run has what it inherits."""
    store, found, created = MemoryStore(), list[RunResult](), list[str]()

    async def supervised() -> RunResult:
        async with Supervisor(store) as supervisor:
            return await (await supervisor.start(agent(calls=2), "go", policies=FREE)).wait()

    async def create(gate: LoopGate) -> None:
        created.append(await create_run(store, "later"))

    await run_once(agent(starting(supervised, found), create), "go", policies=ORG, store=store, context=WEB)
    later = await execute_run(store, agent(calls=9), created[0], policies=FREE)

    assert (len(found[0].calls), len(later.calls)) == (2, 2)
    assert await used(store) == {'org/team $.labels.team="web"': 6}


async def test_a_child_run_in_another_store_is_rejected(tmp_path: Path) -> None:
    """Its usage could not be charged to its parent's budgets. The same file opened again is the same store."""
    found: list[RunResult] = []
    async with SQLiteStore(tmp_path / "runs.db") as store, SQLiteStore(tmp_path / "runs.db") as again:
        same = starting(partial(run_once, agent(calls=9), "go", policies=FREE, store=again), found)
        await run_once(agent(same, calls=0), "go", policies=ORG, store=store, context=WEB)
        other = starting(partial(run_once, agent(), "go", policies=FREE, store=MemoryStore()), found)
        with pytest.raises(ProviderError, match="has budgets in another store; give this one its store"):
            await run_once(agent(other), "go", policies=ORG, store=store, context=RunContext(labels={"team": "x"}))

        assert [len(one.calls) for one in found] == [5]
        assert len(await store.runs()) == 3


async def test_a_child_run_in_another_thread_needs_its_own_store_connection(tmp_path: Path) -> None:
    """Its event loop can't use its parent's."""
    path, found = tmp_path / "runs.db", list[RunResult]()

    def sub(**more: Any) -> RunResult:
        return run_once_sync(agent(calls=9), "go", policies=FREE, **more)

    def stored() -> RunResult:
        async def main() -> RunResult:
            async with SQLiteStore(path) as again:
                return await run_once(agent(calls=9), "go", policies=FREE, store=again)

        return anyio.run(main)

    async with SQLiteStore(path) as store:
        threaded = starting(partial(anyio.to_thread.run_sync, stored), found)
        await run_once(agent(threaded, calls=0), "go", policies=ORG, store=store, context=WEB)
        unstored = starting(partial(anyio.to_thread.run_sync, sub), found)
        with pytest.raises(ProviderError, match="has budgets; give this one its store"):
            await run_once(agent(unstored), "go", policies=ORG, store=store, context=RunContext(labels={"team": "x"}))

    assert [len(one.calls) for one in found] == [5]


async def test_a_run_without_budgets_passes_nothing_to_the_runs_it_starts() -> None:
    """They are independent runs in their own stores."""
    store, found = MemoryStore(), list[RunResult]()

    await run_once(
        agent(starting(partial(run_once, agent(), "go", policies=FREE), found)), "go", policies=FREE, store=store
    )

    assert len(found) == 1
    assert len(await store.runs()) == 1


async def test_runs_beside_an_agent_are_not_its_child_runs() -> None:
    """Runs of one supervisor, and runs started one after another."""
    store, found = MemoryStore(), list[RunResult]()
    async with Supervisor(store) as supervisor:
        first = await supervisor.start(agent(), "go", policies=ORG, context=WEB)
        second = await supervisor.start(agent(starting(supervised_by(supervisor), found)), "go", policies=FREE)
        await first.wait()
        await second.wait()

    assert await used(store) == {'org/team $.labels.team="web"': 1}
    assert [run.spec.get("parent") for run in await store.runs()] == [None] * 3


def supervised_by(supervisor: Supervisor) -> Callable[[], Awaitable[RunResult]]:
    async def run() -> RunResult:
        return await (await supervisor.start(agent(), "go", policies=FREE)).wait()

    return run


async def test_sibling_runs_share_the_rest_of_a_budget() -> None:
    """Each of many concurrent runs would use all of it."""
    store, found = MemoryStore(), list[RunResult]()
    policies: list[Policy] = FREE

    async def many() -> RunResult:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(one)
        return found[0]

    async def one() -> None:
        found.append(await run_once(agent(calls=6), "go", policies=policies))

    await run_once(agent(starting(many, []), calls=0), "go", policies=ORG, store=store, context=WEB)

    assert sum(len(one.calls) for one in found) == 5
    assert await used(store) == {'org/team $.labels.team="web"': 6}


async def test_a_child_run_takes_a_slot_of_max_running() -> None:
    """If its parent has the only slot, it does not start."""
    places = parse_policies("{name: org, budgets: [{name: places, max_running: 1}]}")
    store, refused = MemoryStore(), list[str]()

    async def step(gate: LoopGate) -> None:
        with pytest.raises(PolicyViolationError) as raised:
            await run_once(agent(), "go", policies=FREE)
        refused.append(str(raised.value))

    await run_once(agent(step), "go", policies=places, store=store)

    assert len(refused) == 1
    assert "run at once" in refused[0]


@pytest.mark.parametrize("granted", [True, None], ids=["by the parent's approver", "by nobody"])
async def test_a_child_run_without_a_store_uses_its_parents_approver(granted: bool | None) -> None:
    """Nobody else would see its request. If the parent has no approver, the call is denied at once."""
    asks = parse_policies("{name: own, tool_rules: [{deny: [deploy], action: request_approval}]}")
    sub, approver = FakeAdapter([Ask(name="deploy")]), None if granted is None else FakeApprover(granted)
    step = starting(partial(run_once, sub, "go", policies=asks), [])
    await run_once(agent(step), "go", policies=ORG, context=WEB, approver=approver)

    assert [call.name for call in sub.ran] == ["deploy"] * bool(granted)
