"""Retention, export and import: old sessions are removed, each leaving an event that says what was removed."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.events import Event, RecordPruned, decode_event
from proctor.policies.values.amounts import counted
from proctor.policies.values.json_values import NOT_JSON, json_words

from ..arguments import check_store, moment_before
from ..errors import StoreError, UsageError
from ..ports.store import EventLog, RunRegistry, Store, all_runs, closing
from ..ports.stored_types import RunFilter, RunInfo, RunStatus
from ..redaction import Redactor
from .invariants import BEGUN_ELSEWHERE, FLEET
from .records import Status

_ENDED: frozenset[RunStatus] = frozenset(get_args(Status))


class PruneReport(msgspec.Struct, kw_only=True):
    """The result of pruning, or of a dry run.

    Attributes:
        sessions: How many sessions were removed.
        runs: How many runs they had.
        events: How many events they had.
        kept_going_on: How many sessions of that age were kept because a run of them is not over.
        kept_with_violations: How many were kept because a rule was broken in them.
        kept_unreadable: How many were kept because their latest event cannot be read.
    """

    sessions: int = 0
    runs: int = 0
    events: int = 0
    kept_going_on: int = 0
    kept_with_violations: int = 0
    kept_unreadable: int = 0


async def prune(
    store: Store,
    *,
    older_than: timedelta,
    keep_violations: bool = False,
    by: str = "",
    dry_run: bool = False,
    now: datetime | None = None,
) -> PruneReport:
    """Remove the sessions in which nothing was stored for a long time, and free their space.

    A session is removed as a whole, never while a run of it goes on, and cannot be resumed. One event stays in its
    place, `record_pruned`, so that no number is given twice.

    Args:
        store: the store.
        older_than: how long nothing was stored.
        keep_violations: keep sessions in which a rule was broken.
        by: who removes them; recorded.
        dry_run: only say what would be removed.
        now: the moment to count back from; the present one by default.

    Raises:
        UsageError: `older_than` is not a length of time.
        StoreError: the store cannot be read or written.
    """
    check_store(store)
    cutoff = moment_before(now, older_than)
    reason = f"nothing was stored for more than {older_than}"
    pruning = _Pruning(store, cutoff, keep_violations, None if dry_run else RecordPruned(by=by, reason=reason))
    for session_id in await _candidates(store, cutoff):
        await pruning.prune(session_id)
    if not dry_run:
        await store.compact()
    return pruning.report


async def _candidates(store: RunRegistry, cutoff: datetime) -> list[str]:
    """The sessions with a run that began before that moment and is over."""
    where = RunFilter(until=cutoff, status=_ENDED)
    found = dict.fromkeys([run.session_id async for run in all_runs(store, where=where)])
    return list(found)[::-1]


class _Pruning:
    """Removes sessions and counts them; without an `event` to leave in their place, it only counts."""

    def __init__(self, store: Store, cutoff: datetime, keep_violations: bool, event: RecordPruned | None) -> None:
        self._store = store
        self._cutoff = cutoff
        self._keep_violations = keep_violations
        self._event = event
        self.report = PruneReport()

    async def prune(self, session_id: str) -> None:
        """Remove a session, unless something was stored in it since or it is to be kept."""
        try:
            last = await _latest(self._store, session_id)
        except StoreError as error:
            if error.kind != "corrupt":
                raise
            self.report.kept_unreadable += 1
            return
        if last is None or last.at is None or last.at >= self._cutoff:
            return
        runs = [run async for run in all_runs(self._store, session_id=session_id)]
        if any(run.status not in _ENDED for run in runs):
            self.report.kept_going_on += 1
        elif self._keep_violations and any(run.violations or run.unreadable for run in runs):
            self.report.kept_with_violations += 1
        elif self._event is None:
            self._count(len(runs), last.seq)
        else:
            await self._remove(msgspec.structs.replace(self._event, session_id=session_id), last.seq)

    async def _remove(self, event: RecordPruned, last_seq: int) -> None:
        event = msgspec.structs.replace(event, at=datetime.now(UTC))
        left = await self._store.prune(event, up_to=last_seq)
        if left is None:  # a run of it began meanwhile
            self.report.kept_going_on += 1
        else:
            self._count(left.runs, left.events)

    def _count(self, runs: int, events: int) -> None:
        self.report.sessions += 1
        self.report.runs += runs
        self.report.events += events


async def _latest(store: EventLog, session_id: str) -> Event | None:
    async with closing(store.read(session_id, newest_first=True)) as events:
        async for event in events:
            return event
    return None


FORMAT = "proctor record 1"
_BATCH = 500
_MOST_READERS = 64
"""How many existing sessions are read at once, to compare their events with the imported ones."""

_encode = msgspec.json.Encoder().encode


class _Head(msgspec.Struct, frozen=True):
    format: str = ""
    store: str = ""


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was created; everything else of it follows from its events. `status` says only whether it had
    begun: its events are imported later, and no worker is to start it before, or if the import is interrupted.
    """

    run_id: str
    session_id: str
    provider: str = ""
    created_at: Any = None
    spec: dict[str, Any] = {}
    status: str = "created"


