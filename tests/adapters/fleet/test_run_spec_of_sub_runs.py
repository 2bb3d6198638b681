"""Runs that the agents of workers put down for other workers: they draw on the budgets of the run above."""

from __future__ import annotations

import os

import anyio
import pytest
from cluster_processes import PROGRAM, working

from proctor.adapters.fleet import Fleet, RunSpec
from proctor.adapters.stores import open_store
from proctor.policies import RunContext, parse_policies
from proctor.supervisor import all_runs
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio
BUDGET = parse_policies("{name: org, budgets: [{name: team, max_tool_calls: 5, per: $.labels.team, action: deny}]}")


@pytest.fixture
def anyio_backend() -> str:
    """Of the tests: that of the workers is asyncio."""
    return "asyncio"


async def test_three_levels_of_runs_over_two_workers_share_what_the_first_may_use(place: str) -> None:
    """Each level names no budget, no context and no store of its own but by the URL; five calls are all there are."""
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent)}
    context = RunContext(tenant="acme", labels={"team": "web"})
    spec = RunSpec.of(
        "function", f"3 {place}", policies=BUDGET, options={"loop": "loops:delegating"}, context=context
    )
    async with open_store(place) as store, Fleet(store) as fleet:
        with working(place, env=env), working(place, env=env), anyio.fail_after(PATIENCE_S):
            result = await (await fleet.start(spec, run_id="level-4")).wait()
        runs = {run.run_id: run async for run in all_runs(store)}
        [budget] = await store.budgets()

    assert result.status == "completed"
    assert {run_id: (run.status, run.calls) for run_id, run in runs.items()} == {
        "level-4": ("completed", 2),
        "level-3": ("completed", 2),
        "level-2": ("completed", 1),
    }
    assert [runs[f"level-{n}"].spec["parent"]["run_id"] for n in (3, 2)] == ["level-4", "level-3"]
    assert {run.tenant for run in runs.values()} == {"acme"}
    assert (budget.budget, budget.key, budget.used) == ("org/team", '$.labels.team="web"', 5)
