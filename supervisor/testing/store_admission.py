"""The contract of a store's record of a run: each unit once, one end with nothing behind it, one start a call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
from msgspec.structs import replace

from proctor.policies.events import (
    Event,
    RunCancelled,
    RunCompleted,
    RunFailed,
    TokenUsageUpdated,
    ToolApprovalGranted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallStarted,
)

from .store_approvals import requested
from .store_fixture import StoreChecks, at_once, kind_of_refusal, message, run_of, stored, texts
from .store_runs import begun, owner

_IDS: Any = {"run_id": "r", "session_id": "s"}


def unit(start: int, *events: Event) -> list[Event]:
    """Events of the run, as its owner appends them: each with the seq at which it belongs."""
    return [replace(event, seq=seq, **_IDS) for seq, event in enumerate(events, start)]


def start(call_id: str = "c", **input: Any) -> Event:
    """The start of a call."""
    return ToolCallStarted(tool_call_id=call_id, tool_name="t", tool_input=input, **_IDS)


class AdmittingChecks(StoreChecks):
    """Checks of the record of a run that a store admits."""

    async def test_a_unit_appended_again_is_stored_once(self) -> None:
        """It is answered as it was the first time, however often and whatever the unit is made of."""
        events = [message("s", "same"), message("s", "same"), TokenUsageUpdated(input_tokens=5, **_IDS), start()]
        async with self.open_store() as store:
            epoch = await owner(store)
            await begun(store, epoch, "r", "s")
            first = await store.append(unit(2, *events), epoch=epoch)
            again = [await store.append(unit(2, *events), epoch=epoch) for _ in range(2)]
            run = await run_of(store, "r")

            assert [event.seq for event in first] == [2, 3, 4, 5]
            assert again == [first, first]
            assert (await stored(store, "s"))[1:] == first
            assert (run.calls, run.usage.input_tokens) == (1, 5)

    async def test_a_unit_appended_by_many_at_once_is_stored_once(self) -> None:
        """An answer that is late, and the same asked again; two stores on one record, where there can be."""
        async with self.open_store() as one, self.open_store() as other:
            stores = (one, other if self.durable else one)
            epoch = await owner(one)
            await begun(one, epoch, "r", "s")
            found: list[Sequence[Event]] = []

            async def append(n: int) -> None:
                found.append(await stores[n % 2].append(unit(2, message("s", "a"), message("s", "a")), epoch=epoch))

            await at_once(append, range(8))

            assert [[event.seq for event in events] for events in found] == [[2, 3]] * 8
            assert texts(await stored(one, "s")) == ["a", "a"]

    async def test_a_unit_appended_again_with_more_behind_it_has_the_rest_stored(self) -> None:
        """Its own event ids are known as ever."""
        async with self.open_store() as store:
            epoch = await owner(store)
            await begun(store, epoch, "r", "s")
            await store.append(unit(2, message("s", "old", event_id="e0")), epoch=epoch)
            events = [message("s", "a"), message("s", "-", event_id="e0"), message("s", "b", event_id="e1")]
            first = await store.append(unit(3, *events), epoch=epoch)
            more = await store.append(unit(3, *events, message("s", "c"), RunCompleted()), epoch=epoch)
            whole = await store.append(unit(3, *events, message("s", "c"), RunCompleted()), epoch=epoch)

            assert [event.seq for event in first] == [3, 2, 4]
            assert [event.seq for event in more] == [3, 2, 4, 5, 6]
            assert more == whole
            assert texts(await stored(store, "s")) == ["old", "a", "b", "c"]
            assert (await run_of(store, "r")).status == "completed"

    async def test_an_append_that_was_cancelled_and_is_made_again_is_stored_once(self) -> None:
        """Whether it was stored or not."""
        async with self.open_store() as store:
            epoch = await owner(store)
            await begun(store, epoch, "r", "s")
            for n in range(2, 12):
                with anyio.move_on_after(0.0001 * n):
                    await store.append(unit(n, message("s", "x")), epoch=epoch)
                await store.append(unit(n, message("s", "x")), epoch=epoch)

            assert [event.seq for event in await stored(store, "s")] == list(range(1, 12))

    async def test_an_owner_that_appends_something_else_at_a_place_that_is_taken_is_refused(self) -> None:
        """It is not the one writer of its run that it takes itself for."""
        async with self.open_store() as store:
            epoch = await owner(store)
            await begun(store, epoch, "r", "s")
            await store.append(unit(2, message("s", "a"), message("s", "b")), epoch=epoch)
            other = store.append(unit(2, message("s", "a"), message("s", "other")), epoch=epoch)

            assert await kind_of_refusal(other) == "conflict"
            assert texts(await stored(store, "s")) == ["a", "b"]

    async def test_what_others_stored_meanwhile_is_no_part_of_a_unit(self) -> None:
        """Its place is a guess as long as nothing of its run is there."""
        async with self.open_store() as store:
            epoch = await owner(store)
            await begun(store, epoch, "r", "s")
            await store.append([message("s", "a")])
            first = await store.append(unit(2, message("s", "a"), message("s", "b")), epoch=epoch)
            again = await store.append(unit(2, message("s", "a"), message("s", "b")), epoch=epoch)

            assert [event.seq for event in first] == [3, 4]
            assert again == first
            assert texts(await stored(store, "s")) == ["a", "a", "b"]

    async def test_a_run_ends_once(self) -> None:
        """A second end is refused, in the same append, in a later one, and by whoever else comes."""
        async with self.open_store() as store:
            epoch = await owner(store)
            await begun(store, epoch, "r", "s")
            twice = store.append([RunCompleted(**_IDS), RunFailed(**_IDS)], epoch=epoch)
            assert await kind_of_refusal(twice) == "run_over"
            assert (await run_of(store, "r")).status == "running"
            await store.append([RunCompleted(**_IDS)], epoch=epoch)
            for end in (RunCompleted(**_IDS), RunFailed(**_IDS), RunCancelled(**_IDS)):
                assert await kind_of_refusal(store.append([end], epoch=epoch)) == "run_over"

            assert (await run_of(store, "r")).status == "completed"
            assert await store.last_seq("s") == 2

    async def test_nothing_of_a_run_comes_after_its_end(self) -> None:
        """But an answer to what it was ended to ask. Other runs and the session go on."""
        async with self.open_store() as store:
            await store.append([requested("r.1", held=False)])
            behind = store.append([RunCancelled(**_IDS), message("s", "late", run_id="r")])
            assert await kind_of_refusal(behind) == "run_over"
            await store.append([RunCancelled(**_IDS)])
            for late in (message("s", "late", run_id="r"), start(), TokenUsageUpdated(input_tokens=1, **_IDS)):
                assert await kind_of_refusal(store.append([message("t", "x", run_id="q"), late])) == "run_over"
            at = datetime(2026, 1, 1, tzinfo=UTC)
            given = ToolApprovalGranted(approval_id="r.1", tool_call_id="c", tool_name="t", by="ana", at=at, **_IDS)
            await store.append([given, message("s", "next", run_id="r2"), message("s", "nobody's")])

            assert texts(await stored(store, "s")) == ["next", "nobody's"]
            assert await store.last_seq("t") == 0

    async def test_a_call_starts_once_until_it_is_over(self) -> None:
        """In one append and in two; with another input it is the same call, judged again. Then its id is free."""
        overs = (ToolCallCompleted, ToolCallFailed, ToolCallDenied)
        async with self.open_store() as store:
            epoch = await owner(store)
            await begun(store, epoch, "r", "s")
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
            other = ToolCallStarted(tool_call_id="c", tool_name="t", run_id="q", session_id="s-q")
            await store.append([other], epoch=epoch)

            assert (await run_of(store, "r")).calls == 7
            assert (await run_of(store, "q")).calls == 1

    async def test_calls_in_flight_outlive_the_store_object(self) -> None:
        """Opened again, it knows them."""
        if not self.durable:
            return
        async with self.open_store() as store:
            epoch = await owner(store)
            await begun(store, epoch, "r", "s")
            await store.append([start()], epoch=epoch)
        async with self.open_store() as store:
            assert await kind_of_refusal(store.append([start()], epoch=epoch)) == "call_started"
            await store.append([ToolCallCompleted(tool_call_id="c", tool_name="t", **_IDS), start()], epoch=epoch)
