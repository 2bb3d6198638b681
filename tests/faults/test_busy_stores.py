"""A store that changes constantly: code that waits for something else in it polls at a limited rate."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from cluster_processes import spec

from proctor.adapters.fleet import Fleet
from proctor.adapters.fleet.worker import Starts
from proctor.adapters.operations.service import OperatorService
from proctor.policies.events import RunStarted, ToolApprovalRequested
from proctor.supervisor import KillSwitch, MemoryStore, Store, answer, cancel_for_approval
from proctor.supervisor.launch.launch import claim_created
from proctor.supervisor.ports.stored_types import ENDING, ApprovalAnswer, Owner, RunInfo
from proctor.supervisor.testing.fakes import FakeAdapter

IN_S = 10.0


class Busy(MemoryStore):
    """Something is stored each millisecond."""

    waits = 0

    async def wait(self, token: int, timeout_s: float) -> int:
        self.waits += 1
        await anyio.sleep(0.001)
        return token + 1


async def owned(store: Store, owner_id: str = "there", *, begun: bool = True) -> int:
    """Run `r` has an owner that does nothing; returns its epoch."""
    epoch = (await store.register(Owner(owner_id=owner_id), lease_s=10 * IN_S)).epoch
    await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=epoch)
    if begun:
        await store.append([RunStarted(run_id="r", session_id="s")], epoch=epoch)
    return epoch


async def _answers(store: Store) -> None:
    request = ToolApprovalRequested(
        run_id="r", session_id="s", approval_id="a", tool_call_id="c", tool_name="bash", input_digest="d"
    )
    await store.append([request], epoch=await owned(store))
    await answer(store, "a", ApprovalAnswer(granted=True, by="ana"), wait_s=10 * IN_S)


async def _kills(store: Store) -> None:
    await owned(store)
    await KillSwitch(store).kill(by="ana", run_id="r", wait_s=10 * IN_S)


async def _starts_where_another_is_being_ended(store: Store) -> None:
    await owned(store, ENDING, begun=False)
    mine = await store.register(Owner(owner_id="mine"), lease_s=10 * IN_S)
    run = await store.create_run(RunInfo(run_id="next", session_id="s"))
    await claim_created(store, run, epoch=mine.epoch)


async def _queues_where_too_many_wait(store: Store) -> None:
    async with Fleet(store, max_waiting=1) as fleet:
        for _ in range(2):
            await fleet.start(spec())


async def _follows_a_lost_run(store: Store) -> None:
    await store.release(await owned(store))
    async with Fleet(store) as fleet:
        await (await fleet.handle("r")).wait()


async def _cancels_for_an_approval(store: Store) -> None:
    await owned(store)
    wanted = {"tool_name": "bash", "tool_call_id": "c"}
    await cancel_for_approval(store, FakeAdapter(), "r", wanted, timeout_s=10 * IN_S)


async def _starts_what_was_tried_before(store: Store) -> None:
    await owned(store, begun=False)
    handle: Any = SimpleNamespace(run_id="r", done=False)
    await Starts(store).begun(handle)


async def _shows_the_page(store: Store) -> None:
    api_runs = pytest.importorskip("proctor.adapters.web.api_runs")
    async with aclosing(api_runs._ticks(SimpleNamespace(service=OperatorService(store)))) as ticks:
        async for _ in ticks:
            pass


@pytest.mark.trio
@pytest.mark.parametrize("waiting", [
    _answers,
    _kills,
    _starts_where_another_is_being_ended,
    _queues_where_too_many_wait,
    _follows_a_lost_run,
    _cancels_for_an_approval,
    _starts_what_was_tried_before,
    _shows_the_page,
])  # fmt: skip
async def test_waiting_code_polls_at_a_limited_rate(
    waiting: Callable[[Store], Awaitable[None]], autojump_clock: object
) -> None:
    """At most twenty times a second, as if nothing else were stored."""
    store = Busy()
    with anyio.move_on_after(IN_S) as gave_up:
        await waiting(store)

    assert gave_up.cancelled_caught
    assert 10 < store.waits <= 20 * IN_S + 1
