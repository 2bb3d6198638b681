"""How events are stored: seqs without gaps, batches as one unit, event ids once."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, cast

import anyio
from msgspec.structs import replace

from proctor.policies import events as ev

from ..ports.store import Store
from ..ports.stored_types import RunInfo
from ..store.records import event_of
from .fakes import PATIENCE_S
from .store_fixture import StoreChecks, at_once, kind_of_refusal, logged, message, run_of, stored, texts


class AppendingChecks(StoreChecks):
    """How events are stored: seqs without gaps, batches as one unit, event ids once."""

    async def test_seqs_count_from_one_in_the_order_appended(self, store: Store) -> None:
        """The events come back stamped, and are read as they came back."""
        first = await store.append([message("s", "a"), message("s", "b")])
        second = await store.append([message("s", "c")])

        assert [event.seq for event in first + second] == [1, 2, 3]
        assert first + second == await stored(store, "s")
        assert await store.last_seq("s") == 3

    async def test_a_seq_that_an_event_brings_along_is_a_guess_only(self, store: Store) -> None:
        """It is stored with the next one of its session, however it comes encoded."""
        await store.append([message("s", "a")])
        guessed = [replace(message("s", text), seq=7) for text in "bc"]
        events = await store.append(ev.Encoded(guessed, list(map(ev.encode_event, guessed))))

        assert [event.seq for event in events] == [2, 3]
        assert [event.seq for event in await stored(store, "s")] == [1, 2, 3]
        assert [ev.decode_event(entry.data).seq async for entry in store.log()] == [1, 2, 3]

    async def test_sessions_count_apart_from_each_other(self, store: Store) -> None:
        """One batch may hold the events of several sessions."""
        batch = await store.append([message("s", "a"), message("t", "b"), message("s", "c")])

        assert [event.seq for event in batch] == [1, 1, 2]
        assert texts(await stored(store, "s")) == ["a", "c"]
        assert texts(await stored(store, "t")) == ["b"]

    async def test_an_empty_batch_stores_nothing(self, store: Store) -> None:
        assert await store.append([]) == []

    async def test_concurrent_appends_leave_no_gap(self, store: Store) -> None:
        """Many tasks append to few sessions: every seq once, each task's own events in its order."""
        with anyio.fail_after(PATIENCE_S):
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

    async def test_a_batch_is_not_torn_apart_by_others(self, store: Store) -> None:
        results: list[list[ev.Event]] = []

        async def append(task: int) -> None:
            results.append(await store.append([message("s", f"{task}:{n}") for n in range(7)]))

        await at_once(append, range(15))
        for batch in results:
            first = batch[0].seq
            assert list(range(first, first + 7)) == [event.seq for event in batch]

    async def test_a_repeated_event_id_is_stored_once(self, store: Store) -> None:
        """The stored event comes back in place of its repetition, and the seqs have no gap."""
        [first] = await store.append([message("s", "a", event_id="e1")])
        again = await store.append([message("s", "other", event_id="e1"), message("s", "b", event_id="e2")])

        assert again[0] == first
        assert [event.seq for event in again] == [1, 2]
        assert texts(await stored(store, "s")) == ["a", "b"]

    async def test_an_event_id_repeated_within_a_batch_is_stored_once(self, store: Store) -> None:
        batch = await store.append([message("s", text, event_id="e1") for text in "abc"])

        assert [event.seq for event in batch] == [1, 1, 1]
        assert texts(await stored(store, "s")) == ["a"]

    async def test_an_event_id_counts_within_its_session_only(self, store: Store) -> None:
        """Another session may use the same, and events without one are never repetitions."""
        await store.append([message("s", "a", event_id="e1"), message("t", "b", event_id="e1")])
        await store.append([message("s", "c"), message("s", "c")])

        assert texts(await stored(store, "s")) == ["a", "c", "c"]
        assert texts(await stored(store, "t")) == ["b"]

    async def test_the_same_event_appended_by_many_tasks_is_stored_once(self, store: Store) -> None:
        seqs: list[int] = []

        async def append(task: int) -> None:
            batch = await store.append([message("s", f"{task}"), message("s", "same", event_id="e1")])
            seqs.append(batch[1].seq)

        await at_once(append, range(10))

        assert len(set(seqs)) == 1
        assert await store.last_seq("s") == 11

    async def test_a_batch_with_an_event_that_cannot_be_stored_is_refused_whole(self, store: Store) -> None:
        """One that is no JSON, or has no session; what others append meanwhile is stored."""
        bad = [message("s", cast(Any, object())), message("", "no session"), message("s", "\ud800")]
        kinds: list[str | None] = []

        async def append(event: ev.Event) -> None:
            kinds.append(await kind_of_refusal(store.append([message("s", "lost"), event])))

        async with anyio.create_task_group() as tasks:
            for event in bad:
                tasks.start_soon(append, event)
            tasks.start_soon(store.append, [message("s", "kept")])

        assert kinds == ["bad_record"] * 3
        assert texts(await stored(store, "s")) == ["kept"]
        assert await store.last_seq("s") == 1

    async def test_a_cancelled_append_disturbs_nobody(self, store: Store) -> None:
        """It is stored whole or not at all; the others are stored, without a gap."""
        with anyio.fail_after(PATIENCE_S):
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
        assert {counts.get(f"doomed {n}", 0) for n in range(10)} <= {0, 3}
        assert counts["last"] == 1


