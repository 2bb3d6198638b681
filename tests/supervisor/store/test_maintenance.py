"""Retention, export and import: old sessions are removed; a log exported as lines is imported unchanged."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from supervised import OPEN, around

from proctor.adapters.stores import SQLiteStore
from proctor.policies import events as ev
from proctor.supervisor import MemoryStore, RunInfo, all_runs, export_lines, import_lines, prune, run_once
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports.store import Store
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.store_fixture import message

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAYS_90 = timedelta(days=90)


@asynccontextmanager
async def store_at(path: Path | None) -> AsyncIterator[Store]:
    store: Any = MemoryStore() if path is None else SQLiteStore(path)
    try:
        yield store
    finally:
        await store.aclose()


async def add(store: Store, name: str, days: int, *more: ev.Event, over: bool = True) -> None:
    """A session of one run, this many days ago."""
    ids: Any = {"run_id": f"run_{name}", "session_id": name}
    at = NOW - timedelta(days=days)
    await store.create_run(RunInfo(created_at=at, spec={"prompt": name, "context": {"tenant": "acme"}}, **ids))
    events: list[ev.Event] = [
        ev.RunStarted(at=at, **ids),
        ev.MessageReceived(at=at, content=f"of {name}", **ids),
        *more,
    ]
    await store.append([*events, ev.RunCompleted(at=at, **ids)] if over else events)


async def lines_of(store: Store, **of: Any) -> list[bytes]:
    return [line async for line in export_lines(store, **of)]


async def test_only_sessions_that_ended_long_ago_are_removed() -> None:
    """Not newer, active or resumed ones; nor, if requested, those with violations."""
    store = MemoryStore()
    await add(store, "old", 100)
    await add(store, "young", 10)
    await add(store, "going", 100, over=False)
    await add(store, "resumed", 100)
    await add(store, "broken", 100, ev.PolicyViolated(run_id="run_broken", session_id="broken"))
    resumed: Any = {"run_id": "run_again", "session_id": "resumed", "at": NOW - timedelta(days=1)}
    await store.append([ev.RunStarted(**resumed), ev.RunCompleted(**resumed)])
    tried = await prune(store, older_than=DAYS_90, keep_violations=True, dry_run=True, now=NOW)
    there = len(await store.runs())
    kept = await prune(store, older_than=DAYS_90, keep_violations=True, by="ops", now=NOW)
    rest = await prune(store, older_than=DAYS_90, by="ops", now=NOW)
    again = await prune(store, older_than=DAYS_90, by="ops", now=NOW)

    assert there == 6
    assert tried == kept
    assert (kept.sessions, kept.runs, kept.events, kept.kept_with_violations, kept.kept_going_on) == (1, 1, 3, 1, 0)
    assert (rest.sessions, rest.kept_with_violations) == (1, 0)
    assert again.sessions == 0
    assert {run.session_id for run in await store.runs()} == {"young", "going", "resumed"}
    [left] = [event async for event in store.read("old")]
    assert isinstance(left, ev.RecordPruned)
    assert (left.seq, left.by, left.reason) == (4, "ops", "nothing was stored for more than 90 days, 0:00:00")


async def test_a_session_with_an_active_run_or_of_unknown_age_is_kept() -> None:
    """An old run ended and another is active, or its latest event has no time."""
    store = MemoryStore()
    await add(store, "s", 100)
    await store.create_run(RunInfo(run_id="waiting", session_id="s"))
    await add(store, "t", 100)
    await store.append([ev.MessageReceived(content="later", session_id="t")])
    report = await prune(store, older_than=DAYS_90, now=NOW)

    assert (report.sessions, report.kept_going_on) == (0, 1)
    assert await store.last_seq("t") == 4


async def test_a_pruned_session_cannot_be_resumed() -> None:
    """Its limits would start from zero. What remains of it is kept, however often it is pruned."""
    store = MemoryStore()
    await add(store, "s", 100)
    await prune(store, older_than=DAYS_90, now=NOW)
    for _ in range(3):
        with pytest.raises(UsageError, match="was pruned"):
            await run_once(FakeAdapter(), "go", policies=[OPEN], store=store, session_id="s")

    assert {run.status for run in await store.runs()} <= {"failed", "cancelled"}
    assert [event.type async for event in store.read("s")] == ["record_pruned"]


@pytest.mark.parametrize(("pruned", "found"), [("ed", "edcba"), ("d", "edcba"), ("", "edcba"), ("dcba", "ed")])
async def test_a_paged_list_of_runs_continues_if_the_run_at_a_pages_edge_is_pruned(
    monkeypatch: pytest.MonkeyPatch, pruned: str, found: str
) -> None:
    """From the latest remaining run. If none remains, only runs created since are new."""
    monkeypatch.setattr("proctor.supervisor.ports.store._PAGE", 2)
    store, names = MemoryStore(), ""
    for name in "abcde":
        await add(store, name, 100)
    async with aclosing(all_runs(store)) as runs:
        async for run in runs:
            names += run.session_id
            if names == "ed":
                for name in pruned:
                    left = ev.RecordPruned(session_id=name)
                    assert await store.prune(left, up_to=await store.last_seq(name))

    assert names == found


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_exported_log_is_imported_unchanged(tmp_path: Path, kind: str) -> None:
    """Byte for byte, with runs, pruned sessions and unrecognised events; repeatedly."""
    paths = (None, None) if kind == "memory" else (tmp_path / "a.db", tmp_path / "b.db")
    async with store_at(paths[0]) as store, store_at(paths[1]) as other:
        await add(store, "gone", 100)
        await prune(store, older_than=DAYS_90, now=NOW)
        await add(
            store, "a", 20, ev.Unrecognized(run_id="run_a", session_id="a", raw={"type": "news", "x": [1, None]})
        )
        await add(store, "b", 10, over=False)
        await store.create_run(RunInfo(run_id="created", session_id="c", spec={"prompt": "later"}))
        lines = await lines_of(store)
        first = await import_lines(other, lines)
        second = await import_lines(other, lines)
        there = await lines_of(other)

        assert there[1:] == lines[1:]
        assert (first.runs, first.events, first.already_there) == (3, 7, 0)
        assert (second.runs, second.events, second.already_there) == (0, 0, 7)
        assert await other.runs() == await store.runs()
        digests = [[entry.digest async for entry in one.log()] for one in (store, other)]
        assert digests[0] == digests[1]
        assert [event.seq for event in await other.append([ev.MessageReceived(session_id="gone")])] == [5]


async def test_an_interrupted_import_continues() -> None:
    """From any line, even an incomplete one: everything before it is stored. Later events are added."""
    store = MemoryStore()
    await add(store, "a", 3)
    await add(store, "b", 2)
    lines = await lines_of(store)
    for cut in range(1, len(lines) + 1):
        other = MemoryStore()
        with pytest.raises(UsageError, match=rf"line {cut + 1}: ") as raised:
            await import_lines(other, [*lines[:cut], b"{"])
        runs, events = len(await other.runs()), len([entry async for entry in other.log()])
        assert (f" {events} event" in str(raised.value)) == bool(runs)
        assert events == sum(line.startswith(b'{"event":') for line in lines[:cut])
        await import_lines(other, lines)

        assert (await lines_of(other))[1:] == lines[1:]


@pytest.mark.parametrize(("change", "message"), [
    (lambda events: events.pop(1), "line 4: event 3 of session `a` does not follow event 1: lines are missing"),
    (lambda events: events.insert(0, events.pop(1)), "line 3: event 2 of session `a` does not follow event 0"),
    (lambda events: events.insert(1, events[0].replace(b'"seq":1,', b"")), "line 4: event 0 of session `a`"),
    (lambda events: events.insert(1, events[0].replace(b"run_a", b"run_b")), "is not the one stored here"),
], ids=["missing", "exchanged", "without a number", "twice, unlike"])  # fmt: skip
async def test_a_modified_export_stores_nothing_from_the_wrong_line_on(
    change: Callable[[list[bytes]], Any], message: str
) -> None:
    """The lines before it are stored, and the unmodified export can still be imported."""
    store, other = MemoryStore(), MemoryStore()
    await add(store, "a", 3, ev.MessageReceived(session_id="a"))
    lines = await lines_of(store)
    head, changed = lines[:2], lines[2:]
    change(changed)
    with pytest.raises((UsageError, StoreError), match=message):
        await import_lines(other, [*head, *changed])
    await import_lines(other, lines)

    assert (await lines_of(other))[1:] == lines[1:]


async def test_one_session_can_be_exported() -> None:
    """Its runs and its events."""
    store, other = MemoryStore(), MemoryStore()
    await add(store, "a", 3)
    await add(store, "b", 2)
    await import_lines(other, await lines_of(store, session_id="b"))

    assert [run.run_id for run in await other.runs()] == ["run_b"]
    assert [event async for event in other.read("b")] == [event async for event in store.read("b")]


@pytest.mark.parametrize(("lines", "message"), [
    ([], "the file is empty"),
    ([b'{"type":"run_started"}'], "line 1: this is not `proctor record 1`"),
    ([b'{"format":"other"}'], "line 1: this is not `proctor record 1`"),
    ([b'{"format":"proctor record 1"}', b"{"], "line 2: not JSON"),
    ([b'{"format":"proctor record 1"}', b'{"event":{"type":"run_started","seq":"x"}}'], "line 2"),
])  # fmt: skip
async def test_lines_that_are_no_export_are_an_error(lines: list[bytes], message: str) -> None:
    """With the line number."""
    with pytest.raises(UsageError, match=message):
        await import_lines(MemoryStore(), lines)


async def test_a_session_is_removed_if_its_last_event_is_older_than_the_given_time() -> None:
    """An event at that very time is not older."""
    store = MemoryStore()
    for name, ago in (("at", timedelta()), ("before", timedelta(microseconds=1))):
        await add(store, name, 100, over=False)
        await store.append([ev.RunCompleted(run_id=f"run_{name}", session_id=name, at=NOW - DAYS_90 - ago)])
    await prune(store, older_than=DAYS_90, now=NOW)

    assert await store.run("run_at") is not None
    assert await store.run("run_before") is None


async def test_an_export_has_the_events_stored_when_it_began() -> None:
    """Including the latest, and none that are stored meanwhile."""
    store = MemoryStore()
    await add(store, "a", 1)
    before = await lines_of(store)
    lines = export_lines(store)
    taken = [await anext(lines)]
    await add(store, "b", 1)
    taken += [line async for line in lines if b'{"event"' in line]

    assert taken[1:] == [line for line in before if b'{"event"' in line]
    assert len(taken) == 4


async def with_run(session_id: str) -> MemoryStore:
    """A store with one run of four events."""
    store = MemoryStore()
    await store.create_run(RunInfo(run_id="r", session_id=session_id))
    await store.append([message(session_id, str(n), run_id="r") for n in range(4)])
    return store


async def test_an_existing_run_of_the_same_session_is_left_unchanged_by_an_import() -> None:
    """The import continues. If the run exists in another session, nothing of it is imported."""
    lines = await lines_of(await with_run("s"))
    same = await import_lines(await with_run("s"), lines)
    with pytest.raises(StoreError) as raised:
        await import_lines(await with_run("t"), lines)

    assert (same.runs, same.events, same.already_there) == (0, 0, 4)
    assert raised.value.kind == "run_exists"


async def test_a_run_that_vanishes_during_the_import_is_an_error() -> None:
    """Its session is not known."""

    async def forgets(*_: Any) -> None:
        """A run that is not there."""

    store = around(run=forgets)
    await store.create_run(RunInfo(run_id="r", session_id="s"))
    with pytest.raises(StoreError, match="exists"):
        await import_lines(store, await lines_of(await with_run("s")))


async def test_sessions_are_compared_by_one_reader_at_a_time() -> None:
    """After a gap, the reader is opened again; the previous one is closed first, and all are closed at the end."""

    class Counted(MemoryStore):
        open = most = opened = 0

        async def read(self, session_id: str, **how: Any) -> AsyncGenerator[ev.Event]:
            self.open, self.opened = self.open + 1, self.opened + 1
            self.most = max(self.most, self.open)
            try:
                read: Any = super().read(session_id, **how)
                async with aclosing(read) as events:
                    async for event in events:
                        yield event
            finally:
                self.open -= 1

    store = Counted()
    await store.append([message("s", str(n)) for n in range(9)])
    lines = await lines_of(store)
    store.most = store.opened = 0
    await import_lines(store, [lines[0], *lines[1::2]])

    assert (store.opened, store.most, store.open) == (5, 1, 0)