class _Line(msgspec.Struct, frozen=True):
    run: RunInfo | None = None
    event: msgspec.Raw = msgspec.Raw()


_head = msgspec.json.Decoder(_Head).decode
_line = msgspec.json.Decoder(_Line).decode


class ImportReport(msgspec.Struct, kw_only=True):
    """The result of an import.

    Attributes:
        runs: How many runs were stored.
        events: How many events were stored.
        already_there: How many events were there already.
    """

    runs: int = 0
    events: int = 0
    already_there: int = 0


async def export_lines(store: Store, *, session_id: str | None = None) -> AsyncGenerator[bytes, None]:
    """The event log of a store, or of one session, as lines: a header, the runs in the order they were created, the
    events in the order they were stored.

    Events stored meanwhile may be missing. Events are exact; secrets are redacted in what a run was created with: a
    run that has not started may have another prompt once imported.

    Args:
        store: the store to export.
        session_id: export this session only.
    """
    check_store(store)
    redactor = Redactor()
    place = await store.place()
    yield _encode(_Head(format=FORMAT, store=str(place))) + b"\n"
    run_ids = [run.run_id async for run in all_runs(store, session_id=session_id)]
    for run_id in reversed(run_ids):
        run = await store.run(run_id)
        if run is not None:
            yield b'{"run":' + _encode(redactor.redact(_exported(run), run.session_id)) + b"}\n"
    async with closing(store.log()) as entries:
        async for entry in entries:
            if entry.position > place.position:
                return
            if session_id in (None, entry.session_id):
                yield b'{"event":' + entry.data + b"}\n"


async def import_lines(store: Store, lines: Iterable[bytes]) -> ImportReport:
    """Store the lines of an export. What is stored already stays, so an interrupted import can be repeated.

    Args:
        store: the store to import into.
        lines: the lines, the header first.

    Raises:
        UsageError: the lines are no export; those before the wrong one are stored.
        StoreError: a session of that id has another record (`conflict`), or it cannot be stored.
    """
    check_store(store)
    number = 0
    async with aclosing(_Import(store)) as importing:
        for number, line in enumerate(lines, 1):
            try:
                if number == 1:
                    if _head(line.removeprefix(codecs.BOM_UTF8)).format != FORMAT:
                        raise UsageError(f"line 1: this is not `{FORMAT}`; `proctor export` writes one")
                elif line.strip():
                    await importing.add(_line(line))
            except (EventError, *NOT_JSON) as error:
                await importing.flush()
                raise UsageError(f"line {number}: {json_words(error)}{_so_far(importing.report)}") from None
        await importing.flush()
    if number == 0:
        raise UsageError("the file is empty; `proctor export` writes a first line even if nothing is stored")
    return importing.report


