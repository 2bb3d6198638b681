"""Operators' views and actions over a store whose runs are in any process: one service under every surface."""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
from msgspec.structs import asdict, replace

from proctor.policies.events import TERMINAL, Event, RunStarted, ToolApprovalRequested
from proctor.policies.limits import BUDGETS
from proctor.policies.monitor.limit_checker import LimitStatus
from proctor.policies.policy import SCOPES
from proctor.supervisor.control.approval_inbox import TAKEN_UP_S
from proctor.supervisor.control.approval_inbox import answer as give_answer
from proctor.supervisor.control.kill_switch import KillSwitch, Scope
from proctor.supervisor.errors import ProctorError, StoreError, UsageError
from proctor.supervisor.ports.budget_ledger import BudgetInfo
from proctor.supervisor.ports.store import EventLog, RunRegistry, Store, closing
from proctor.supervisor.ports.stored_types import (
    ANY_RUN,
    APPROVAL_WORDS,
    NOT_OVER,
    ApprovalAnswer,
    ApprovalRequest,
    Block,
    Cancel,
    RunFilter,
    RunInfo,
    StoredApproval,
)
from proctor.supervisor.redaction import Redactor
from proctor.supervisor.run.recovery import end_without_owner, passing_owner
from proctor.supervisor.store.invariants import latest, shown
from proctor.supervisor.watch.subscriptions import Subscriptions

from ..evaluate.fold import Explained, Recorded, Refold, recorded
from ..kit.process_tree import end_orphans
from ..suggest.inputs import like_of
from . import views
from .timeline import TimelineItems, call_shown

RECORDED_KEPT = 256
MOST_SEARCHED = 5_000
"""How many runs a search reads."""
MOST_COUNTED = 1_000
"""How many pending approvals are counted."""
BOARD_ROWS = 20
"""The most runs, and the most approvals, that the board shows."""
BOARD_SEARCHED = 1_000
"""How many of each are searched for words."""
_RUNS_COUNTED = 1_000
"""How many runs of a session have their calls counted, the newest."""
_NAMED = 100
"""Runs that one beginning of an id may stand for, before they are no longer counted."""


class MissingError(UsageError):
    """The name is of nothing in the store."""

    code = "not_found"


class ConflictError(UsageError):
    """The run is over already."""

    code = "conflict"


