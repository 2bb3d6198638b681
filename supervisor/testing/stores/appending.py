"""How events are stored: seqs without gaps, batches as one unit, event ids once."""

from __future__ import annotations

from typing import Any, cast

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from proctor.policies.stream.events import Event
from proctor.supervisor.ports.adapters import Store

from ..patience import PATIENCE_S
from .checks import StoreChecks, at_once, kind_of_refusal, message, stored, texts


class AppendingChecks(StoreChecks):
    """How events are stored: seqs without gaps, batches as one unit, event ids once."""

    async def test_seqs_count_from_one_in_the_order_appended(self) -> None:
        """The events come back stamped, and are read as they came back."""
        async with self.open_store() as store:
            first = await store.append([message("s", "a"), message("s", "b")])
            second = await store.append([message("s", "c")])

            assert [event.seq for event in first + second] == [1, 2, 3]
            assert first + second == await stored(store, "s")
            assert await store.last_seq("s") == 3

    async def test_a_seq_that_an_event_brings_along_is_a_guess_only(self) -> None:
        """It is stored with the next one of its session."""
        async with self.open_store() as store:
            await store.append([message("s", "a")])
            events = await store.append([replace(message("s", text), seq=7) for text in "bc"])

            assert [event.seq for event in events] == [2, 3]
            assert [event.seq for event in await stored(store, "s")] == [1, 2, 3]

    async def test_sessions_count_apart_from_each_other(self) -> None:
        """One batch may hold the events of several sessions."""
        async with self.open_store() as store:
            batch = await store.append([message("s", "a"), message("t", "b"), message("s", "c")])

            assert [event.seq for event in batch] == [1, 1, 2]
            assert texts(await stored(store, "s")) == ["a", "c"]
            assert texts(await stored(store, "t")) == ["b"]

    async def test_an_empty_batch_stores_nothing(self) -> None:
        """It is not an error either."""
        async with self.open_store() as store:
            assert await store.append([]) == []

    async def test_concurrent_appends_leave_no_gap(self) -> None:
        """Many tasks append to few sessions: every seq once, each task's own events in its order."""
        async with self.open_store() as store:
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

    async def test_a_batch_is_not_torn_apart_by_others(self) -> None:
        """The events of one batch have consecutive seqs, whoever appends meanwhile."""
        async with self.open_store() as store:
            results: list[list[Event]] = []

            async def append(task: int) -> None:
                results.append(await store.append([message("s", f"{task}:{n}") for n in range(7)]))

            await at_once(append, range(15))
            for batch in results:
                first = batch[0].seq
                assert list(range(first, first + 7)) == [event.seq for event in batch]

    async def test_a_repeated_event_id_is_stored_once(self) -> None:
        """The stored event comes back in place of its repetition, and the seqs have no gap."""
        async with self.open_store() as store:
            [first] = await store.append([message("s", "a", event_id="e1")])
            again = await store.append([message("s", "other", event_id="e1"), message("s", "b", event_id="e2")])

            assert again[0] == first
            assert [event.seq for event in again] == [1, 2]
            assert texts(await stored(store, "s")) == ["a", "b"]

    async def test_an_event_id_repeated_within_a_batch_is_stored_once(self) -> None:
        """The first of them is kept."""
        async with self.open_store() as store:
            batch = await store.append([message("s", text, event_id="e1") for text in "abc"])

            assert [event.seq for event in batch] == [1, 1, 1]
            assert texts(await stored(store, "s")) == ["a"]

    async def test_an_event_id_counts_within_its_session_only(self) -> None:
        """Another session may use the same, and events without one are never repetitions."""
        async with self.open_store() as store:
            await store.append([message("s", "a", event_id="e1"), message("t", "b", event_id="e1")])
            await store.append([message("s", "c"), message("s", "c")])

            assert texts(await stored(store, "s")) == ["a", "c", "c"]
            assert texts(await stored(store, "t")) == ["b"]

    async def test_the_same_event_appended_by_many_tasks_is_stored_once(self) -> None:
        """All of them are told the same seq."""
        async with self.open_store() as store:
            seqs: list[int] = []

            async def append(task: int) -> None:
                batch = await store.append([message("s", f"{task}"), message("s", "same", event_id="e1")])
                seqs.append(batch[1].seq)

            await at_once(append, range(10))

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

            assert kinds == ["bad_record"] * 3
            assert texts(await stored(store, "s")) == ["kept"]
            assert await store.last_seq("s") == 1

    async def test_a_cancelled_append_disturbs_nobody(self) -> None:
        """It is stored whole or not at all; the others are stored, without a gap."""
        async with self.open_store() as store:
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