def _so_far(report: ImportReport) -> str:
    if not (report.runs or report.events):
        return ""
    stored = f"{counted(report.runs, 'run')} and {counted(report.events, 'event')}"
    return f"; of the lines before it {stored} are stored, so mend the file and import it again"


class _Import:
    """Appends events in batches, in their order, under their own numbers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batch: list[Event] = []
        self._last: dict[str, int] = {}
        self._readers: dict[str, AsyncIterator[Event]] = {}
        self.report = ImportReport()

    async def add(self, line: _Line) -> None:
        """Take one line. Raises EventError for an event that does not follow those of its session so far."""
        if line.run is not None:
            await self._create(line.run)
        if data := bytes(line.event):
            event = decode_event(data)
            last = await self._last_seq(event.session_id)
            if 0 < event.seq <= last:
                self.report.already_there += 1
                await self._compare(event)
            elif event.seq == last + 1 or (event.seq > 0 == last and isinstance(event, RecordPruned)):
                self._batch.append(event)
                self._last[event.session_id] = event.seq
            else:
                why = f"does not follow event {last}: lines are missing, or in another order"
                raise EventError(f"event {event.seq} of session `{event.session_id}` {why}")
            if len(self._batch) >= _BATCH:
                await self.flush()

    async def flush(self) -> None:
        batch, self._batch = self._batch, []
        for event, stored in zip(batch, await self._store.append(batch) if batch else (), strict=True):
            if stored.seq != event.seq:
                raise _conflict(event)
        self.report.events += len(batch)

    async def _create(self, run: RunInfo) -> None:
        try:
            await self._store.create_run(_imported(run))
        except StoreError as error:
            if error.kind != "run_exists":
                raise
            stored = await self._store.run(run.run_id)
            if stored is None or stored.session_id != run.session_id:
                raise
        else:
            self.report.runs += 1

    async def _last_seq(self, session_id: str) -> int:
        """The number of the session's latest event, stored or taken."""
        if session_id not in self._last:
            self._last[session_id] = await self._store.last_seq(session_id)
        return self._last[session_id]

    async def _compare(self, event: Event) -> None:
        """Raises StoreError if another event is stored at its place; pruned events are not compared."""
        if any(taken.session_id == event.session_id for taken in self._batch):
            await self.flush()
        reader = self._readers.pop(event.session_id, None)
        stored = None if reader is None else await anext(reader, None)
        if reader is None or stored is None or stored.seq != event.seq:
            await _close(reader)
            reader = self._store.read(event.session_id, after=event.seq - 1)
            stored = await anext(reader, None)
        self._readers[event.session_id] = reader
        if len(self._readers) > _MOST_READERS:
            await _close(self._readers.pop(next(iter(self._readers))))
        if stored is not None and stored.seq == event.seq and stored != event:
            raise _conflict(event)

    async def aclose(self) -> None:
        for reader in self._readers.values():
            await _close(reader)


def _exported(run: RunInfo) -> _Run:
    """The fields a run was created with."""
    spec = {name: value for name, value in run.spec.items() if name != BEGUN_ELSEWHERE}
    return _Run(
        run_id=run.run_id,
        session_id=run.session_id,
        provider=run.provider,
        created_at=run.created_at,
        spec=spec,
        status="created" if run.status == "created" and BEGUN_ELSEWHERE not in run.spec else "running",
    )


def _imported(run: RunInfo) -> RunInfo:
    """A run as it is created here."""
    begun = {BEGUN_ELSEWHERE: True} if run.status != "created" and FLEET in run.spec else {}
    return RunInfo(
        run_id=run.run_id,
        session_id=run.session_id,
        provider=run.provider,
        created_at=run.created_at,
        spec={**run.spec, **begun},
    )


async def _close(reader: AsyncIterator[Event] | None) -> None:
    if isinstance(reader, AsyncGenerator):
        await reader.aclose()


def _conflict(event: Event) -> StoreError:
    return StoreError(
        f"event {event.seq} of session `{event.session_id}` is not the one stored here; import into another store",
        kind="conflict",
    )