class OperatorService:
    """What operators see of a store and do with it, for the commands, the HTTP API, the page and `watch`.

    Every method raises StoreError where the store cannot be read or written.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folds = Folds(store)
        self.subscribe = Subscriptions(store).subscribe
        self._switch = KillSwitch(store, end_orphans=end_orphans)
        self._redactor = Redactor()
        self._recorded: OrderedDict[str, Recorded] = OrderedDict()

    async def run(self, name: str) -> views.RunView:
        """One run, by its id, the beginning of one, or `last`. Raises MissingError, UsageError for several."""
        run = await self.run_named(name)
        waiting = await self._waiting()
        last_seq = run.ended_seq or await self.store.last_seq(run.session_id)
        return replace(_view(run, waiting), last_seq=last_seq)

    async def runs(
        self,
        where: RunFilter = ANY_RUN,
        *,
        session_id: str | None = None,
        words: str = "",
        waiting: bool = False,
        before: str | None = None,
        limit: int = 50,
    ) -> views.RunList:
        """A page of runs, newest first, that meet all that is given. `waiting`: with a call that waits for a person.
        `before`: older than this run, named as in `run`.

        `words` are searched for in ids, prompt, agent and tenant, over a bounded number of runs: a page may hold few
        or none although later ones match.
        """
        try:
            than = (await self.run_named(before)).run_id if before is not None else None
        except MissingError as error:
            raise UsageError(str(error)) from None
        waits = await self._waiting()
        searched = bool(words) or waiting
        wanted = words.casefold()
        most = MOST_SEARCHED if searched else limit + 1
        page = await self.store.runs(limit=most, session_id=session_id, before=than, where=where)
        found: list[views.RunView] = []
        for run in map(self._redacted, page):  # before it is searched: what is hidden cannot be guessed bit by bit
            if len(found) == limit:
                return views.RunList(runs=tuple(found), next=found[-1].run_id)
            if wanted in _words_of(run) and (not waiting or _waiting_calls(run, waits)):
                found.append(_view(run, waits))
        following = page[-1].run_id if searched and len(page) == MOST_SEARCHED else None
        return views.RunList(runs=tuple(found), next=following)

    async def run_named(self, name: str) -> RunInfo:
        """The stored run of that name; see `run`."""
        return self._redacted(await run_named(self.store, name))

    async def events(self, session_id: str, *, run_id: str | None, after: int, limit: int) -> list[Event]:
        """Events with seq > `after`, up to a limit. Raises MissingError for a session that does not exist."""
        if not await self.store.runs(limit=1, session_id=session_id):
            raise MissingError(f"there is no session `{session_id}`")
        async with closing(self.store.read(session_id, after=after, run_id=run_id)) as events:
            found: list[Event] = []
            async for event in events:
                found.append(event)
                if len(found) == limit:
                    break
        return found

    async def timeline(self, name: str, *, after: int = 0, limit: int = 500) -> views.Timeline:
        """The events of a run as people read them, after the seq `after`, up to a limit of events."""
        run = await self.run_named(name)
        events = await self.events(run.session_id, run_id=run.run_id, after=after, limit=limit)
        items = TimelineItems(ran=await self.calls_in(run.session_id))
        shown = tuple(item for event in events if (item := items.of(event)) is not None)
        return views.Timeline(items=shown, next=events[-1].seq if len(events) == limit else None)

    async def calls_in(self, session_id: str) -> int:
        """How many calls of a session ran."""
        return sum(run.calls for run in await self.store.runs(session_id=session_id, limit=_RUNS_COUNTED))

    async def approvals(self, limit: int = MOST_COUNTED, *, run_id: str | None = None) -> views.ApprovalList:
        """The calls, of one run or of all, that wait for a person, oldest first; how many wait is counted up to a
        bound.
        """
        stored = await self.store.approvals(run_id=run_id, limit=max(limit, MOST_COUNTED))
        shown = [await self.view(approval) for approval in stored[:limit]]
        return views.ApprovalList(approvals=tuple(shown), total=len(stored))

    async def approval(self, name: str) -> views.ApprovalView:
        """One approval, by its id or the beginning of its run's id and its number. Raises MissingError."""
        id = await approval_named(self.store, name)
        found = await self.store.approval(id)
        if found is None:
            raise MissingError(f"there is no approval `{id}`")
        return await self.view(found)

    async def requested(self, event: ToolApprovalRequested) -> views.ApprovalView:
        """The approval that an event has just requested."""
        return await self.view(StoredApproval(request=shown(event)))

    async def answer(
        self, name: str, given: ApprovalAnswer, *, like: bool = False, wait_s: float = TAKEN_UP_S
    ) -> views.Answered:
        """Answer an approval, named as in `approval`, and wait up to `wait_s` seconds until the owner of its run has
        acted on it. `like`: a grant for the run or the session covers only what is like the call. Raises
        ApprovalError where the answer does not count, UsageError where nothing is like the call.
        """
        approval_id = await approval_named(self.store, name)
        if like:
            entry = (await self.approval(approval_id)).like
            if entry is None or given.scope == "once":
                raise UsageError("this approval can cover no calls like this one: answer for this call alone")
            given = replace(given, like=entry.entry)
        approval = await give_answer(self.store, approval_id, given, wait_s=wait_s)
        return views.Answered(
            approval_id=approval_id,
            answer="approved" if given.granted else "denied",
            outcome=APPROVAL_WORDS[approval.state],
            by=given.by,
            reason=given.reason,
            taken_up=approval.recorded,
        )

    async def affected(self, scope: Scope) -> views.Affected:
        """The runs that `stop` would end."""
        found = list(await self._switch.going_on(scope))
        return views.Affected(runs=len(found), run_ids=tuple(found[:_NAMED]))

    async def stop(
        self,
        scope: Scope,
        *,
        by: str,
        reason: str,
        end_runs: bool = True,
        block_starts: bool = False,
        wait_s: float = 30.0,
    ) -> views.Stopped:
        """End the runs of a scope in every process, and wait up to `wait_s` seconds for them; `block_starts`: refuse
        new ones until `lift`. Raises UsageError.
        """
        outcomes: list[Any] = []
        if end_runs:
            outcomes = await self._switch.stop(scope, by=by, reason=reason, block_starts=block_starts, wait_s=wait_s)
        elif block_starts:
            await self._switch.block(scope, by=by, reason=reason)
        ended = msgspec.convert(outcomes, tuple[views.OutcomeView, ...], from_attributes=True)
        return views.Stopped(outcomes=ended, blocks=await self.blocks())

    async def lift(self, scope: Scope, *, by: str, reason: str = "") -> views.Lifted:
        """Let runs of a scope start again; `all` lifts every block."""
        lifted = await self._switch.unblock(scope, by=by, reason=reason)
        return views.Lifted(lifted=_blocks(lifted), blocks=await self.blocks())

    async def blocks(self) -> tuple[views.BlockView, ...]:
        """The blocks that refuse starts now, oldest first."""
        return _blocks(await self._switch.blocks())

    async def cancel(self, name: str, *, by: str, reason: str) -> RunInfo:
        """Have a run, or its latest retry, end, and return it at once: its owner is told; where that is gone, or
        nobody has begun the run, it is ended here. Raises ConflictError for one that is over.
        """
        run = await latest(self.store, await run_named(self.store, name))
        if run.status not in NOT_OVER:
            raise ConflictError(f"run `{run.run_id}` is over: it is {run.status}")
        command = Cancel(scope="run", value=run.run_id, by=by, reason=reason, at=datetime.now(UTC))
        await self.store.send_command(command)
        # Only now: who was about to start it may have let it go before that, and a lost run without such a command is
        # retried.
        if run.status in ("created", "lost"):
            async with passing_owner(self.store) as owner:
                how: dict[str, Any] = {"reason": reason, "by": by, "end_orphans": end_orphans}
                await end_without_owner(self.store, run, epoch=owner.epoch, **how)
        return run

    async def board(self, words: str = "") -> views.Board:
        """The current runs, approvals and blocks; with `words`, only those that contain that text."""
        limit = BOARD_SEARCHED if words else BOARD_ROWS
        page = await self.store.runs(limit=limit + 1, where=RunFilter(status=frozenset(NOT_OVER)))
        waits, stored = await self._waiting(), await self.store.approvals(limit=limit)
        going = [run for run in map(self._redacted, page) if _has(words, _run_words(run))]
        waiting = [one for one in stored if _has(words, _approval_words(one.request))]
        runs = [
            views.BoardRun(**asdict(_view(run, waits)), limits=await self._limits(run)) for run in going[:BOARD_ROWS]
        ]
        approvals = [await self.view(one) for one in waiting[:BOARD_ROWS]]
        more = len(going) > BOARD_ROWS
        shared = () if words else (await self.budgets()).budgets
        blocks = await self.blocks()
        return views.Board(runs=tuple(runs), more=more, approvals=tuple(approvals), blocks=blocks, budgets=shared)

    async def _limits(self, run: RunInfo) -> tuple[LimitStatus, ...]:
        try:
            return (await self.folds.of(run)).limits()
        except ProctorError:  # it has not started, or another version wrote its policies
            return ()

    async def budgets(self) -> views.BudgetList:
        """The budgets that runs share, by name and key."""
        found = await self.store.budgets()
        return views.BudgetList(budgets=tuple(map(_budget, found)))

    async def recorded_of(self, run_id: str) -> Recorded:
        """Facts recorded when a run started: its client's tools and its context."""
        if run_id not in self._recorded:
            run = await self.store.run(run_id)
            start = await self.folds.start_of(run) if run is not None else None
            if start is None:
                return recorded([])
            self._recorded[run_id] = recorded([start])
            while len(self._recorded) > RECORDED_KEPT:
                self._recorded.popitem(last=False)
        return self._recorded[run_id]

    async def view(self, approval: StoredApproval) -> views.ApprovalView:
        """An approval, with the call made readable and what is known of its run."""
        request, given = approval.request, approval.answer
        run, was = None, recorded([])
        try:
            run = await self.store.run(request.run_id)
            was = await self.recorded_of(request.run_id)
        except StoreError as error:
            if error.kind != "corrupt":
                raise  # else the request is shown without what is known of its run
        about: dict[str, Any] = {}
        if run is not None:
            run = self._redacted(run)
            about = {"prompt": _prompt(run), "provider": run.provider, "tenant": run.tenant}
            about |= {"asks_itself": run.asks_itself, "lost": run.is_left}
        wider = request.scope != "once" and not request.ran
        return views.ApprovalView(
            **{**asdict(request), "expires_at": views.expiry(request.requested_at, request.expires_at)},
            like=like_of(request.call, was.tools) if wider else None,
            **about,
            state=approval.state,
            outcome=APPROVAL_WORDS[approval.state],
            shown=call_shown(request.call, was.tools),
            user=was.context.user if isinstance(was.context.user, str) else None,
            scopes=SCOPES[: SCOPES.index(request.scope) + 1],
            answered_by=given.by if given else None,
            answered_at=approval.answered_at,
            answer_reason=given.reason if given else None,
        )

    async def _waiting(self) -> Counter[str]:
        return Counter(approval.request.run_id for approval in await self.store.approvals(limit=MOST_COUNTED))

    def _redacted(self, run: RunInfo) -> RunInfo:
        """A run without secrets: the store keeps the exact prompt of one that was created to be run later."""
        return self._redactor.redact(run, run.session_id)