class FidelityChecks(StoreChecks):
    """That events come back as they were, whatever is in them."""

    async def test_any_text_comes_back_as_it_was(self, store: Store) -> None:
        """Other scripts, control characters, quotes, the empty string; in ids too, among others in one unit."""
        odd = ["", "\x00\x01", "\\u0000", "日本語 🦑", "'; drop table events; --", '"\\', "e\u0301", "\u2028", " "]
        for text in odd:
            session_id, run_id = f"s{text}", f"r{text}"
            odd_one = message(session_id, text, run_id=run_id, event_id=f"e{text}")
            _, event, _ = await store.append([message(session_id, "a"), odd_one, message(session_id, "z")])

            assert await stored(store, session_id, run_id=run_id) == [event]
            assert (await store.append([message(session_id, "x", event_id=f"e{text}")])) == [event]
            run = await run_of(store, run_id)
            assert run.session_id == session_id

    async def test_huge_events_are_kept_whole(self, store: Store) -> None:
        huge = "x" * 5_000_000
        await store.append([message("s", "small"), message("s", huge), message("s", "small")])

        assert ["small", huge, "small"] == texts(await stored(store, "s"))

    async def test_deep_events_are_kept_or_refused_but_never_unreadable(self, store: Store) -> None:
        """Whatever was acknowledged can be read again; two hundred levels must be possible."""
        kept = 0
        for depth in (10, 200, *range(280, 320), 500, 900, 990, 5_000, 100_000):
            nested: Any = []
            for _ in range(depth):
                nested = [nested]
            event = ev.ToolCallStarted(session_id="s", tool_call_id="c", tool_name="t", tool_input={"n": nested})
            refused = await kind_of_refusal(store.append([event]))
            kept += refused is None

            assert refused in ((None,) if depth <= 200 else (None, "bad_record"))
            while nested:  # undone by hand: Python itself would fall over the deepest
                nested = nested.pop()
        assert kept == len(await stored(store, "s"))

    async def test_unknown_events_are_kept_as_they_came(self, store: Store) -> None:
        """To the byte, unknown fields and their order included."""
        line = b'{"type":"from_the_future","b":1,"a":{"z":[1.5,null],"y":"\xc3\xa9"},"session_id":"s","seq":7}'
        event = ev.decode_event(line)
        assert isinstance(event, ev.Unrecognized)
        [kept] = await store.append([event])
        [read] = await stored(store, "s")

        assert line.replace(b'"seq":7', b'"seq":1') == ev.encode_event(kept)
        assert ev.encode_event(kept) == ev.encode_event(read)

    async def test_times_come_back_exactly(self, store: Store) -> None:
        at = datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
        await store.append([ev.RunStarted(session_id="s", run_id="r", at=at)])
        [event] = await stored(store, "s")
        run = await store.run("r")

        assert event.at == at
        assert run is not None
        assert run.created_at == at

    async def test_what_was_appended_can_be_changed_without_changing_the_record(self, store: Store) -> None:
        given: dict[str, Any] = {"command": "ls"}
        await store.append([ev.ToolCallStarted(session_id="s", tool_call_id="c", tool_name="bash", tool_input=given)])
        given["command"] = "rm"
        [event] = await stored(store, "s")

        assert isinstance(event, ev.ToolCallStarted)
        assert event.tool_input == {"command": "ls"}


