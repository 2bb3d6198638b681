"""How long the record is kept: sessions that ended long ago are removed, and what was removed stays accounted for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from proctor.policies.stream.events import Event, RecordPruned

from ..arguments import check_store
from ..errors import UsageError
from ..ports.adapters import Store
from ..ports.facts import RunFilter
from .paging import all_runs, closing

_ENDED = frozenset(("completed", "failed", "cancelled"))


class PruneReport(msgspec.Struct, kw_only=True):
    """What pruning did, or would do.

    Attributes:
        sessions: How many sessions were removed.
        runs: How many runs they had.
        events: How many events they had.
        kept_going_on: How many sessions of that age were kept because a run of them is not over.
        kept_with_violations: How many were kept because a rule was broken in them.
    """

    sessions: int = 0
    runs: int = 0
    events: int = 0
    kept_going_on: int = 0
    kept_with_violations: int = 0


async def prune(
    store: Store,
    *,
    older_than: timedelta,
    keep_violations: bool = False,
    by: str = "",
    dry_run: bool = False,
    now: datetime | None = None,
) -> PruneReport:
    """Remove the sessions in which nothing was stored for a long time, and give the room back.

    A session is removed as a whole, never while a run of it goes on. One event stays in its place, `record_pruned`,
    so that no number is given twice; it cannot be resumed.

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
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise UsageError("`older_than` is a time, for example `timedelta(days=90)`")
    cutoff = (now or datetime.now(UTC)) - older_than
    reason = f"nothing was stored for more than {older_than}"
    pruning = _Pruning(store, cutoff, keep_violations, None if dry_run else RecordPruned(by=by, reason=reason))
    for session_id in await _candidates(store, cutoff):
        await pruning.take(session_id)
    if not dry_run:
        await store.compact()
    return pruning.report


async def _candidates(store: Store, cutoff: datetime) -> list[str]:
    """The sessions with a run that began before that moment and is over."""
    where = RunFilter(until=cutoff, status=_ENDED)  # type: ignore[arg-type]
    found = dict.fromkeys([run.session_id async for run in all_runs(store, where=where)])
    return list(found)[::-1]


class _Pruning:
    """Removes sessions and counts them; without an `event` to be left it only counts."""

    def __init__(self, store: Store, cutoff: datetime, keep_violations: bool, event: RecordPruned | None) -> None:
        self._store = store
        self._cutoff = cutoff
        self._keep_violations = keep_violations
        self._event = event
        self.report = PruneReport()

    async def take(self, session_id: str) -> None:
        """Remove a session, unless something was stored in it since or it is to be kept."""
        last = await _latest(self._store, session_id)
        if last is None or last.at is None or last.at >= self._cutoff:
            return
        runs = [run async for run in all_runs(self._store, session_id=session_id)]
        if any(run.status not in _ENDED for run in runs):
            self.report.kept_going_on += 1
        elif self._keep_violations and any(run.violations for run in runs):
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


async def _latest(store: Store, session_id: str) -> Event | None:
    async with closing(store.read(session_id, newest_first=True)) as events:
        async for event in events:
            return event
    return None