def _view(run: RunInfo, waits: Counter[str]) -> views.RunView:
    waiting = _waiting_calls(run, waits)
    return views.RunView(**asdict(run), prompt=_prompt(run), duration_ms=run.duration_ms, waiting=waiting)


def _waiting_calls(run: RunInfo, waits: Counter[str]) -> int:
    """How many of its calls wait; none of a run that is left, as nobody can answer then."""
    return 0 if run.is_left else waits[run.run_id]


def _prompt(run: RunInfo) -> str:
    return run.unreadable or str(run.spec.get("prompt", ""))


def _words_of(run: RunInfo) -> str:
    words = (run.run_id, run.session_id, run.provider, _prompt(run), run.tenant or "")
    return "\n".join(words).casefold()


def _has(wanted: str, words: Iterable[object]) -> bool:
    return not wanted or any(wanted.casefold() in str(word).casefold() for word in words if word)


def _run_words(run: RunInfo) -> Iterator[object]:
    yield from (run.run_id, run.session_id, run.status, run.provider, run.tenant, _prompt(run))
    yield from (f"{name}={value}" for name, value in run.labels.items())


def _approval_words(request: ApprovalRequest) -> Iterator[object]:
    yield from (request.approval_id, request.call.name, request.policy_name)
    yield msgspec.json.encode(request.call.input, enc_hook=str).decode()


