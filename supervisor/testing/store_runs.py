"""Ownership of runs: claims, leases, and the fence before the record."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio

from proctor.policies import events as ev
from proctor.policies.events.run_context import Usage

from ..ports.store import Store
from ..ports.stored_types import Owner, RunFilter, RunInfo, RunStatus
from .fakes import PATIENCE_S
from .store_fixture import StoreChecks, at_once, kind_of_refusal, message, run_of, status_of, stored, texts

LONG_S = 3600.0
_LOST: frozenset[RunStatus] = frozenset(("lost",))


async def owner(store: Store, name: str = "o", *, lease_s: float = LONG_S) -> int:
    """Register an owner; returns its epoch."""
    return (await store.register(Owner(owner_id=name, host="h"), lease_s=lease_s)).epoch


def started(run_id: str, session_id: str = "s") -> ev.RunStarted:
    return ev.RunStarted(run_id=run_id, session_id=session_id)


async def begun(store: Store, epoch: int, run_id: str, session_id: str = "s") -> None:
    """A run that goes on, of that owner."""
    await store.create_run(RunInfo(run_id=run_id, session_id=session_id), epoch=epoch)
    await store.append([started(run_id, session_id)], epoch=epoch)


async def owner_of(store: Store, *run_ids: str, session_id: str | None = None) -> int:
    """An owner with runs that go on, each in a session of its own unless one is given; its epoch."""
    epoch = await owner(store)
    for run_id in run_ids:
        await begun(store, epoch, run_id, session_id or f"s-{run_id}")
    return epoch


class ClaimingChecks(StoreChecks):
    """Ownership of runs: claims, leases, and the fence before the record."""

    async def test_epochs_rise_and_an_owner_is_shown_with_its_run(self, store: Store) -> None:
        first, second = await owner(store, "a"), await owner(store, "b")
        await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=second)
        run = await run_of(store, "r")

        assert second > first > 0
        assert run.owner is not None
        assert (run.owner.owner_id, run.owner.host, run.owner.epoch, run.owner.gone) == ("b", "h", second, False)
        assert [run] == await store.runs()

    async def test_a_created_run_is_claimed_by_one_of_many(self, store: Store) -> None:
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

    async def test_each_owner_that_claims_a_run_to_start_it_is_counted(self, store: Store) -> None:
        """The same owner once, and not one that claims it to end it."""
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

    async def test_each_reason_not_to_claim_has_its_kind(self, store: Store) -> None:
        """A run there is not, one that is over, one without an owner to claim it, one that its owner runs already."""
        epoch = await owner(store)
        await store.create_run(RunInfo(run_id="over", session_id="s"), epoch=epoch)
        await store.append([started("over"), ev.RunCompleted(run_id="over", session_id="s")], epoch=epoch)
        await store.create_run(RunInfo(run_id="r", session_id="s"))

        assert await kind_of_refusal(store.claim_run("nobody", epoch=epoch)) == "no_run"
        assert await kind_of_refusal(store.claim_run("over", epoch=epoch)) == "run_over"
        assert await kind_of_refusal(store.claim_run("r", epoch=epoch + 1)) == "fenced"
        await begun(store, epoch, "mine", "other")
        assert await kind_of_refusal(store.claim_run("mine", epoch=epoch)) == "claimed"
        assert await kind_of_refusal(store.claim_run("mine", epoch=epoch, lost=True)) == "claimed"

    async def test_a_session_has_one_claimed_run_at_a_time(self, store: Store) -> None:
        """The next is claimed when that is over, also by whoever has the first, which need not have started."""
        one, other = await owner(store, "one"), await owner(store, "other")
        await store.create_run(RunInfo(run_id="a", session_id="s"), epoch=one)
        second = RunInfo(run_id="b", session_id="s")
        busy = [await kind_of_refusal(store.create_run(second, epoch=epoch)) for epoch in (one, other)]
        await store.append([started("a")], epoch=one)
        busy += [await kind_of_refusal(store.create_run(second, epoch=epoch)) for epoch in (one, other)]
        unmade = await store.run("b")
        await store.append([ev.RunCompleted(run_id="a", session_id="s")], epoch=one)
        await store.create_run(second, epoch=other)

        assert busy == ["session_busy"] * 4
        assert unmade is None

    async def test_what_another_than_the_owner_appends_is_refused(self, store: Store) -> None:
        """Nothing of it is stored, nor of the unit it is part of; runs that nobody claimed are anybody's."""
        mine, other = await owner(store, "mine"), await owner(store, "other")
        await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=mine)
        await store.append([message("s", "mine", run_id="r")], epoch=mine)
        foreign = [message("t", "free", run_id="t"), message("s", "foreign", run_id="r")]
        kinds = [await kind_of_refusal(store.append(foreign, epoch=epoch)) for epoch in (0, other)]
        await store.append([message("t", "free", run_id="t"), message("s", "no run")])

        assert kinds == ["fenced", "fenced"]
        assert texts(await stored(store, "s")) == ["mine", "no run"]
        assert texts(await stored(store, "t")) == ["free"]

    async def test_a_run_whose_owner_left_is_lost_and_can_be_taken_over(self, store: Store) -> None:
        """Whoever had it is fenced from then on, and stays so."""
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
        await store.append([ev.RunCompleted(run_id="r", session_id="s")], epoch=new)
        assert await kind_of_refusal(store.append([message("s", "late", run_id="r")], epoch=old)) == "fenced"
        assert texts(await stored(store, "s")) == ["still mine"]
        assert (await status_of(store, "r"), await store.lost_runs()) == ("completed", [])

    async def test_a_lost_run_is_taken_over_by_one_of_many(self, store: Store) -> None:
        """The others find that it has an owner, also those that ask as the same one."""
        old, same = await owner(store, "old"), await owner(store, "same")
        await begun(store, old, "r")
        await store.release(old)
        refusals: list[str | None] = []

        async def claim(epoch: int) -> None:
            refusals.append(await kind_of_refusal(store.claim_run("r", epoch=epoch, lost=True)))

        await at_once(claim, [same if n % 2 else await owner(store) for n in range(10)])

        assert sorted(refusals, key=str) == [None, *["claimed"] * 9]

    async def test_a_run_that_its_owner_never_started_does_not_hold_its_session(self, store: Store) -> None:
        """It can be claimed again, and its first owner is fenced once the session has another run."""
        old, new = await owner(store, "old"), await owner(store, "new")
        await store.create_run(RunInfo(run_id="r", session_id="s"), epoch=old)
        await store.release(old)
        assert [(run.run_id, run.status) for run in await store.lost_runs()] == [("r", "created")]
        assert (await _names(store, status=frozenset(("created",))), await _names(store, status=_LOST)) == ("r", "")
        await store.create_run(RunInfo(run_id="next", session_id="s"), epoch=new)

        assert await kind_of_refusal(store.append([started("r")], epoch=old)) == "fenced"
        assert await store.lost_runs() == []
        await store.append([started("next"), ev.RunCompleted(run_id="next", session_id="s")], epoch=new)
        assert (await store.claim_run("r", epoch=new)).status == "created"

    async def test_a_claim_that_is_undone_leaves_the_run_to_anybody(self, store: Store) -> None:
        """As it was before, its session free, its owner fenced; another's claim, and a run that began, stay."""
        mine, other = await owner(store, "mine"), await owner(store, "other")
        await store.create_run(RunInfo(run_id="r", session_id="s"))
        before = await store.run("r")
        await store.claim_run("r", epoch=mine)
        for run_id, epoch in (("r", other), ("nobody", mine), ("r", 0)):
            await store.release_run(run_id, epoch=epoch)
        assert await kind_of_refusal(store.claim_run("r", epoch=other)) == "claimed"
        for _ in range(2):
            await store.release_run("r", epoch=mine)

        assert await store.run("r") == before
        assert await kind_of_refusal(store.append([started("r")], epoch=mine)) == "fenced"
        await begun(store, other, "next")
        await store.append([ev.RunCompleted(run_id="next", session_id="s")], epoch=other)
        assert (await store.claim_run("r", epoch=other)).attempts == 1
        await store.append([started("r")], epoch=other)
        await store.release_run("r", epoch=other)
        assert await kind_of_refusal(store.claim_run("r", epoch=mine)) == "claimed"

    async def test_a_lease_that_is_not_renewed_runs_out(self, store: Store) -> None:
        """One that is renewed does not; an owner that left cannot renew, and none without a lease claims a run."""
        brief, kept, left = [await owner(store, name, lease_s=LONG_S) for name in ("brief", "kept", "left")]
        for n, epoch in enumerate((brief, kept, left)):
            await begun(store, epoch, f"r{n}", f"s{n}")
        await store.release(left)
        await store.renew(brief, lease_s=0)
        await store.renew(kept, lease_s=LONG_S)
        await anyio.sleep(0.001)

        assert [await status_of(store, f"r{n}") for n in range(3)] == ["lost", "running", "lost"]
        await store.create_run(RunInfo(run_id="free", session_id="free"))
        for epoch in (brief, left):
            assert await kind_of_refusal(store.claim_run("free", epoch=epoch)) == "fenced"
            assert (
                await kind_of_refusal(store.create_run(RunInfo(run_id="new", session_id="new"), epoch=epoch))
                == "fenced"
            )
        assert await kind_of_refusal(store.renew(left, lease_s=LONG_S)) == "fenced"
        assert await kind_of_refusal(store.renew(left + 100, lease_s=LONG_S)) == "fenced"
        await store.renew(brief, lease_s=LONG_S)  # nobody has taken anything from it
        assert await status_of(store, "r0") == "running"

    async def test_claims_outlive_the_store_object(self) -> None:
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


