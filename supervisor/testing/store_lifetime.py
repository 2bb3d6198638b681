"""A store over time: waiting, closing, opening it again or twice, and what it admits to a record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
from msgspec.structs import replace

from proctor.policies import events as ev

from ..errors import StoreError
from ..ports.store import Store
from ..ports.stored_types import ApprovalAnswer, Cancel, Owner, RunInfo
from ..store.records import link
from .fakes import PATIENCE_S
from .store_approvals import requested
from .store_fixture import StoreChecks, at_once, kind_of_refusal, logged, message, run_of, status_of, stored, texts
from .store_runs import begun, owner_of


class LifetimeChecks(StoreChecks):
    """Waiting for what is stored; closing a store, opening it again, opening it twice."""

    async def test_wait_returns_at_once_for_an_old_token(self, store: Store) -> None:
        """Token 0 always is one; nothing stored between reading and waiting is missed."""
        with anyio.fail_after(PATIENCE_S):
            token = await store.wait(0, 3600)
            await store.append([message("s", "a")])
            later = await store.wait(token, 3600)

            assert later != token

    async def test_wait_ends_when_the_time_is_up(self, store: Store) -> None:
        with anyio.fail_after(PATIENCE_S):
            token = await store.wait(0, 0)
            for timeout_s in (0, 0.01):
                token = await store.wait(token, timeout_s)

    async def test_wait_waits_for_something_to_be_stored(self, store: Store) -> None:
        token = await store.wait(0, 0)
        woken = False

        async def wait() -> None:
            nonlocal woken
            await store.wait(token, 3600)
            woken = True

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                await store.wait(token, 0.01)  # one that does not wait has come back by then
                assert not woken
                await store.append([message("s", "a")])

        assert woken

    async def test_wait_wakes_everybody_for_everything_stored(self, store: Store) -> None:
        """An event, a message and a new run; a waiter that is cancelled takes nobody with it."""
        writes: list[Any] = [
            lambda: store.append([message("s", "a")]),
            lambda: store.send_command(Cancel(scope="all")),
            lambda: store.create_run(RunInfo(run_id="r", session_id="s")),
        ]
        for write in writes:
            token = await store.wait(0, 0)
            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as tasks, anyio.create_task_group() as doomed:
                    for _ in range(10):
                        tasks.start_soon(store.wait, token, 3600.0)
                    doomed.start_soon(store.wait, token, 3600.0)
                    await anyio.wait_all_tasks_blocked()
                    doomed.cancel_scope.cancel()
                    await write()

    async def test_a_closed_store_refuses_everything(self, store: Store) -> None:
        """Closing twice is fine; whoever waits is released."""
        with anyio.fail_after(PATIENCE_S):
            token = await store.wait(0, 0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.wait, token, 3600.0)
                await anyio.wait_all_tasks_blocked()
                await store.aclose()
        await store.aclose()

        for attempt in (
            store.append([message("s", "a")]),
            store.append([]),
            store.last_seq("s"),
            store.runs(),
            store.run("r"),
            store.session("s"),
            store.commands(),
            store.send_command(Cancel(scope="all")),
            store.last_command(),
            store.blocks(),
            store.approvals(),
            store.approval("a"),
            store.answer("a", ApprovalAnswer(granted=True, by="ana"), at=datetime.now(UTC)),
            store.register(Owner(owner_id="o"), lease_s=60),
            store.renew(1, lease_s=60),
            store.release(1),
            store.claim_run("r", epoch=1),
            store.lost_runs(),
            store.wait(0, 0),
            store.create_run(RunInfo(run_id="r", session_id="s")),
            stored(store, "s"),
            logged(store),
            store.place(),
        ):
            assert await kind_of_refusal(attempt) == "closed"

    async def test_closing_finishes_what_was_begun(self) -> None:
        """Every append ends one way: stored and acknowledged, or refused as closed."""
        if not self.durable:
            return
        acknowledged: list[ev.Event] = []
        async with self.open_store() as store:

            async def append(n: int) -> None:
                batch = store.append([message("s", str(n))])
                try:
                    acknowledged.extend(await batch)
                except StoreError as error:
                    assert error.kind == "closed"  # noqa: PT017

            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    for n in range(50):
                        tasks.start_soon(append, n)
                    await anyio.lowlevel.checkpoint()
                    await store.aclose()
        async with self.open_store() as store:
            assert sorted(acknowledged, key=lambda event: event.seq) == await stored(store, "s")

    async def test_a_store_opened_again_holds_what_was_acknowledged(self) -> None:
        """Events, runs and commands; the seqs, the event ids and the numbers go on."""
        if not self.durable:
            return
        async with self.open_store() as store:
            await store.create_run(RunInfo(run_id="r", session_id="s", spec={"prompt": "go"}))
            first = await store.append([message("s", "a", run_id="r", event_id="e1"), message("s", "b")])
            number = await store.send_command(Cancel(scope="run", value="r"))
        async with self.open_store() as store:
            again = await store.append([message("s", "x", event_id="e1"), message("s", "c")])

            assert [event.seq for event in again] == [1, 3]
            assert [*first, again[1]] == await stored(store, "s")
            assert await status_of(store, "r") == "running"
            assert await store.commands() == [Cancel(scope="run", value="r", number=number)]
            assert await store.send_command(Cancel(scope="all")) > number

    async def test_two_open_at_once_see_each_others_writes(self) -> None:
        """Seqs without a gap, runs created once, event ids stored once, and `wait` wakes."""
        if not self.durable:
            return
        async with self.open_store() as one, self.open_store() as other:
            for n in range(5):
                await one.append([message("s", f"one {n}", run_id="r", event_id=f"e{n}")])
                await other.append([message("s", f"other {n}"), message("s", "again", event_id=f"e{n}")])
            taken = await kind_of_refusal(other.create_run(RunInfo(run_id="r", session_id="s")))

            assert taken == "run_exists"
            assert list(range(1, 11)) == [event.seq for event in await stored(one, "s")]
            with anyio.fail_after(PATIENCE_S):
                token = await other.wait(0, 0)
                while not await other.commands():
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(one.send_command, Cancel(scope="all"))
                        token = await other.wait(token, 3600)


_LEFT = ev.RecordPruned(session_id="s", by="ana", reason="old")


async def _fill(store: Store) -> None:
    for run_id in ("r1", "r2"):
        ids: Any = {"run_id": run_id, "session_id": "s"}
        request = ev.ToolApprovalRequested(approval_id=f"{run_id}.1", input_digest="d", tool_name="t", **ids)
        await store.append([ev.RunStarted(**ids), request, ev.PolicyViolated(**ids), ev.RunCompleted(**ids)])
    await store.append([message("t", "other", run_id="r3")])


class PruningChecks(StoreChecks):
    """How the record of a session is removed, and what stays in its place."""

    async def test_one_event_stays_where_a_record_was(self, store: Store) -> None:
        """It says what was removed; its events, runs and approvals are gone, those of others are not."""
        await _fill(store)
        entries = [entry async for entry in store.log() if entry.session_id == "s"]
        left = await store.prune(_LEFT, up_to=8)

        assert left is not None
        assert (left.seq, left.first_seq, left.last_seq, left.events) == (9, 1, 8, 8)
        assert (left.runs, left.violations, left.by, left.reason) == (2, 2, "ana", "old")
        assert left.head == entries[-1].digest.hex()
        assert await stored(store, "s") == [left]
        assert [run.run_id for run in await store.runs()] == ["r3"]
        assert await store.run("r1") is None
        assert await store.approvals(waiting=False) == []
        assert [entry.session_id async for entry in store.log()] == ["t", "s"]

    async def test_numbers_go_on_after_a_record_was_removed(self) -> None:
        """No seq and no place is given twice, in this session or after all of them are gone. What is removed is not
        found again by its id.
        """
        async with self.open_store() as store:
            await store.append([message("s", "early", event_id="e")])
            await _fill(store)
            before = await store.place()
            assert await store.prune(_LEFT, up_to=9) is not None
            [late] = await store.append([message("s", "late", event_id="e")])
            again = await store.prune(_LEFT, up_to=11)

            assert late.seq == 11
            assert again is not None
            assert (again.seq, again.first_seq, again.events, again.runs) == (12, 10, 2, 0)
            assert await store.last_seq("s") == 12
            assert (await store.place()).position > before.position
            assert [entry.seq async for entry in store.log(after=before.position)] == [12]
        if self.durable:
            async with self.open_store() as store:
                assert [event.seq for event in await store.append([message("s", "a"), message("u", "b")])] == [13, 1]

    async def test_a_record_that_goes_on_is_not_removed(self, store: Store) -> None:
        """A run that was created or runs; events that came since; a session there is not."""
        await _fill(store)
        assert await store.prune(_LEFT, up_to=7) is None
        await store.create_run(RunInfo(run_id="r4", session_id="s"))
        assert await store.prune(_LEFT, up_to=8) is None
        await store.append([ev.RunStarted(run_id="r4", session_id="s")])
        assert await store.prune(_LEFT, up_to=9) is None
        assert await store.prune(ev.RecordPruned(session_id="nobody"), up_to=0) is None

        assert await store.last_seq("s") == 9
        assert len(await store.runs()) == 4

    async def test_what_is_left_of_a_record_is_brought_to_another_store_under_its_number(self, store: Store) -> None:
        """Be it one event; and tied to what was removed: it has the digest that it had."""
        left = ev.RecordPruned(session_id="s", seq=2, first_seq=1, last_seq=1, events=1, head="ab" * 32)
        assert await store.append([left, message("s", "after")]) == [left, *await stored(store, "s", after=2)]
        [first, second] = [entry async for entry in store.log()]

        assert (first.seq, second.seq) == (2, 3)
        assert await stored(store, "s", after=1) == await stored(store, "s")
        assert await store.last_seq("s") == 3
        assert first.digest == link(bytes.fromhex(left.head), first.data)
        assert second.digest == link(first.digest, second.data)
        unread = replace(left, session_id="t", head="no digest")
        assert await store.append([unread]) == [unread]

    async def test_what_is_stored_can_be_measured(self, store: Store) -> None:
        await _fill(store)
        size = await store.size()
        await store.prune(_LEFT, up_to=8)
        await store.compact()
        after = await store.size()

        assert (size.sessions, size.runs, size.events) == (2, {"completed": 2, "running": 1}, 9)
        assert (after.sessions, after.runs, after.events) == (2, {"running": 1}, 2)
        assert size.bytes > 0


_IDS: Any = {"run_id": "r", "session_id": "s"}


def unit(start: int, *events: ev.Event) -> list[ev.Event]:
    """Events of the run, as its owner appends them: each with the seq at which it belongs."""
    return [replace(event, seq=seq, **_IDS) for seq, event in enumerate(events, start)]


def start(call_id: str = "c", **input: Any) -> ev.Event:
    return ev.ToolCallStarted(tool_call_id=call_id, tool_name="t", tool_input=input, **_IDS)


class AdmittingChecks(StoreChecks):
    """Checks of the record of a run that a store admits."""

    async def test_a_unit_appended_again_is_stored_once(self, store: Store) -> None:
        """It is answered as it was the first time, however often and whatever the unit is made of."""
        reserved = ev.BudgetReserved(budget="b", granted=True, reserved=1, max=2, **_IDS)  # read again as 1.0 and 2.0
        events = [message("s", "same"), message("s", "same"), ev.TokenUsageUpdated(input_tokens=5, **_IDS), start()]
        events.append(reserved)
        epoch = await owner_of(store, "r", session_id="s")
        first = await store.append(unit(2, *events), epoch=epoch)
        again = [await store.append(unit(2, *events), epoch=epoch) for _ in range(2)]
        run = await run_of(store, "r")

        assert [event.seq for event in first] == [2, 3, 4, 5, 6]
        assert again == [first, first]
        assert (await stored(store, "s"))[1:] == first
        assert (run.calls, run.usage.input_tokens) == (1, 5)

    async def test_a_unit_appended_by_many_at_once_is_stored_once(self) -> None:
        """An answer that is late, and the same asked again; two stores on one record, where there can be."""
        async with self.open_store() as one, self.open_store() as other:
            stores = (one, other if self.durable else one)
            epoch = await owner_of(one, "r", session_id="s")
            found: list[Sequence[ev.Event]] = []

            async def append(n: int) -> None:
                found.append(await stores[n % 2].append(unit(2, message("s", "a"), message("s", "a")), epoch=epoch))

            await at_once(append, range(8))

            assert [[event.seq for event in events] for events in found] == [[2, 3]] * 8
            assert texts(await stored(one, "s")) == ["a", "a"]

    async def test_a_unit_appended_again_with_more_behind_it_has_the_rest_stored(self, store: Store) -> None:
        epoch = await owner_of(store, "r", session_id="s")
        await store.append(unit(2, message("s", "old", event_id="e0")), epoch=epoch)
        events = [message("s", "a"), message("s", "-", event_id="e0"), message("s", "b", event_id="e1")]
        first = await store.append(unit(3, *events), epoch=epoch)
        more = await store.append(unit(3, *events, message("s", "c"), ev.RunCompleted()), epoch=epoch)
        whole = await store.append(unit(3, *events, message("s", "c"), ev.RunCompleted()), epoch=epoch)

        assert [event.seq for event in first] == [3, 2, 4]
        assert [event.seq for event in more] == [3, 2, 4, 5, 6]
        assert more == whole
        assert texts(await stored(store, "s")) == ["old", "a", "b", "c"]
        assert (await run_of(store, "r")).status == "completed"

    async def test_an_append_that_was_cancelled_and_is_made_again_is_stored_once(self, store: Store) -> None:
        epoch = await owner_of(store, "r", session_id="s")
        for n in range(2, 12):
            with anyio.move_on_after(0.0001 * n):
                await store.append(unit(n, message("s", "x")), epoch=epoch)
            await store.append(unit(n, message("s", "x")), epoch=epoch)

        assert [event.seq for event in await stored(store, "s")] == list(range(1, 12))

    async def test_an_owner_that_appends_something_else_at_a_place_that_is_taken_is_refused(
        self, store: Store
    ) -> None:
        epoch = await owner_of(store, "r", session_id="s")
        await store.append(unit(2, message("s", "a"), message("s", "b")), epoch=epoch)
        other = store.append(unit(2, message("s", "a"), message("s", "other")), epoch=epoch)

        assert await kind_of_refusal(other) == "conflict"
        assert texts(await stored(store, "s")) == ["a", "b"]

    async def test_what_others_stored_meanwhile_is_no_part_of_a_unit(self, store: Store) -> None:
        """Its place is a guess as long as nothing of its run is there."""
        epoch = await owner_of(store, "r", session_id="s")
        await store.append([message("s", "a")])
        first = await store.append(unit(2, message("s", "a"), message("s", "b")), epoch=epoch)
        again = await store.append(unit(2, message("s", "a"), message("s", "b")), epoch=epoch)

        assert [event.seq for event in first] == [3, 4]
        assert again == first
        assert texts(await stored(store, "s")) == ["a", "a", "b"]

    async def test_a_run_ends_once(self, store: Store) -> None:
        """A second end is refused, in the same append, in a later one, and by whoever else comes."""
        epoch = await owner_of(store, "r", session_id="s")
        twice = store.append([ev.RunCompleted(**_IDS), ev.RunFailed(**_IDS)], epoch=epoch)
        assert await kind_of_refusal(twice) == "run_over"
        assert (await run_of(store, "r")).status == "running"
        await store.append([ev.RunCompleted(**_IDS)], epoch=epoch)
        for end in (ev.RunCompleted(**_IDS), ev.RunFailed(**_IDS), ev.RunCancelled(**_IDS)):
            assert await kind_of_refusal(store.append([end], epoch=epoch)) == "run_over"

        assert (await run_of(store, "r")).status == "completed"
        assert await store.last_seq("s") == 2

    async def test_nothing_of_a_run_comes_after_its_end(self, store: Store) -> None:
        """But an answer to what it was ended to ask. Other runs and the session go on."""
        await store.append([requested("r.1", held=False)])
        behind = store.append([ev.RunCancelled(**_IDS), message("s", "late", run_id="r")])
        assert await kind_of_refusal(behind) == "run_over"
        await store.append([ev.RunCancelled(**_IDS)])
        for late in (message("s", "late", run_id="r"), start(), ev.TokenUsageUpdated(input_tokens=1, **_IDS)):
            assert await kind_of_refusal(store.append([message("t", "x", run_id="q"), late])) == "run_over"
        at = datetime(2026, 1, 1, tzinfo=UTC)
        given = ev.ToolApprovalGranted(approval_id="r.1", tool_call_id="c", tool_name="t", by="ana", at=at, **_IDS)
        await store.append([given, message("s", "next", run_id="r2"), message("s", "nobody's")])

        assert texts(await stored(store, "s")) == ["next", "nobody's"]
        assert await store.last_seq("t") == 0

    async def test_a_call_starts_once_until_it_is_over(self, store: Store) -> None:
        """In one append and in two; with another input it is the same call, evaluated again. Then its id is free."""
        overs = (ev.ToolCallCompleted, ev.ToolCallFailed, ev.ToolCallDenied)
        epoch = await owner_of(store, "r", session_id="s")
        twice = store.append([start(), start()], epoch=epoch)
        assert await kind_of_refusal(twice) == "call_started"
        await store.append([start(), start("d")], epoch=epoch)
        assert await kind_of_refusal(store.append([start()], epoch=epoch)) == "call_started"
        await store.append([start(x=1)], epoch=epoch)
        assert await kind_of_refusal(store.append([start(x=1)], epoch=epoch)) == "call_started"
        for over in overs:
            await store.append([over(tool_call_id="c", tool_name="t", **_IDS)], epoch=epoch)
            await store.append([start()], epoch=epoch)
        await store.append([overs[0](tool_call_id="c", tool_name="t", **_IDS), start()], epoch=epoch)
        assert await kind_of_refusal(store.append([start("d")], epoch=epoch)) == "call_started"
        await begun(store, epoch, "q", "s-q")
        other = ev.ToolCallStarted(tool_call_id="c", tool_name="t", run_id="q", session_id="s-q")
        await store.append([other], epoch=epoch)

        assert (await run_of(store, "r")).calls == 7
        assert (await run_of(store, "q")).calls == 1

    async def test_calls_in_flight_outlive_the_store_object(self) -> None:
        if not self.durable:
            return
        async with self.open_store() as store:
            epoch = await owner_of(store, "r", session_id="s")
            await store.append([start()], epoch=epoch)
        async with self.open_store() as store:
            assert await kind_of_refusal(store.append([start()], epoch=epoch)) == "call_started"
            await store.append([ev.ToolCallCompleted(tool_call_id="c", tool_name="t", **_IDS), start()], epoch=epoch)
