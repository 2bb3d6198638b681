"""What every Store must do, as tests that the author of one can run.

Subclass it in a test module and say how the store of one test is opened; with pytest:

    @pytest.mark.anyio
    class TestMyStore(StoreConformance):
        durable = True

        @pytest.fixture(autouse=True)
        def place(self, tmp_path: Path) -> None:
            self.path = tmp_path / "store"

        def open_store(self) -> AbstractAsyncContextManager[Store]:
            return MyStore(self.path)

Nothing here needs pytest: each `test_` method is a coroutine function that raises AssertionError, to be
called on a new instance, on asyncio and on trio.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime
from typing import Any, cast

import anyio
import anyio.lowlevel

from proctor.policies.events import (
    Event,
    MessageReceived,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionStarted,
    ToolCallStarted,
    Unrecognized,
    decode_event,
    encode_event,
)
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports import Mail, RunInfo, Store

_PATIENCE_S = 30


async def stored(store: Store, session_id: str, *, after: int = 0, run_id: str | None = None) -> list[Event]:
    """All that `read` gives."""
    return [event async for event in store.read(session_id, after=after, run_id=run_id)]


def message(session_id: str, text: str, *, run_id: str = "", event_id: str = "") -> MessageReceived:
    """An event as an adapter would report it."""
    return MessageReceived(session_id=session_id, run_id=run_id, event_id=event_id, content=text)


def texts(events: Sequence[Event]) -> list[Any]:
    """The contents of messages."""
    return [event.content for event in events if isinstance(event, MessageReceived)]


async def kind_of_refusal(attempt: Any) -> str | None:
    """The kind of the StoreError that awaiting raises, or None when it raises none."""
    try:
        await attempt
    except StoreError as error:
        return error.kind
    return None


class StoreConformance:
    """The tests. `durable` says that a store opened again holds what the first one acknowledged, and that
    two may be open at once.
    """

    durable = False

    def open_store(self) -> AbstractAsyncContextManager[Store]:
        """Open the store of this test, empty at first; leaving the context closes it."""
        raise NotImplementedError

    async def test_seqs_count_from_one_in_the_order_appended(self) -> None:
        """The events come back stamped, and are read as they came back."""
        async with self.open_store() as store:
            first = await store.append([message("s", "a"), message("s", "b")])
            second = await store.append([message("s", "c")])

            assert [1, 2, 3] == [event.seq for event in first + second]
            assert first + second == await stored(store, "s")
            assert await store.last_seq("s") == 3

    async def test_sessions_count_apart_from_each_other(self) -> None:
        """One batch may hold the events of several sessions."""
        async with self.open_store() as store:
            batch = await store.append([message("s", "a"), message("t", "b"), message("s", "c")])

            assert [1, 1, 2] == [event.seq for event in batch]
            assert ["a", "c"] == texts(await stored(store, "s"))
            assert ["b"] == texts(await stored(store, "t"))

    async def test_an_empty_batch_stores_nothing(self) -> None:
        """It is no error either."""
        async with self.open_store() as store:
            assert await store.append([]) == []

    async def test_what_is_not_there_reads_as_nothing(self) -> None:
        """Unknown sessions and runs are no errors."""
        async with self.open_store() as store:
            assert await stored(store, "nobody") == []
            assert await store.last_seq("nobody") == 0
            assert await store.session("nobody") is None
            assert await store.run("nobody") is None
            assert await store.runs() == []
            assert await store.mail() == []

    async def test_concurrent_appends_leave_no_gap(self) -> None:
        """Many tasks append to few sessions: every seq once, each task's own events in its order."""
        async with self.open_store() as store:
            with anyio.fail_after(_PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    for task in range(20):
                        tasks.start_soon(self._append_many, store, task)
            for session_id in ("s0", "s1", "s2"):
                events = await stored(store, session_id)

                assert list(range(1, len(events) + 1)) == [event.seq for event in events]
                for task in range(20):
                    mine = [text for text in texts(events) if text.startswith(f"{task}:")]
                    assert sorted(mine, key=lambda text: int(text.split(":")[1])) == mine
            total = [await store.last_seq(session_id) for session_id in ("s0", "s1", "s2")]
            assert sum(total) == 20 * 10 * 2

    @staticmethod
    async def _append_many(store: Store, task: int) -> None:
        for n in range(10):
            session_id = f"s{(task + n) % 3}"
            await store.append([message(session_id, f"{task}:{2 * n}"), message(session_id, f"{task}:{2 * n + 1}")])

    async def test_a_batch_is_not_torn_apart_by_others(self) -> None:
        """The events of one batch have consecutive seqs, whoever appends meanwhile."""
        async with self.open_store() as store:
            results: list[list[Event]] = []

            async def append(task: int) -> None:
                results.append(await store.append([message("s", f"{task}:{n}") for n in range(7)]))

            with anyio.fail_after(_PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    for task in range(15):
                        tasks.start_soon(append, task)
            for batch in results:
                first = batch[0].seq
                assert list(range(first, first + 7)) == [event.seq for event in batch]

    async def test_a_repeated_event_id_is_stored_once(self) -> None:
        """The stored event comes back in place of its repetition, and the seqs have no gap."""
        async with self.open_store() as store:
            [first] = await store.append([message("s", "a", event_id="e1")])
            again = await store.append([message("s", "other", event_id="e1"), message("s", "b", event_id="e2")])

            assert again[0] == first
            assert [1, 2] == [event.seq for event in again]
            assert ["a", "b"] == texts(await stored(store, "s"))

    async def test_an_event_id_repeated_within_a_batch_is_stored_once(self) -> None:
        """The first of them is kept."""
        async with self.open_store() as store:
            batch = await store.append([message("s", text, event_id="e1") for text in "abc"])

            assert [1, 1, 1] == [event.seq for event in batch]
            assert ["a"] == texts(await stored(store, "s"))

    async def test_an_event_id_counts_within_its_session_only(self) -> None:
        """Another session may use the same, and events without one are never repetitions."""
        async with self.open_store() as store:
            await store.append([message("s", "a", event_id="e1"), message("t", "b", event_id="e1")])
            await store.append([message("s", "c"), message("s", "c")])

            assert ["a", "c", "c"] == texts(await stored(store, "s"))
            assert ["b"] == texts(await stored(store, "t"))

    async def test_the_same_event_appended_by_many_tasks_is_stored_once(self) -> None:
        """All of them are told the same seq."""
        async with self.open_store() as store:
            seqs: list[int] = []

            async def append(task: int) -> None:
                batch = await store.append([message("s", f"{task}"), message("s", "same", event_id="e1")])
                seqs.append(batch[1].seq)

            with anyio.fail_after(_PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    for task in range(10):
                        tasks.start_soon(append, task)

            assert len(set(seqs)) == 1
            assert await store.last_seq("s") == 11

    async def test_a_batch_with_an_event_that_cannot_be_stored_is_refused_whole(self) -> None:
        """One that is no JSON, or has no session; what others append meanwhile is stored."""
        async with self.open_store() as store:
            bad = [message("s", cast(Any, object())), message("", "no session"), message("s", "\ud800")]
            kinds: list[str | None] = []

            async def append(event: Event) -> None:
                kinds.append(await kind_of_refusal(store.append([message("s", "lost"), event])))

            async with anyio.create_task_group() as tasks:
                for event in bad:
                    tasks.start_soon(append, event)
                tasks.start_soon(store.append, [message("s", "kept")])

            assert ["bad_event"] * 3 == kinds
            assert ["kept"] == texts(await stored(store, "s"))
            assert await store.last_seq("s") == 1

    async def test_read_begins_after_a_seq_and_keeps_to_a_run(self) -> None:
        """Both filters, alone and together; a long session is read whole."""
        async with self.open_store() as store:
            for start in range(0, 1500, 300):
                await store.append(
                    [message("s", str(n), run_id=f"r{n % 2}") for n in range(start, start + 300)]
                )

            assert list(range(1, 1501)) == [event.seq for event in await stored(store, "s")]
            assert [1499, 1500] == [event.seq for event in await stored(store, "s", after=1498)]
            assert [1498, 1500] == [event.seq for event in await stored(store, "s", after=1497, run_id="r1")]
            assert 750 == len(await stored(store, "s", run_id="r0"))
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

            async with anyio.create_task_group() as tasks:
                for task in range(8):
                    tasks.start_soon(create, task)

            assert kinds.count(None) == 1
            assert kinds.count("run_exists") == 7

    async def test_the_status_of_a_run_follows_its_events(self) -> None:
        """Created, running, and then what its first terminal event says, for good."""
        ends = {"completed": RunCompleted, "failed": RunFailed, "cancelled": RunCancelled}
        async with self.open_store() as store:
            for status, end in ends.items():
                await store.create_run(RunInfo(run_id=status, session_id="s"))
                seen = [await self._status(store, status)]
                await store.append([RunStarted(run_id=status, session_id="s", provider="p")])
                seen.append(await self._status(store, status))
                await store.append([end(run_id=status, session_id="s")])
                seen.append(await self._status(store, status))
                await store.append([message("s", "late", run_id=status)])
                seen.append(await self._status(store, status))

                assert ["created", "running", status, status] == seen

    @staticmethod
    async def _status(store: Store, run_id: str) -> str:
        run = await store.run(run_id)
        assert run is not None
        return run.status

    async def test_runs_are_listed_newest_first(self) -> None:
        """With a limit, of all sessions or of one."""
        async with self.open_store() as store:
            for n in range(6):
                await store.create_run(RunInfo(run_id=f"r{n}", session_id=f"s{n % 2}"))

            assert ["r5", "r4", "r3"] == [run.run_id for run in await store.runs(limit=3)]
            assert ["r4", "r2", "r0"] == [run.run_id for run in await store.runs(session_id="s0")]
            assert await store.runs(session_id="other") == []

    async def test_a_session_knows_its_provider_and_the_providers_own_id(self) -> None:
        """The id is that of the latest event that names one."""
        async with self.open_store() as store:
            await store.append([message("s", "a"), SessionStarted(session_id="s", provider="p")])
            await store.append([SessionStarted(session_id="s", provider_session_id="old")])
            await store.append([SessionStarted(session_id="s", provider_session_id="new"), message("s", "b")])
            session = await store.session("s")

            assert session is not None
            assert ("s", "p", "new", 5) == (
                session.session_id, session.provider, session.provider_session_id, session.last_seq
            )

    async def test_mail_is_kept_in_order_with_rising_ids(self) -> None:
        """Every field comes back, and `after` leaves out what was read."""
        at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
        async with self.open_store() as store:
            first = await store.post(Mail(kind="approve", run_id="r", body={"by": "ana", "n": [1, None]}, at=at))
            second = await store.post(Mail(kind="cancel"))

            assert second > first > 0
            assert await store.mail() == [
                Mail(kind="approve", run_id="r", mail_id=first, body={"by": "ana", "n": [1, None]}, at=at),
                Mail(kind="cancel", mail_id=second),
            ]
            assert [second] == [mail.mail_id for mail in await store.mail(after=first)]
            assert await store.mail(after=second) == []

    async def test_wait_returns_at_once_for_an_old_token(self) -> None:
        """Token 0 always is one; nothing stored between reading and waiting is missed."""
        async with self.open_store() as store:
            with anyio.fail_after(_PATIENCE_S):
                token = await store.wait(0, 3600)
                await store.append([message("s", "a")])
                later = await store.wait(token, 3600)

                assert later != token

    async def test_wait_ends_when_the_time_is_up(self) -> None:
        """Nothing needs to be stored for that."""
        async with self.open_store() as store:
            with anyio.fail_after(_PATIENCE_S):
                token = await store.wait(0, 0)
                for timeout_s in (0, 0.01):
                    token = await store.wait(token, timeout_s)

    async def test_wait_wakes_everybody_for_everything_stored(self) -> None:
        """An event, a message and a new run; a waiter that is cancelled takes nobody with it."""
        async with self.open_store() as store:
            writes: list[Any] = [
                lambda: store.append([message("s", "a")]),
                lambda: store.post(Mail(kind="cancel")),
                lambda: store.create_run(RunInfo(run_id="r", session_id="s")),
            ]
            for write in writes:
                token = await store.wait(0, 0)
                with anyio.fail_after(_PATIENCE_S):
                    async with anyio.create_task_group() as tasks, anyio.create_task_group() as doomed:
                        for _ in range(10):
                            tasks.start_soon(store.wait, token, 3600.0)
                        doomed.start_soon(store.wait, token, 3600.0)
                        await anyio.wait_all_tasks_blocked()
                        doomed.cancel_scope.cancel()
                        await write()

    async def test_a_cancelled_append_disturbs_nobody(self) -> None:
        """It is stored whole or not at all; the others are stored, without a gap."""
        async with self.open_store() as store:
            with anyio.fail_after(_PATIENCE_S):
                async with anyio.create_task_group() as tasks, anyio.create_task_group() as doomed:
                    for n in range(10):
                        doomed.start_soon(store.append, [message("s", f"doomed {n}")] * 3)
                        tasks.start_soon(store.append, [message("s", f"kept {n}")] * 3)
                    doomed.cancel_scope.cancel()
            await store.append([message("s", "last")])
            events = await stored(store, "s")
            counts = {text: texts(events).count(text) for text in texts(events)}

            assert list(range(1, len(events) + 1)) == [event.seq for event in events]
            assert all(counts[f"kept {n}"] == 3 for n in range(10))
            assert {1, 3} == set(counts.values())

    async def test_any_text_comes_back_as_it_was(self) -> None:
        """Other scripts, control characters, quotes, the empty string; in ids too."""
        odd = ["", "\x00\x01", "日本語 🦑", "'; drop table events; --", '"\\', "e\u0301", "\u2028", " "]
        async with self.open_store() as store:
            for text in odd:
                session_id, run_id = f"s{text}", f"r{text}"
                [event] = await store.append([message(session_id, text, run_id=run_id, event_id=f"e{text}")])

                assert await stored(store, session_id, run_id=run_id) == [event]
                assert (await store.append([message(session_id, "x", event_id=f"e{text}")])) == [event]
                run = await store.run(run_id)
                assert run is not None
                assert run.session_id == session_id

    async def test_huge_events_are_kept_whole(self) -> None:
        """Megabytes in one event, beside small ones."""
        huge = "x" * 5_000_000
        async with self.open_store() as store:
            await store.append([message("s", "small"), message("s", huge), message("s", "small")])

            assert ["small", huge, "small"] == texts(await stored(store, "s"))

    async def test_deep_events_are_kept_or_refused_but_never_unreadable(self) -> None:
        """Whatever was acknowledged can be read again; two hundred levels must be possible."""
        async with self.open_store() as store:
            kept = 0
            for depth in (10, 200, *range(280, 320), 500, 900, 990, 5_000, 100_000):
                nested: Any = []
                for _ in range(depth):
                    nested = [nested]
                event = ToolCallStarted(session_id="s", tool_call_id="c", tool_name="t", tool_input={"n": nested})
                refused = await kind_of_refusal(store.append([event]))
                kept += refused is None

                assert refused in ((None,) if depth <= 200 else (None, "bad_event"))
                while nested:  # undone by hand: Python itself would fall over the deepest
                    nested = nested.pop()
            assert kept == len(await stored(store, "s"))

    async def test_unknown_events_are_kept_as_they_came(self) -> None:
        """To the byte, unknown fields and their order included."""
        line = b'{"type":"from_the_future","b":1,"a":{"z":[1.5,null],"y":"\xc3\xa9"},"session_id":"s","seq":7}'
        async with self.open_store() as store:
            event = decode_event(line)
            assert isinstance(event, Unrecognized)
            [kept] = await store.append([event])
            [read] = await stored(store, "s")

            assert line.replace(b'"seq":7', b'"seq":1') == encode_event(kept)
            assert encode_event(kept) == encode_event(read)

    async def test_times_come_back_exactly(self) -> None:
        """To the microsecond."""
        at = datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
        async with self.open_store() as store:
            await store.append([RunStarted(session_id="s", run_id="r", at=at)])
            [event] = await stored(store, "s")
            run = await store.run("r")

            assert event.at == at
            assert run is not None
            assert run.created_at == at

    async def test_what_was_appended_can_be_changed_without_changing_the_record(self) -> None:
        """The store shares no state with its callers."""
        given: dict[str, Any] = {"command": "ls"}
        async with self.open_store() as store:
            await store.append(
                [ToolCallStarted(session_id="s", tool_call_id="c", tool_name="bash", tool_input=given)]
            )
            given["command"] = "rm"
            [event] = await stored(store, "s")

            assert isinstance(event, ToolCallStarted)
            assert event.tool_input == {"command": "ls"}

    async def test_a_closed_store_refuses_everything(self) -> None:
        """Closing twice is fine; whoever waits is released."""
        async with self.open_store() as store:
            with anyio.fail_after(_PATIENCE_S):
                token = await store.wait(0, 0)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(store.wait, token, 3600.0)
                    await anyio.wait_all_tasks_blocked()
                    await store.aclose()
            await store.aclose()

            for attempt in (
                store.append([message("s", "a")]), store.append([]), store.last_seq("s"), store.runs(),
                store.run("r"), store.session("s"), store.mail(), store.post(Mail(kind="cancel")),
                store.wait(0, 0), store.create_run(RunInfo(run_id="r", session_id="s")), stored(store, "s"),
            ):
                assert await kind_of_refusal(attempt) == "closed"

    async def test_closing_finishes_what_was_begun(self) -> None:
        """Every append ends one way: stored and acknowledged, or refused as closed."""
        if not self.durable:
            return
        acknowledged: list[Event] = []
        async with self.open_store() as store:

            async def append(n: int) -> None:
                batch = store.append([message("s", str(n))])
                try:
                    acknowledged.extend(await batch)
                except StoreError as error:
                    assert error.kind == "closed"  # noqa: PT017

            with anyio.fail_after(_PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    for n in range(50):
                        tasks.start_soon(append, n)
                    await anyio.lowlevel.checkpoint()
                    await store.aclose()
        async with self.open_store() as store:
            assert sorted(acknowledged, key=lambda event: event.seq) == await stored(store, "s")

    async def test_a_store_opened_again_holds_what_was_acknowledged(self) -> None:
        """Events, runs and mail; the seqs, the event ids and the mail ids go on."""
        if not self.durable:
            return
        async with self.open_store() as store:
            await store.create_run(RunInfo(run_id="r", session_id="s", spec={"prompt": "go"}))
            first = await store.append([message("s", "a", run_id="r", event_id="e1"), message("s", "b")])
            mail_id = await store.post(Mail(kind="deny", run_id="r"))
        async with self.open_store() as store:
            again = await store.append([message("s", "x", event_id="e1"), message("s", "c")])

            assert [1, 3] == [event.seq for event in again]
            assert [*first, again[1]] == await stored(store, "s")
            assert await self._status(store, "r") == "running"
            assert await store.mail() == [Mail(kind="deny", run_id="r", mail_id=mail_id)]
            assert await store.post(Mail(kind="cancel")) > mail_id

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
            with anyio.fail_after(_PATIENCE_S):
                token = await other.wait(0, 0)
                while not await other.mail():
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(one.post, Mail(kind="cancel"))
                        token = await other.wait(token, 3600)
