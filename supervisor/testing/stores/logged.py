"""The log: the events of all sessions in the order in which they were stored."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, cast

import anyio
import anyio.lowlevel

from proctor.policies.stream.events import RunStarted
from proctor.supervisor.ports.adapters import LogEntry, RunInfo, Store
from proctor.supervisor.store.codec import event_of

from ..patience import PATIENCE_S
from .checks import StoreChecks, kind_of_refusal, message, stored, texts


async def _logged(store: Store, **how: Any) -> list[LogEntry]:
    return [entry async for entry in store.log(**how)]


class LogChecks(StoreChecks):
    """The log: the events of all sessions in the order in which they were stored."""

    async def test_the_log_has_every_event_in_the_order_stored(self) -> None:
        """Of all sessions, at rising positions; from any place on, and backwards."""
        async with self.open_store() as store:
            await store.append([message("s", "a", run_id="r"), message("t", "b"), message("s", "c")])
            half = await store.place()
            await store.append([message("t", "d"), message("s", "e", event_id="e")])
            await store.append([message("s", "e", event_id="e")])
            entries = await _logged(store)
            positions = [entry.position for entry in entries]

            assert texts([event_of(entry) for entry in entries]) == list("abcde")
            assert [(entry.session_id, entry.seq, entry.run_id) for entry in entries[:2]] == [
                ("s", 1, "r"),
                ("t", 1, ""),
            ]
            assert positions == sorted(set(positions))
            assert positions[0] > 0
            assert (await store.place()).position == positions[-1]
            assert await _logged(store, after=half.position) == await _logged(store, after=positions[2])
            assert texts([event_of(entry) for entry in await _logged(store, after=half.position)]) == ["d", "e"]
            assert [entry.position for entry in await _logged(store, newest_first=True)] == positions[::-1]
            assert await _logged(store, after=positions[-1]) == []

    async def test_the_log_can_be_asked_for_one_tenants(self) -> None:
        """Whose a run is, is said of each event."""
        async with self.open_store() as store:
            for tenant in ("acme", "other"):
                spec = {"context": {"tenant": tenant}}
                await store.create_run(RunInfo(run_id=tenant, session_id="s", spec=spec))
                await store.append([message("s", f"{tenant} {n}", run_id=tenant) for n in range(2)])
            late = RunStarted(run_id="late", session_id="t", metadata={"context": {"tenant": "acme"}})
            await store.append([message("s", "nobody's"), late, message("t", "late", run_id="late")])
            mine = await _logged(store, tenant="acme")

            assert [entry.tenant for entry in await _logged(store)] == [
                *["acme"] * 2,
                *["other"] * 2,
                None,
                *["acme"] * 2,
            ]
            assert texts([event_of(entry) for entry in mine]) == ["acme 0", "acme 1", "late"]
            back = await _logged(store, tenant="acme", newest_first=True)
            assert [entry.position for entry in back] == [entry.position for entry in mine][::-1]
            assert await _logged(store, tenant="none") == []

    async def test_long_records_are_read_from_either_end(self) -> None:
        """More than a page, of events small and large; a reader that has enough leaves."""
        async with self.open_store() as store:
            for start in range(0, 1200, 300):
                await store.append([message("s", str(n), run_id=f"r{n % 2}") for n in range(start, start + 300)])
            await store.append([message("t", "x" * 400_000) for _ in range(5)])
            forward, back = await _logged(store), await _logged(store, newest_first=True)
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

    async def test_whoever_reads_the_log_again_and_again_misses_nothing(self) -> None:
        """Tasks append to sessions of their own while it is read on from the last position."""
        async with self.open_store() as store:
            seen: list[tuple[str, int]] = []
            left = 5

            async def append(session_id: str) -> None:
                nonlocal left
                for n in range(30):
                    await store.append([message(session_id, str(n))] * (1 + n % 3))
                left -= 1

            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    for n in range(5):
                        tasks.start_soon(append, f"s{n}")
                    position, again = 0, True
                    while again:
                        again = left > 0
                        for entry in await _logged(store, after=position):
                            position = entry.position
                            seen.append((entry.session_id, entry.seq))
                        await anyio.lowlevel.checkpoint()

            assert len(set(seen)) == len(seen) == 5 * 60
            for n in range(5):
                assert [seq for name, seq in seen if name == f"s{n}"] == list(range(1, 61))

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

    async def test_a_closed_store_has_no_log(self) -> None:
        """It says so."""
        async with self.open_store() as store:
            await store.aclose()

            assert await kind_of_refusal(_logged(store)) == "closed"
            assert await kind_of_refusal(store.place()) == "closed"
