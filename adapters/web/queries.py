"""The queries to the store: the only file here that knows how runs, approvals and ends are kept."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime

from proctor.adapters.evaluate.folding import recorded
from proctor.policies.stream.events import Event
from proctor.policies.stream.tools import Tool
from proctor.supervisor.control.kill_switch import KillSwitch
from proctor.supervisor.control.reaping import reap_run
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapters import ApprovalRequest, Cancel, RunFilter, RunInfo, Store, StoredApproval
from proctor.supervisor.ports.facts import NOT_OVER
from proctor.supervisor.redaction import Redactor
from proctor.supervisor.store.paging import closing
from proctor.supervisor.watch.subscriptions import Subscriptions

from ..kit.processes.remains import end_remains
from .folds import Folds
from .identities import Identity

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
