"""How what is stored is found again: events, runs and sessions."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, cast

from proctor.policies.stream.events import RunCancelled, RunCompleted, RunFailed, RunStarted, SessionStarted
from proctor.supervisor.ports.adapters import RunInfo

from .checks import StoreChecks, at_once, kind_of_refusal, message, status_of, stored


class FindingChecks(StoreChecks):
    """How what is stored is found again: events, runs and sessions."""

    async def test_what_is_not_there_reads_as_nothing(self) -> None:
        """Unknown sessions and runs are not errors."""
        async with self.open_store() as store:
            assert await stored(store, "nobody") == []
            assert await store.last_seq("nobody") == 0
            assert await store.session("nobody") is None
            assert await store.run("nobody") is None
            assert await store.runs() == []
            assert await store.approvals(waiting=False) == []
            assert await store.approval("nobody") is None
            assert (await store.instructions(), await store.last_instruction()) == ([], 0)
            assert await store.lost_runs() == []

    async def test_read_begins_after_a_seq_and_keeps_to_a_run(self) -> None:
        """Both filters, alone and together; a long session is read whole."""
        async with self.open_store() as store:
            for start in range(0, 1500, 300):
                await store.append([message("s", str(n), run_id=f"r{n % 2}") for n in range(start, start + 300)])

            assert list(range(1, 1501)) == [event.seq for event in await stored(store, "s")]
            assert [event.seq for event in await stored(store, "s", after=1498)] == [1499, 1500]
            assert [event.seq for event in await stored(store, "s", after=1497, run_id="r1")] == [1498, 1500]
            assert len(await stored(store, "s", run_id="r0")) == 750
            assert await stored(store, "s", after=1500) == []
            assert await stored(store, "s", run_id="other") == []

    async def test_reading_can_be_left_early(self) -> None:
        """A reader that stops half-way disturbs nobody."""
        async with self.open_store() as store:
            await store.append([message("s", str(n)) for n in range(50)])
            # every store's read is an async generator in practice; one that is not has no aclose to call
            events = cast(Any, store.read("s"))
            async with aclosing(events):
                assert (await anext(events)).seq == 1
            await store.append([message("s", "more")])

            assert await store.last_seq("s") == 51

    async def test_a_run_is_created_once(self) -> None:
        """Its id is taken from then on, also where only its events are stored."""
        created_at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        run = RunInfo(run_id="r", session_id="s", provider="p", created_at=created_at, spec={"prompt": "héllo"})
        async with self.open_store() as store:
            await store.create_run(run)
            await store.append([RunStarted(run_id="r2", session_id="s")])

            assert await store.run("r") == run
            for taken in ("r", "r2"):
                again = store.create_run(RunInfo(run_id=taken, session_id="t"))
                assert await kind_of_refusal(again) == "run_exists"
            assert await store.run("r") == run

    async def test_a_run_that_many_create_is_created_by_one(self) -> None:
        """The others are told that it exists."""
        async with self.open_store() as store:
            kinds: list[str | None] = []

            async def create(task: int) -> None:
                run = RunInfo(run_id="r", session_id=f"s{task}")
                kinds.append(await kind_of_refusal(store.create_run(run)))

            await at_once(create, range(8))

            assert kinds.count(None) == 1
            assert kinds.count("run_exists") == 7

    async def test_the_status_of_a_run_follows_its_events(self) -> None:
        """Created, running, and then what its first terminal event says, for good."""
        ends = {"completed": RunCompleted, "failed": RunFailed, "cancelled": RunCancelled}
        async with self.open_store() as store:
            for status, end in ends.items():
                await store.create_run(RunInfo(run_id=status, session_id="s"))
                seen = [await status_of(store, status)]
                await store.append([RunStarted(run_id=status, session_id="s", provider="p")])
                seen.append(await status_of(store, status))
                await store.append([end(run_id=status, session_id="s")])
                seen.append(await status_of(store, status))
                late = store.append([message("s", "late", run_id=status)])
                assert await kind_of_refusal(late) == "run_over"
                seen.append(await status_of(store, status))

                assert ["created", "running", status, status] == seen

    async def test_runs_are_listed_newest_first(self) -> None:
        """With a limit, of all sessions or of one, and those before a run."""
        async with self.open_store() as store:
            for n in range(6):
                await store.create_run(RunInfo(run_id=f"r{n}", session_id=f"s{n % 2}"))

            assert [run.run_id for run in await store.runs(limit=3)] == ["r5", "r4", "r3"]
            assert [run.run_id for run in await store.runs(session_id="s0")] == ["r4", "r2", "r0"]
            assert [run.run_id for run in await store.runs(session_id="s0", limit=2)] == ["r4", "r2"]
            assert await store.runs(session_id="other") == []
            assert [run.run_id for run in await store.runs(limit=2, before="r3")] == ["r2", "r1"]
            assert [run.run_id for run in await store.runs(session_id="s0", before="r3")] == ["r2", "r0"]
            assert await store.runs(before="r0") == await store.runs(before="other") == []

    async def test_a_session_knows_its_provider_and_the_providers_own_id(self) -> None:
        """The id is that of the latest event that names one."""
        async with self.open_store() as store:
            await store.append([message("s", "a"), SessionStarted(session_id="s", provider="p")])
            await store.append([SessionStarted(session_id="s", provider_session_id="old")])
            await store.append([SessionStarted(session_id="s", provider_session_id="new"), message("s", "b")])
            session = await store.session("s")

            assert session is not None
            assert (session.session_id, session.provider, session.provider_session_id, session.last_seq) == (
                "s",
                "p",
                "new",
                5,
            )
