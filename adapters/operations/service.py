"""The queries to the store: the only file here that knows how runs, approvals and ends are kept."""

from __future__ import annotations

from collections import OrderedDict, deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio

from proctor.policies.events import TERMINAL, RunStarted
from proctor.supervisor.control.kill_switch import KillSwitch
from proctor.supervisor.control.ownership import reap_run
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.stored_types import NOT_OVER, Cancel
from proctor.supervisor.redaction import Redactor
from proctor.supervisor.store.run_index import closing
from proctor.supervisor.watch.subscriptions import Subscriptions

from ..evaluate.fold import Refold, recorded
from ..kit.process_tree import end_remains

if TYPE_CHECKING:
    from proctor.policies.events import Event
    from proctor.policies.events.run_context import Tool
    from proctor.policies.monitor.limit_checker import LimitUse
    from proctor.supervisor.ports.store import Store
    from proctor.supervisor.ports.stored_types import ApprovalRequest, RunFilter, RunInfo, StoredApproval

    from ..evaluate.fold import Explained, Recorded
    from .identities import Identity


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


TABLES_KEPT = 256


MOST_SEARCHED = 5_000
"""Runs that one search looks at."""


MOST_COUNTED = 1_000
"""Waiting calls that are counted."""


class MissingError(UsageError):
    """It is not in the store."""

    code = "not_found"


class ConflictError(UsageError):
    """It is too late."""

    code = "conflict"


def _words_of(run: RunInfo) -> str:
    words = (run.run_id, run.session_id, run.provider, run.spec.get("prompt", ""), run.tenant or "")
    return "\n".join(map(str, words)).casefold()


class WebRecords:
    """A store, as the page and the API query it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folds = Folds(store)
        self.subscribe = Subscriptions(store).subscribe
        self.switch = KillSwitch(store, remains=end_remains)
        self._redactor = Redactor()
        self._tools: OrderedDict[str, tuple[Tool, ...]] = OrderedDict()

    async def run(self, run_id: str) -> RunInfo:
        """A run. Raises MissingError."""
        found = await self.store.run(run_id)
        if found is None:
            raise MissingError(f"there is no run `{run_id}`")
        return self._shown(found)

    async def runs(
        self, where: RunFilter, *, session_id: str | None, words: str, before: str | None, limit: int
    ) -> tuple[list[RunInfo], str | None]:
        """A page of runs, newest first, and the `before` of the next page.

        `words` are searched for in ids, prompt, agent and tenant, over a bounded number of runs: a page may hold
        few or none although later ones match.
        """
        if before is not None and await self.store.run(before) is None:
            raise UsageError(f"`before` is not a run: `{before}`")
        if not words:
            found = await self.store.runs(limit=limit + 1, session_id=session_id, before=before, where=where)
            return [*map(self._shown, found[:limit])], found[limit - 1].run_id if len(found) > limit else None
        wanted, found = words.casefold(), []
        page = await self.store.runs(limit=MOST_SEARCHED, session_id=session_id, before=before, where=where)
        for run in map(self._shown, page):  # before it is searched: what is hidden cannot be guessed bit by bit
            if wanted in _words_of(run):
                found.append(run)
                if len(found) == limit:
                    return found, run.run_id
        return found, page[-1].run_id if len(page) == MOST_SEARCHED else None

    def _shown(self, run: RunInfo) -> RunInfo:
        """A run without secrets: the store keeps the exact prompt of one that was created to be run later."""
        return self._redactor.redact(run, run.session_id)

    async def events(self, session_id: str, *, run_id: str | None, after: int, limit: int) -> list[Event]:
        """Events with seq > `after`, up to a limit. Raises MissingError for a session that does not exist."""
        if not await self.store.runs(limit=1, session_id=session_id):
            raise MissingError(f"there is no session `{session_id}`")
        found: list[Event] = []
        async with closing(self.store.read(session_id, after=after, run_id=run_id)) as events:
            async for event in events:
                found.append(event)
                if len(found) == limit:
                    break
        return found

    async def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a person, oldest first, up to a bound."""
        return [approval.request for approval in await self.store.approvals(limit=MOST_COUNTED)]

    async def approval(self, approval_id: str) -> StoredApproval:
        """An approval with its current state. Raises MissingError."""
        found = await self.store.approval(approval_id)
        if found is None:
            raise MissingError(f"there is no approval `{approval_id}`")
        return found

    async def tools_of(self, run_id: str) -> tuple[Tool, ...]:
        """The tools of a run's client, if they are known."""
        if run_id not in self._tools:
            run = await self.run(run_id)
            start = await self.folds.start_of(run)
            events = [start] if start is not None else []
            self._tools[run_id] = recorded(events).tools
            while len(self._tools) > TABLES_KEPT:
                self._tools.popitem(last=False)
        return self._tools[run_id]

    async def cancel(self, run: RunInfo, *, reason: str, who: Identity) -> None:
        """End a run: its owner is told to end it; if the owner is gone, it is ended here. Raises ConflictError if
        it is over.
        """
        if run.status == "lost" and await reap_run(self.store, run, remains=end_remains):
            return
        if run.status not in NOT_OVER:
            raise ConflictError(f"run `{run.run_id}` is over: it is {run.status}")
        order = Cancel(scope="run", value=run.run_id, by=who.name, reason=reason, at=datetime.now(UTC))
        await self.store.instruct(order)


_MANY = 100


async def run_named(store: Store, name: str) -> RunInfo:
    """The run of that id, or the one run whose id begins so; `last` is the newest. Raises UsageError."""
    from proctor.supervisor.errors import UsageError

    exact = await store.run(name)
    if exact is not None:
        return exact
    if name == "last":
        newest = await store.runs(limit=1)
        if not newest:
            raise UsageError("the store holds no runs")
        return newest[0]
    wanted = name.removeprefix("run_")
    near = [run for begins in (f"run_{wanted}", wanted) if wanted for run in await _beginning(store, begins)]
    if len(near) == 1:
        return near[0]
    if near:
        count = len(near) if len(near) < _MANY else f"{_MANY} or more"
        raise UsageError(f"{count} runs begin with `{name}`; type more of the id")
    raise UsageError(f"there is no run `{name}`; `proctor runs` lists them")


async def _beginning(store: Store, begins: str) -> list[RunInfo]:
    from proctor.supervisor.ports.stored_types import RunFilter

    return await store.runs(limit=_MANY, where=RunFilter(begins=begins))


async def approval_named(store: Store, name: str) -> str:
    """The approval's id from what people type: the beginning of the run's id and the number. Raises UsageError."""
    from proctor.supervisor.errors import UsageError

    run, dot, number = name.rpartition(".")
    if not dot:
        raise UsageError(f"there is no approval `{name}`; `proctor approvals` lists those that wait")
    if await store.run(run) is not None:
        return name
    return f"{(await run_named(store, run)).run_id}.{number}"