class FindingChecks(StoreChecks):
    """How what is stored is found again: events, runs and sessions."""

    async def test_what_is_not_there_reads_as_nothing(self, store: Store) -> None:
        assert await stored(store, "nobody") == []
        assert await store.last_seq("nobody") == 0
        assert await store.session("nobody") is None
        assert await store.run("nobody") is None
        assert await store.runs() == []
        assert await store.approvals(waiting=False) == []
        assert await store.approval("nobody") is None
        assert (await store.commands(), await store.last_command()) == ([], 0)
        assert await store.lost_runs() == []

    async def test_read_begins_after_a_seq_and_keeps_to_a_run(self, store: Store) -> None:
        """Both filters, alone and together; a long session is read whole."""
        for start in range(0, 1500, 300):
            await store.append([message("s", str(n), run_id=f"r{n % 2}") for n in range(start, start + 300)])

        assert list(range(1, 1501)) == [event.seq for event in await stored(store, "s")]
        assert [event.seq for event in await stored(store, "s", after=1498)] == [1499, 1500]
        assert [event.seq for event in await stored(store, "s", after=1497, run_id="r1")] == [1498, 1500]
        assert len(await stored(store, "s", run_id="r0")) == 750
        assert await stored(store, "s", after=1500) == []
        assert await stored(store, "s", run_id="other") == []

    async def test_reading_can_be_left_early(self, store: Store) -> None:
        await store.append([message("s", str(n)) for n in range(50)])
        # every store's read is an async generator in practice; one that is not has no aclose to call
        events = cast(Any, store.read("s"))
        async with aclosing(events):
            assert (await anext(events)).seq == 1
        await store.append([message("s", "more")])

        assert await store.last_seq("s") == 51

    async def test_a_run_is_created_once(self, store: Store) -> None:
        """Its id is taken from then on, also where only its events are stored."""
        created_at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        run = RunInfo(run_id="r", session_id="s", provider="p", created_at=created_at, spec={"prompt": "héllo"})
        await store.create_run(run)
        await store.append([ev.RunStarted(run_id="r2", session_id="s")])

        assert await store.run("r") == run
        for taken in ("r", "r2"):
            again = store.create_run(RunInfo(run_id=taken, session_id="t"))
            assert await kind_of_refusal(again) == "run_exists"
        assert await store.run("r") == run

    async def test_a_run_that_many_create_is_created_by_one(self, store: Store) -> None:
        kinds: list[str | None] = []

        async def create(task: int) -> None:
            run = RunInfo(run_id="r", session_id=f"s{task}")
            kinds.append(await kind_of_refusal(store.create_run(run)))

        await at_once(create, range(8))

        assert kinds.count(None) == 1
        assert kinds.count("run_exists") == 7

    async def test_the_status_of_a_run_follows_its_events(self, store: Store) -> None:
        """Created, running, and then what its first terminal event says, for good."""
        ends = {"completed": ev.RunCompleted, "failed": ev.RunFailed, "cancelled": ev.RunCancelled}
        for status, end in ends.items():
            await store.create_run(RunInfo(run_id=status, session_id="s"))
            seen = [await status_of(store, status)]
            await store.append([ev.RunStarted(run_id=status, session_id="s", provider="p")])
            seen.append(await status_of(store, status))
            await store.append([end(run_id=status, session_id="s")])
            seen.append(await status_of(store, status))
            late = store.append([message("s", "late", run_id=status)])
            assert await kind_of_refusal(late) == "run_over"
            seen.append(await status_of(store, status))

            assert ["created", "running", status, status] == seen

    async def test_runs_are_listed_newest_first(self, store: Store) -> None:
        for n in range(6):
            await store.create_run(RunInfo(run_id=f"r{n}", session_id=f"s{n % 2}"))

        assert [run.run_id for run in await store.runs(limit=3)] == ["r5", "r4", "r3"]
        assert [run.run_id for run in await store.runs(session_id="s0")] == ["r4", "r2", "r0"]
        assert [run.run_id for run in await store.runs(session_id="s0", limit=2)] == ["r4", "r2"]
        assert await store.runs(session_id="other") == []
        assert [run.run_id for run in await store.runs(limit=2, before="r3")] == ["r2", "r1"]
        assert [run.run_id for run in await store.runs(session_id="s0", before="r3")] == ["r2", "r0"]
        assert await store.runs(before="r0") == await store.runs(before="other") == []

    async def test_a_session_knows_its_provider_and_the_providers_own_id(self, store: Store) -> None:
        """The id is that of the latest event that names one."""
        await store.append([message("s", "a"), ev.SessionStarted(session_id="s", provider="p")])
        await store.append([ev.SessionStarted(session_id="s", provider_session_id="old")])
        await store.append([ev.SessionStarted(session_id="s", provider_session_id="new"), message("s", "b")])
        session = await store.session("s")

        assert session is not None
        assert (session.session_id, session.provider, session.provider_session_id, session.last_seq) == (
            "s",
            "p",
            "new",
            5,
        )


_BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


async def _line(store: Store, run_id: str) -> RunInfo:
    """The run, as `run` and as `runs` give it."""
    found = await run_of(store, run_id)
    assert [run for run in await store.runs() if run.run_id == run_id] == [found]
    return found


async def _names(store: Store, *, limit: int = 100, before: str | None = None, **where: Any) -> str:
    return " ".join(run.run_id for run in await store.runs(limit=limit, before=before, where=RunFilter(**where)))


class ListingChecks(StoreChecks):
    """Lists of runs, and their filters."""

    async def test_the_line_of_a_run_follows_its_events(self, store: Store) -> None:
        """When it began and ended and where, its calls that ran, its violations."""
        ids: Any = {"run_id": "r", "session_id": "s"}
        other = message("s", "before")
        await store.append([other, ev.RunStarted(at=_BEGAN, provider="p", **ids)])
        first = await _line(store, "r")
        for call_id in "ab":
            call = ev.ToolCallStarted(tool_call_id=call_id, tool_name="t", **ids)
            await store.append([call, ev.PolicyViolated(**ids)])
        await store.append([ev.ToolCallStarted(tool_call_id="d", tool_name="t", **ids)])
        await store.append([ev.RunCompleted(at=_BEGAN + timedelta(seconds=2.5), **ids)])
        last = await _line(store, "r")

        assert (first.started_at, first.started_seq, first.ended_at, first.ended_seq) == (_BEGAN, 2, None, 0)
        assert (first.duration_ms, first.calls, first.violations) == (None, 0, 0)
        assert (last.started_seq, last.ended_seq, last.duration_ms) == (2, 8, 2500)
        assert (last.calls, last.violations) == (3, 2)

    async def test_what_a_run_used_is_what_was_reported_until_its_end_states_it(self, store: Store) -> None:
        """Deltas add up, a cumulative figure stands for all before it; the end has the last word, for good."""
        ids: Any = {"run_id": "r", "session_id": "s"}
        figures: Any = {"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.5}
        await store.append([ev.RunStarted(**ids), ev.TokenUsageUpdated(input_tokens=3, cost_usd=0.25, **ids)])
        await store.append([ev.TokenUsageUpdated(input_tokens=4, cache_read_tokens=2, **ids)])
        added = (await _line(store, "r")).usage
        report = ev.TokenUsageUpdated(scope="cumulative", input_tokens=50, cost_usd=0.125, **ids)
        await store.append([report, ev.TokenUsageUpdated(output_tokens=7, **ids)])
        raised = (await _line(store, "r")).usage
        await store.append([ev.RunCancelled(usage={**figures, "reasoning_tokens": "x"}, **ids)])

        assert added == Usage(input_tokens=7, cache_read_tokens=2, cost_usd=0.25)
        assert raised == Usage(input_tokens=50, output_tokens=7, cache_read_tokens=2, cost_usd=0.25)
        assert (await _line(store, "r")).usage == Usage(cache_read_tokens=2, **figures)

    async def test_one_append_may_hold_a_whole_run_and_several_runs(self, store: Store) -> None:
        events = [
            event
            for n in range(3)
            for event in (
                ev.ToolCallStarted(tool_call_id=f"c{n}", tool_name="t", run_id=f"r{n % 2}", session_id="s"),
                ev.TokenUsageUpdated(input_tokens=n + 1, run_id=f"r{n % 2}", session_id="s"),
            )
        ]
        await store.append([*events, ev.RunFailed(run_id="r0", session_id="s")])
        found = {run.run_id: (run.calls, run.usage.input_tokens) for run in await store.runs()}

        assert found == {"r0": (2, 4), "r1": (1, 2)}

    async def test_a_repeated_event_is_counted_once(self, store: Store) -> None:
        call = ev.ToolCallStarted(run_id="r", session_id="s", event_id="e", tool_call_id="c", tool_name="t")
        for _ in range(3):
            await store.append([call, call])

        assert (await _line(store, "r")).calls == 1

    async def test_whose_a_run_is_stands_in_its_context(self, store: Store) -> None:
        """Where it was created with one, else where it started; whatever else is in that place is nobody's."""
        context = {"tenant": "ac\x00me", "labels": {"env": "prod", "n": 3}}
        await store.create_run(RunInfo(run_id="created", session_id="s", spec={"context": context}))
        late = {"context": {"tenant": "other", "labels": {"env": "late"}}}
        for run_id in ("created", "started"):
            await store.append([ev.RunStarted(run_id=run_id, session_id="s", metadata=late)])
        odd = {"context": {"tenant": 7, "labels": ["env"]}}
        await store.append([ev.RunStarted(run_id="odd", session_id="s", metadata=odd)])

        assert [(run.tenant, run.labels) for run in await store.runs()] == [
            (None, {}),
            ("other", {"env": "late"}),
            (context["tenant"], context["labels"]),
        ]

    async def test_a_tenant_without_a_name_is_a_tenant(self, store: Store) -> None:
        """The empty text is one's name: what starts the run changes it no more than another, and it is asked for."""
        nameless = {"context": {"tenant": ""}}
        await store.create_run(RunInfo(run_id="created", session_id="s", spec=nameless))
        await store.create_run(RunInfo(run_id="nobody", session_id="t"))
        late = {"context": {"tenant": "other"}}
        await store.append([ev.RunStarted(run_id="created", session_id="s", metadata=late)])
        await store.append([ev.RunStarted(run_id="started", session_id="u", metadata=nameless)])

        assert [run.tenant for run in await store.runs()] == ["", None, ""]
        assert await _names(store, tenant="") == "started created"
        assert [entry.run_id async for entry in store.log(tenant="")] == ["created", "started"]

    async def test_a_list_has_the_runs_that_meet_all_that_is_given(self, store: Store) -> None:
        """Status, tenant, labels, provider and when they began, alone and together, page by page."""
        for n in range(6):
            labels = {"env": "prod" if n % 3 else "dev", "n": n, "on": n > 3, "none": None}
            context = {"tenant": f"t{n % 2}", "labels": labels}
            at = _BEGAN + timedelta(minutes=n)
            ids: Any = {"run_id": f"r{n}", "session_id": f"s{n % 2}"}
            await store.create_run(RunInfo(created_at=_BEGAN, spec={"context": context}, **ids))
            if n:
                await store.append([ev.RunStarted(at=at, provider="p" if n < 4 else "q", **ids)])
            if n > 3:
                await store.append([ev.RunCompleted(**ids)])

        assert await _names(store, status=frozenset(("created", "completed"))) == "r5 r4 r0"
        assert await _names(store, tenant="t1") == "r5 r3 r1"
        assert await _names(store, provider="p") == "r3 r2 r1"
        assert await _names(store, labels={"env": "prod"}) == "r5 r4 r2 r1"
        assert await _names(store, labels={"n": "3"}) == await _names(store, labels={"n": "3", "on": "false"}) == "r3"
        assert await _names(store, labels={"none": "null", "on": "true"}) == "r5 r4"
        assert await _names(store, labels={"missing": "null"}) == await _names(store, tenant="t") == ""
        assert await _names(store, since=_BEGAN + timedelta(minutes=4)) == "r5 r4"
        assert await _names(store, until=_BEGAN + timedelta(minutes=1)) == "r0"
        assert await _names(store, tenant="t1", labels={"env": "prod"}, limit=1) == "r5"
        assert await _names(store, tenant="t1", labels={"env": "prod"}, limit=1, before="r5") == "r1"
        assert await _names(store, begins="r") == "r5 r4 r3 r2 r1 r0"
        assert await _names(store, begins="r3") == "r3"
        assert await _names(store, begins="%") == await _names(store, begins="r33") == ""
        of_one = await store.runs(session_id="s0", where=RunFilter(provider="p"))
        assert [run.run_id for run in of_one] == ["r2"]
