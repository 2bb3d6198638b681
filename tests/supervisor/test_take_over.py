"""What goes on with a lost run is created once, and an order to end the one ends the other."""

from __future__ import annotations

import pytest

from proctor.supervisor import Cancel, MemoryStore, RunInfo, StoreError
from proctor.supervisor.ports.processes import enter, leave
from proctor.supervisor.store.invariants import AGAIN, create_next, latest, next_of

pytestmark = pytest.mark.anyio
RUN = RunInfo(run_id="r", session_id="s", spec={"prompt": "Go", AGAIN: {"times": 2, "prompt": "Go on"}})


async def created(store: MemoryStore) -> list[str]:
    return [run.run_id for run in await store.runs()]


async def cancelled(store: MemoryStore) -> list[str]:
    return [order.value for order in await store.commands() if isinstance(order, Cancel)]


async def test_each_stands_for_the_one_before() -> None:
    """In its session, with a number, and one time less."""
    store = MemoryStore()
    run = await store.create_run(RUN)
    for _ in range(3):
        await create_next(store, run)
        run = await latest(store, RUN)

    assert await created(store) == ["r.3", "r.2", "r"]
    assert (run.run_id, run.session_id, next_of(run)) == ("r.3", "s", None)


async def test_it_gets_the_first_prompt_until_the_agent_had_begun() -> None:
    """Before that there is nothing to go on with."""
    store = MemoryStore()
    begun = RunInfo(run_id="b", session_id="s", spec=RUN.spec, started_seq=2)

    assert [one and one.spec["prompt"] for one in (next_of(RUN), next_of(begun))] == ["Go", "Go on"]
    assert await latest(store, begun) is begun


async def test_two_who_end_the_same_run_create_one() -> None:
    """Or one that died in between, and another that does it again."""
    store = MemoryStore()
    run = await store.create_run(RUN)
    await create_next(store, run)
    await create_next(store, run)

    assert await created(store) == ["r.2", "r"]


async def test_a_run_of_that_name_that_is_another_s_is_left_alone() -> None:
    """It is no run that goes on with this one, and the lost run is ended all the same."""
    store = MemoryStore()
    run = await store.create_run(RUN)
    await store.create_run(RunInfo(run_id="r.2", session_id="other"))
    await create_next(store, run)

    assert await latest(store, run) == run
    assert await created(store) == ["r.2", "r"]


@pytest.mark.parametrize("scope", ["run", "session", "all"])
async def test_an_order_that_came_before_ends_both(scope: str) -> None:
    """A run that somebody ended is not continued, though no owner was there to get the order."""
    store = MemoryStore()
    run = await store.create_run(RUN)
    await store.send_command(_order(scope))
    await create_next(store, run)

    assert await created(store) == ["r"]


@pytest.mark.parametrize("scope", ["run", "session", "all"])
async def test_an_order_that_comes_in_between_is_passed_on(scope: str) -> None:
    """It was given before the new run was there, so it is no order to that one."""

    class Ordered(MemoryStore):
        async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
            if run.run_id == "r.2":
                await self.send_command(_order(scope))
            return await super().create_run(run, epoch=epoch)

    store = Ordered()
    await create_next(store, await store.create_run(RUN))

    assert (await cancelled(store))[1:] == ["r.2"]


async def test_a_store_that_fails_is_reported() -> None:
    """The lost run is not ended then: whoever comes next does both."""

    class Failing(MemoryStore):
        async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
            raise StoreError("no room on the disk")

    with pytest.raises(StoreError, match="no room"):
        await create_next(Failing(), RUN)


async def test_a_run_without_a_word_of_it_stays_lost() -> None:
    """As ever: what a supervisor starts is not repeated."""
    store = MemoryStore()
    owner = await store.register(enter(), lease_s=60)
    run = await store.create_run(RunInfo(run_id="r", session_id="s", spec={"prompt": "Go"}), epoch=owner.epoch)
    leave(owner)
    await create_next(store, run)

    assert await created(store) == ["r"]


def _order(scope: str) -> Cancel:
    value = {"run": "r", "session": "s", "all": ""}[scope]
    return Cancel(scope=scope, value=value, by="ana")  # type: ignore[arg-type]  # one of the three
