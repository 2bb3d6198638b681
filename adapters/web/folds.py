"""Recorded runs judged again: their decisions with every step, and the use of their limits.

A run is folded as far as it is recorded, and the result is kept, so that asking again costs only what came
since. The folding happens in a thread, so that the server can answer others meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from datetime import UTC, datetime

import anyio
import anyio.to_thread

from proctor.adapters.evaluate.folding import Explained, Recorded, Refold, recorded
from proctor.policies.monitor.usage.limits import LimitUse
from proctor.policies.stream.events import TERMINAL, Event, RunStarted
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapters import RunInfo, Store
from proctor.supervisor.store.paging import closing

REMEMBERED = 24
"""Runs whose folds are kept."""
MOST_DECISIONS = 2_000
"""Of one run, the latest."""
_CHUNK = 500


class Fold:
    """One run folded so far."""

    def __init__(self, run: RunInfo, was: Recorded) -> None:
        self.run = run
        self.was = was
        self.decisions: deque[Explained] = deque(maxlen=MOST_DECISIONS)
        self.decided = 0
        self.lock = anyio.Lock()
        self.over = False
        self._refold: Refold | None = None
        self._seq = 0

    async def catch_up(self, store: Store) -> None:
        """Fold what has been recorded since."""
        chunk: list[Event] = []
        async for event in store.read(self.run.session_id, after=self._seq):
            chunk.append(event)
            if len(chunk) >= _CHUNK:
                await anyio.to_thread.run_sync(self._take, chunk)
                chunk = []
        if chunk:
            await anyio.to_thread.run_sync(self._take, chunk)

    def limits(self) -> tuple[LimitUse, ...]:
        """The use of each limit; for a run that is not over, as of now."""
        monitor = self.refold().monitor
        if self.over or not monitor.state.clocked:
            return monitor.limits()
        now = self.refold().copy()
        now.tick(round(datetime.now(UTC).timestamp() * 1000))
        return now.limits()

    def refold(self) -> Refold:
        """Where the folding stands. Raises PolicyError where another version wrote the policies."""
        if self._refold is None:
            self._refold = Refold(self.was.compiled(), self.was.context, self.was.tools)
        return self._refold

    def _take(self, events: list[Event]) -> None:
        refold = self.refold()
        for event in events:
            if self.over:
                return
            step = refold.take(event)
            self._seq = event.seq
            if event.run_id == self.run.run_id:
                if step is not None:
                    self.decided += 1
                    self.decisions.append(step)
                self.over = isinstance(event, TERMINAL)


class Folds:
    """The folds of the runs that were requested last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._folds: OrderedDict[str, Fold] = OrderedDict()

    async def of(self, run: RunInfo) -> Fold:
        """A run folded as far as it is recorded. Raises UsageError for a run that has not started."""
        fold = self._folds.get(run.run_id)
        if fold is None:
            start = await self.start_of(run)
            if start is None:
                raise UsageError(f"run `{run.run_id}` has not started: nothing was judged")
            fold = self._folds.setdefault(run.run_id, Fold(run, recorded([start])))
        self._folds.move_to_end(run.run_id)
        while len(self._folds) > REMEMBERED:
            self._folds.popitem(last=False)
        async with fold.lock:
            if not fold.over:
                await fold.catch_up(self._store)
        return fold

    async def start_of(self, run: RunInfo) -> RunStarted | None:
        """How a run began."""
        if not run.started_seq:
            return None
        async with closing(self._store.read(run.session_id, after=run.started_seq - 1)) as events:
            async for event in events:
                return event if isinstance(event, RunStarted) else None
        return None
