"""Runs that end the process of every worker that tries them: they are tried a few times, and harm no others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import anyio
import pytest
from cluster_processes import PROGRAM, spec, working

from proctor.adapters.fleet import Fleet, FleetHandle, RunSpec
from proctor.adapters.fleet.worker import ATTEMPTS
from proctor.adapters.stores import open_store
from proctor.policies import parse_policies
from proctor.policies.events import TERMINAL
from proctor.supervisor import Store
from proctor.supervisor.errors import OwnerLostError
from proctor.supervisor.ports.stored_types import NOT_OVER
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Of the tests: that of the workers is asyncio."""
    return "asyncio"


def poison(how: str) -> RunSpec:
    """A run that ends its worker."""
    options = {"loop": f"loops:{how}"}
    return RunSpec.of("function", "Go", policies=parse_policies("name: p"), options=options, take_overs=1)


async def test_a_run_that_ends_its_worker_is_tried_a_few_times_and_harms_no_other(place: str) -> None:
    """Whether an import crashes, memory is out, or it exits once it has begun; those that wait beside it complete."""
    async with open_store(place) as store, Fleet(store) as fleet:
        bad = [await fleet.start(poison(how)) for how in ("segfault", "out_of_memory")]
        good = [await fleet.start(spec()) for _ in range(6)]
        late = await fleet.start(poison("late"))

        deaths = await worked_off(place, store, [*bad, *good, late])

        assert deaths <= len(bad) * ATTEMPTS + 2
        for handle in bad:
            run = await handle.info()
            assert (run.run_id, run.status, run.attempts) == (handle.run_id, "failed", ATTEMPTS + 1)
            with pytest.raises(OwnerLostError, match=f"it was tried {ATTEMPTS} times, and each time its worker"):
                await handle.wait()
        assert {(await handle.wait()).status for handle in good} == {"completed"}
        assert (await late.info()).run_id == f"{late.run_id}.2"
        with pytest.raises(OwnerLostError, match="the run was lost"):
            await late.wait()
        for handle in (*bad, *good, late):
            ends = [one.run_id async for one in store.read(handle.session_id) if isinstance(one, TERMINAL)]
            assert set(Counter(ends).values()) == {1}


async def worked_off(place: str, store: Store, handles: Sequence[FleetHandle]) -> int:
    """Have one worker after the other, as Ray or systemd starts them again, until all is over; how many died."""
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent)}
    deaths = token = 0
    with anyio.fail_after(PATIENCE_S):
        while True:
            with working(place, env=env) as process:
                while process.poll() is None:
                    if not [one for one in handles if (await one.info()).status in NOT_OVER]:
                        return deaths
                    token = await store.wait(token, 0.2)
            deaths += 1