class LogChecks(StoreChecks):
    """The log: the events of all sessions in the order in which they were stored."""

    async def test_the_log_has_every_event_in_the_order_stored(self, store: Store) -> None:
        """Of all sessions, at rising positions; from any place on, and backwards."""
        await store.append([message("s", "a", run_id="r"), message("t", "b"), message("s", "c")])
        half = await store.place()
        await store.append([message("t", "d"), message("s", "e", event_id="e")])
        await store.append([message("s", "e", event_id="e")])
        entries = await logged(store)
        positions = [entry.position for entry in entries]

        assert texts([event_of(entry) for entry in entries]) == list("abcde")
        assert [(entry.session_id, entry.seq, entry.run_id) for entry in entries[:2]] == [("s", 1, "r"), ("t", 1, "")]
        assert positions == sorted(set(positions))
        assert positions[0] > 0
        assert (await store.place()).position == positions[-1]
        assert await logged(store, after=half.position) == await logged(store, after=positions[2])
        assert texts([event_of(entry) for entry in await logged(store, after=half.position)]) == ["d", "e"]
        assert [entry.position for entry in await logged(store, newest_first=True)] == positions[::-1]
        assert await logged(store, after=positions[-1]) == []

    async def test_the_log_can_be_asked_for_one_tenants(self, store: Store) -> None:
        for tenant in ("acme", "other"):
            spec = {"context": {"tenant": tenant}}
            await store.create_run(RunInfo(run_id=tenant, session_id="s", spec=spec))
            await store.append([message("s", f"{tenant} {n}", run_id=tenant) for n in range(2)])
        late = ev.RunStarted(run_id="late", session_id="t", metadata={"context": {"tenant": "acme"}})
        await store.append([message("s", "nobody's"), late, message("t", "late", run_id="late")])
        mine = await logged(store, tenant="acme")

        assert [entry.tenant for entry in await logged(store)] == [*["acme"] * 2, *["other"] * 2, None, *["acme"] * 2]
        assert texts([event_of(entry) for entry in mine]) == ["acme 0", "acme 1", "late"]
        back = await logged(store, tenant="acme", newest_first=True)
        assert [entry.position for entry in back] == [entry.position for entry in mine][::-1]
        assert await logged(store, tenant="none") == []

    async def test_long_records_are_read_from_either_end(self, store: Store) -> None:
        """More than a page, of events small and large; a reader that has enough leaves."""
        for start in range(0, 1200, 300):
            await store.append([message("s", str(n), run_id=f"r{n % 2}") for n in range(start, start + 300)])
        await store.append([message("t", "x" * 400_000) for _ in range(5)])
        forward, back = await logged(store), await logged(store, newest_first=True)
        latest = [event.seq async for event in store.read("s", newest_first=True)]
        of_run = [event.seq async for event in store.read("s", after=1190, run_id="r1", newest_first=True)]
        events = cast(Any, store.log(newest_first=True))
        async with aclosing(events):
            assert (await anext(events)).session_id == "t"

        assert len(forward) == 1205
        assert back == forward[::-1]
        assert latest == list(range(1200, 0, -1))
        assert of_run == [1200, 1198, 1196, 1194, 1192]
        assert [event.seq for event in await stored(store, "s")] == latest[::-1]

    async def test_whoever_reads_the_log_again_and_again_misses_nothing(self, store: Store) -> None:
        """Tasks append to sessions of their own while it is read on from the last position."""
        seen: list[tuple[str, int]] = []
        left = 5

        async def append(session_id: str) -> None:
            nonlocal left
            for n in range(12):
                await store.append([message(session_id, str(n))] * (1 + n % 3))
            left -= 1

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for n in range(5):
                    tasks.start_soon(append, f"s{n}")
                position, again = 0, True
                while again:
                    again = left > 0
                    for entry in await logged(store, after=position):
                        position = entry.position
                        seen.append((entry.session_id, entry.seq))
                    await anyio.lowlevel.checkpoint()

        assert len(set(seen)) == len(seen) == 5 * 24
        for n in range(5):
            assert [seq for name, seq in seen if name == f"s{n}"] == list(range(1, 25))

    async def test_a_store_has_a_name_of_its_own_for_good(self) -> None:
        """A place of one store is none of another; opened again, it goes by the same name."""
        async with self.open_store() as store:
            place = await store.place()
            assert place.store_id
            assert (place.position, str(place)) == (0, f"{place.store_id}.0")
            await store.append([message("s", "a")])
            after = await store.place()
            assert (after.store_id, after.position > 0) == (place.store_id, True)
        if self.durable:
            async with self.open_store() as store:
                assert await store.place() == after