def _blocks(found: list[Block]) -> tuple[views.BlockView, ...]:
    return msgspec.convert(found, tuple[views.BlockView, ...], from_attributes=True)


async def run_named(store: RunRegistry, name: str) -> RunInfo:
    """The run of that id, or the one whose id begins so; `last` is the newest. Raises MissingError, UsageError."""
    exact = await store.run(name)
    if exact is not None:
        return exact
    if name == "last":
        newest = await store.runs(limit=1)
        if not newest:
            raise MissingError("the store holds no runs")
        return newest[0]
    wanted = name.removeprefix("run_")
    near = [
        run
        for begins in (f"run_{wanted}", wanted)
        if wanted
        for run in await store.runs(limit=_NAMED, where=RunFilter(begins=begins))
    ]
    if len(near) == 1:
        return near[0]
    if near:
        count = len(near) if len(near) < _NAMED else f"{_NAMED} or more"
        raise UsageError(f"{count} runs begin with `{name}`; type more of the id")
    raise MissingError(f"there is no run `{name}`; `proctor runs` lists them")


def _budget(info: BudgetInfo) -> views.BudgetView:
    kind = BUDGETS.get(f"max_{info.counts}")
    amounts: dict[str, Any] = {"in_use": info.used, "ahead": info.reserved}
    if kind is not None and kind.at_once:
        amounts = {"in_use": info.used + info.reserved}
    unit = info.counts if kind is None else kind.unit  # of another version
    return views.BudgetView(**asdict(info), left=info.left, unit=unit, **amounts)


async def approval_named(store: Store, name: str) -> str:
    """The id of an approval typed as the run id's beginning and its number. Raises MissingError, UsageError."""
    run, dot, number = name.rpartition(".")
    if not dot:
        raise MissingError(f"there is no approval `{name}`; `proctor approvals` lists those that wait")
    if await store.approval(name) is not None or await store.run(run) is not None:
        return name
    return f"{(await run_named(store, run)).run_id}.{number}"


REMEMBERED = 24
"""How many runs have their replayed state kept."""
MOST_DECISIONS = 2_000
"""How many decisions of a run are kept, the latest."""
_CHUNK = 500


class Fold:
    """The state of one run's policy, replayed from its events."""

    def __init__(self, run: RunInfo, was: Recorded) -> None:
        self.run = run
        self.was = was
        self.decisions: deque[Explained] = deque(maxlen=MOST_DECISIONS)
        self.decided = 0
        self.lock = anyio.Lock()
        self.over = False
        self._refold: Refold | None = None
        self._seq = 0

    async def catch_up(self, store: EventLog) -> None:
        """Replay what was recorded since."""
        chunk: list[Event] = []
        async with closing(store.read(self.run.session_id, after=self._seq)) as events:
            async for event in events:
                chunk.append(event)
                if len(chunk) >= _CHUNK:
                    await anyio.to_thread.run_sync(self._apply, chunk)
                    chunk = []
        if chunk:
            await anyio.to_thread.run_sync(self._apply, chunk)

    def limits(self) -> tuple[LimitStatus, ...]:
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

    def _apply(self, events: list[Event]) -> None:
        refold = self.refold()
        for event in events:
            if self.over:
                return
            step = refold.apply(event)
            self._seq = event.seq
            if event.run_id == self.run.run_id:
                if step is not None:
                    self.decided += 1
                    self.decisions.append(step)
                self.over = isinstance(event, TERMINAL)


class Folds:
    """The replayed states of the runs that were requested last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._folds: OrderedDict[str, Fold] = OrderedDict()

    async def of(self, run: RunInfo) -> Fold:
        """A run folded as far as it is recorded. Raises UsageError for a run that has not started."""
        fold = self._folds.get(run.run_id)
        if fold is None:
            start = await self.start_of(run)
            if start is None:
                raise UsageError(f"run `{run.run_id}` has not started: nothing was evaluated")
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
