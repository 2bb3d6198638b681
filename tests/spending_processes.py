"""Processes whose runs spend one shared budget.

    spending_processes.py STORE spend PROCESSES RUNS   forks this many processes; each keeps this many runs active
                                                     until no run can start any more
    spending_processes.py STORE hold USD               starts a run that reserves this much, and waits until killed

STORE is a path, or the URL of a database. Lines written: `ended RUNS`, `holds`.
"""

import os
import random
import sys
from typing import Any

import anyio
import trio  # noqa: F401 loaded once, before the first fork

from proctor.adapters.stores import PostgresStore, SQLiteStore
from proctor.adapters.stores.store_names import is_url
from proctor.policies import Budget, Policy, PolicyViolationError
from proctor.policies.events import BudgetReserved, TokenUsageUpdated
from proctor.supervisor import Supervisor
from proctor.supervisor.control import ownership
from proctor.supervisor.launch import launch
from proctor.supervisor.run import actor, journal, recovery
from proctor.supervisor.testing import Ask, FakeAdapter, Pause

MOST_USD = 12.0
DEAREST_USD = 0.5
"""The cost of the most expensive response."""


def shared(**more: Any) -> list[Policy]:
    return [Policy(name="org", budgets=[Budget(name="all", max_cost_usd=MOST_USD, window="week", **more)])]


def opened(where: str) -> Any:
    return PostgresStore(where, patience_s=600) if is_url(where) else SQLiteStore(where, busy_timeout_s=600)


def agent(rng: random.Random) -> FakeAdapter:
    """Some model responses, each with a call."""
    steps: list[Any] = []
    for _ in range(rng.randint(1, 4)):
        steps += [TokenUsageUpdated(cost_usd=rng.randint(5, 50) / 100), Ask(name="read")]
    return FakeAdapter(steps)


async def spend(where: str, runs: int, seed: int) -> None:
    rng, ended = random.Random(seed), 0

    async def one_after_another() -> None:
        nonlocal ended
        while True:
            handle = await supervisor.start(agent(rng), "go", policies=shared())
            try:
                await handle.wait()
            except PolicyViolationError as refused:
                if not refused.partial.usage.cost_usd:
                    return  # it could not start
            ended += 1

    async with opened(where) as store, Supervisor(store) as supervisor, anyio.create_task_group() as tasks:
        for _ in range(runs):
            tasks.start_soon(one_after_another)
    os.write(1, f"ended {ended}\n".encode())


async def hold(where: str, usd: float) -> None:
    async with opened(where) as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=shared(reserve=usd))
        async with supervisor.subscribe(run_id=handle.run_id) as events:
            async for event in events:
                if isinstance(event, BudgetReserved):
                    os.write(1, b"holds\n")
        await handle.wait()


def be_patient() -> None:
    """Many processes on few cores answer each other late."""
    for module in (actor, launch, journal, recovery):
        module.ANSWER_S = 600.0  # type: ignore[attr-defined]
    ownership.LEASE_S = 3600.0


def main() -> None:
    be_patient()
    where, what, *more = sys.argv[1:]
    if what == "hold":
        anyio.run(hold, where, float(more[0]))
        return
    children = []
    for n in range(int(more[0])):
        child = os.fork()
        if not child:
            anyio.run(spend, where, int(more[1]), n, backend=("asyncio", "trio")[n % 2])
            os._exit(0)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main()
