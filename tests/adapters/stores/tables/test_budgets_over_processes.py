"""Many processes spend one shared budget, and some of them are killed."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from owning_processes import process
from postgres_server import either_store
from spending_processes import DEAREST_USD, MOST_USD, opened, shared

from proctor.policies import PolicyViolationError
from proctor.supervisor import all_runs, run_once
from proctor.supervisor.ports.budget_ledger import BudgetInfo
from proctor.supervisor.testing.fakes import FakeAdapter

PROCESS = Path(__file__).parents[3] / "spending_processes.py"
PROCESSES, RUNS = 8, 1
where = either_store


async def budget_and_usage(where: str) -> tuple[BudgetInfo, float]:
    """The budget, and the total usage in the event log."""
    async with opened(where) as store:
        (budget,) = await store.budgets()
        return budget, sum([run.usage.cost_usd async for run in all_runs(store)])


def test_processes_exceed_a_budget_by_less_than_a_response_each(where: str) -> None:
    """The counted amount is the usage, and all reservations are returned."""
    command = [sys.executable, str(PROCESS), where, "spend", str(PROCESSES), str(RUNS)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout.split("\n")
    budget, recorded = anyio.run(budget_and_usage, where)

    assert len([line for line in lines if line.startswith("ended")]) == PROCESSES
    assert MOST_USD - 0.01 <= budget.used <= MOST_USD + PROCESSES * RUNS * DEAREST_USD
    assert budget.used == pytest.approx(recorded)
    assert (budget.reserved, budget.runs) == (0, 0)


async def started(where: str) -> float:
    """Start a run that reserves most of the budget; the remaining amount."""
    async with opened(where) as store:
        await run_once(FakeAdapter([]), "go", policies=shared(reserve=MOST_USD - 2), store=store)
        (budget,) = await store.budgets()
        left: float = budget.left
        return left


def test_reservations_of_killed_processes_are_returned(where: str) -> None:
    """At once, as the processes are known to be gone."""
    with ExitStack() as stack:
        holders = [stack.enter_context(process(where, "hold", "3", program=PROCESS)) for _ in range(3)]
        for each in holders:
            each.until("holds")
        with pytest.raises(PolicyViolationError, match=r"\$9\.00 reserved"):
            anyio.run(started, where)

    assert anyio.run(started, where) == MOST_USD
