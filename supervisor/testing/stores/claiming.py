"""Who owns a run: claims, leases, and the fence before the record."""

from __future__ import annotations

from typing import Any

import anyio

from proctor.policies.stream.events import RunCompleted, RunStarted
from proctor.supervisor.ports.adapters import Store
from proctor.supervisor.ports.facts import Owner, RunInfo

from ..patience import PATIENCE_S
from .checks import StoreChecks, at_once, kind_of_refusal, message, run_of, status_of, stored, texts

LONG_S = 3600.0


async def owner(store: Store, name: str = "o", *, lease_s: float = LONG_S) -> int:
    """Register an owner; returns its epoch."""
    return (await store.register(Owner(owner_id=name, host="h"), lease_s=lease_s)).epoch


def started(run_id: str, session_id: str = "s") -> RunStarted:
    """A run's beginning."""
    return RunStarted(run_id=run_id, session_id=session_id)


async def begun(store: Store, epoch: int, run_id: str, session_id: str = "s") -> None:
    """A run that goes on, of that owner."""
    await store.create_run(RunInfo(run_id=run_id, session_id=session_id), epoch=epoch)
    await store.append([started(run_id, session_id)], epoch=epoch)


class ClaimingChecks(StoreChecks):
    """Who owns a run: claims, leases, and the fence before the record."""

    async def test_epochs_rise_and_an_owner_is_shown_with_its_run(self) -> None:
        """Whoever looks at a run sees who has it."""
        async with self.open_store() as store:
            first, second = await owner(store, "a"), await owner(store, "b")
            await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=second)
            run = await run_of(store, "r")

            assert second > first > 0
            assert run.owner is not None
            assert (run.owner.owner_id, run.owner.host, run.owner.epoch, run.owner.gone) == ("b", "h", second, False)
            assert [run] == await store.runs()

    async def test_a_created_run_is_claimed_by_one_of_many(self) -> None:
        """The others are refused, and the run is the first one's."""
        async with self.open_store() as store:
            await store.create_run(RunInfo(run_id="r", session_id="s"))
            refusals: list[str | None] = []

            async def claim() -> None:
                epoch = await owner(store)
                refusals.append(await kind_of_refusal(store.claim_run("r", epoch=epoch)))

            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    for _ in range(10):
                        tasks.start_soon(claim)

            assert sorted(refusals, key=str) == [None, *["claimed"] * 9]

    async def test_each_owner_that_claims_a_run_to_start_it_is_counted(self) -> None:
        """The same owner once, and not one that claims it to end it."""
        async with self.open_store() as store:
            counts = [(await store.create_run(RunInfo(run_id="r", session_id="s"))).attempts]
            for name in ("a", "b"):
                epoch = await owner(store, name)
                counts += [(await store.claim_run("r", epoch=epoch)).attempts for _ in range(2)]
                await store.release(epoch)
            last = await owner(store, "c")
            await store.claim_run("r", epoch=last)
            await store.append([started("r")], epoch=last)
            await store.release(last)
            ended = await store.claim_run("r", epoch=await owner(store, "d"), lost=True)
            run = await store.run("r")

            assert counts == [0, 1, 1, 2, 2]
            assert (ended.attempts, run and run.attempts) == (3, 3)
            assert [one.attempts for one in await store.runs()] == [3]

    async def test_what_cannot_be_claimed_is_told_apart(self) -> None:
        """A run there is not, one that is over, one without an owner to claim it."""
        async with self.open_store() as store:
            epoch = await owner(store)
            await store.create_run(RunInfo(run_id="over", session_id="s"), epoch=epoch)
            await store.append([started("over"), RunCompleted(run_id="over", session_id="s")], epoch=epoch)
            await store.create_run(RunInfo(run_id="r", session_id="s"))

            assert await kind_of_refusal(store.claim_run("nobody", epoch=epoch)) == "no_run"
            assert await kind_of_refusal(store.claim_run("over", epoch=epoch)) == "run_over"
            assert await kind_of_refusal(store.claim_run("r", epoch=epoch + 1)) == "fenced"

    async def test_a_session_has_one_claimed_run_at_a_time(self) -> None:
        """The next is claimed when that is over, also by whoever has the first."""
        async with self.open_store() as store:
            one, other = await owner(store, "one"), await owner(store, "other")
            await begun(store, one, "a")
            second = RunInfo(run_id="b", session_id="s")
            busy = [await kind_of_refusal(store.create_run(second, epoch=epoch)) for epoch in (one, other)]
            unmade = await store.run("b")
            await store.append([RunCompleted(run_id="a", session_id="s")], epoch=one)
            await store.create_run(second, epoch=other)

            assert busy == ["session_busy", "session_busy"]
            assert unmade is None

    async def test_what_another_than_the_owner_appends_is_refused(self) -> None:
        """Nothing of it is stored, nor of the unit it is part of; runs that nobody claimed are anybody's."""
        async with self.open_store() as store:
            mine, other = await owner(store, "mine"), await owner(store, "other")
            await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=mine)
            await store.append([message("s", "mine", run_id="r")], epoch=mine)
            foreign = [message("t", "free", run_id="t"), message("s", "foreign", run_id="r")]
            kinds = [await kind_of_refusal(store.append(foreign, epoch=epoch)) for epoch in (0, other)]
            await store.append([message("t", "free", run_id="t"), message("s", "no run")])

            assert kinds == ["fenced", "fenced"]
            assert texts(await stored(store, "s")) == ["mine", "no run"]
            assert texts(await stored(store, "t")) == ["free"]

    async def test_a_run_whose_owner_left_is_lost_and_can_be_taken_over(self) -> None:
        """Whoever had it is fenced from then on, and stays so."""
        async with self.open_store() as store:
            old, new = await owner(store, "old"), await owner(store, "new")
            await begun(store, old, "r")
            assert await kind_of_refusal(store.claim_run("r", epoch=new)) == "claimed"
            assert await store.lost_runs() == []
            await store.release(old)

            assert await status_of(store, "r") == "lost"
            assert [run.run_id for run in await store.lost_runs()] == ["r"]
            busy = store.create_run(RunInfo(run_id="next", session_id="s"), epoch=new)
            assert await kind_of_refusal(busy) == "session_busy"
            await store.append([message("s", "still mine", run_id="r")], epoch=old)
            assert await kind_of_refusal(store.claim_run("r", epoch=new)) == "started"
            taken = await store.claim_run("r", epoch=new, lost=True)
            assert (taken.status, taken.owner and taken.owner.epoch) == ("running", new)
            assert await kind_of_refusal(store.append([message("s", "late", run_id="r")], epoch=old)) == "fenced"
            await store.append([RunCompleted(run_id="r", session_id="s")], epoch=new)
            assert await kind_of_refusal(store.append([message("s", "late", run_id="r")], epoch=old)) == "fenced"
            assert texts(await stored(store, "s")) == ["still mine"]
            assert (await status_of(store, "r"), await store.lost_runs()) == ("completed", [])

    async def test_a_lost_run_is_taken_over_by_one_of_many(self) -> None:
        """The others find that it has an owner, also those that ask as the same one."""
        async with self.open_store() as store:
            old, same = await owner(store, "old"), await owner(store, "same")
            await begun(store, old, "r")
            await store.release(old)
            refusals: list[str | None] = []

            async def take(epoch: int) -> None:
                refusals.append(await kind_of_refusal(store.claim_run("r", epoch=epoch, lost=True)))

            await at_once(take, [same if n % 2 else await owner(store) for n in range(10)])

            assert sorted(refusals, key=str) == [None, *["claimed"] * 9]

    async def test_a_run_that_its_owner_never_started_does_not_hold_its_session(self) -> None:
        """It can be claimed again, and its first owner is fenced once the session has another run."""
        async with self.open_store() as store:
            old, new = await owner(store, "old"), await owner(store, "new")
            await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=old)
            await store.release(old)
            assert [(run.run_id, run.status) for run in await store.lost_runs()] == [("r", "created")]
            await store.create_run(RunInfo(run_id="next", session_id="s"), epoch=new)

            assert await kind_of_refusal(store.append([started("r")], epoch=old)) == "fenced"
            assert await store.lost_runs() == []
            await store.append([started("next"), RunCompleted(run_id="next", session_id="s")], epoch=new)
            assert (await store.claim_run("r", epoch=new)).status == "created"

    async def test_a_lease_that_is_not_renewed_runs_out(self) -> None:
        """One that is renewed does not; an owner that left cannot renew."""
        async with self.open_store() as store:
            brief, kept, left = [await owner(store, name, lease_s=LONG_S) for name in ("brief", "kept", "left")]
            for n, epoch in enumerate((brief, kept, left)):
                await begun(store, epoch, f"r{n}", f"s{n}")
            await store.release(left)
            await store.renew(brief, lease_s=0)
            await store.renew(kept, lease_s=LONG_S)
            await anyio.sleep(0.001)

            assert [await status_of(store, f"r{n}") for n in range(3)] == ["lost", "running", "lost"]
            assert await kind_of_refusal(store.renew(left, lease_s=LONG_S)) == "fenced"
            assert await kind_of_refusal(store.renew(left + 100, lease_s=LONG_S)) == "fenced"
            await store.renew(brief, lease_s=LONG_S)  # nobody has taken anything from it
            assert await status_of(store, "r0") == "running"

    async def test_claims_outlive_the_store_object(self) -> None:
        """Opened again, or twice, it knows whose runs are whose."""
        if not self.durable:
            return
        async with self.open_store() as store:
            mine = await owner(store)
            await begun(store, mine, "r")
        async with self.open_store() as one, self.open_store() as two:
            other = await owner(two, "other")
            attempts: list[Any] = [
                two.claim_run("r", epoch=other),
                two.append([message("s", "foreign", run_id="r")], epoch=other),
                two.create_run(RunInfo(run_id="next", session_id="s"), epoch=other),
            ]

            assert other > mine
            assert [await kind_of_refusal(attempt) for attempt in attempts] == ["claimed", "fenced", "session_busy"]
            await one.append([message("s", "mine", run_id="r")], epoch=mine)
            await one.release(mine)
            await two.claim_run("r", epoch=other, lost=True)
            assert await kind_of_refusal(one.append([message("s", "late", run_id="r")], epoch=mine)) == "fenced"
            assert texts(await stored(two, "s")) == ["mine"]
