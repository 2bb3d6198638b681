"""The kill switch: cancels runs in any process, and freezes starts until that is lifted."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import anyio
import msgspec

from ..arguments import check_named, check_seconds, check_store, check_text
from ..errors import StoreError, UsageError
from ..ports.adapter import EndOrphans
from ..ports.store import POLL_S, Store, all_runs, wait_again
from ..ports.stored_types import NOT_OVER, Block, Cancel, Owner, RunFilter, RunInfo, RunStatus, UnblockStarts
from ..redaction import Redactor
from ..run.recovery import each_ended, end_without_owner, passing_owner
from ..run.tasks import calls_store
from ..store.invariants import latest

LONGEST_PAUSE_S = 4.0


class Scope(msgspec.Struct, frozen=True):
    """The runs that a command covers: one `run`, a `session`, a `tenant`, a `label` (`key=value`), or `all`."""

    kind: Literal["run", "session", "tenant", "label", "all"]
    value: str = ""


def scope_of(
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    tenant: str | None = None,
    label: str | None = None,
    everything: bool = False,
) -> Scope:
    """The scope that the arguments name. Raises UsageError unless they name exactly one."""
    check_named(run_id=run_id, session_id=session_id, tenant=tenant, label=label)
    named = {
        "run": run_id,
        "session": session_id,
        "tenant": tenant,
        "label": label,
        "all": "" if everything else None,
    }
    given: list[Any] = [(kind, value) for kind, value in named.items() if value is not None]
    if len(given) != 1:
        raise UsageError("name one of `run_id`, `session_id`, `tenant`, `label`, or use `everything=True`")
    if label is not None and not all(label.partition("=")[:2]):
        raise UsageError(f"`label` is `{label}`; use NAME=VALUE")
    return Scope(*given[0])


class KillOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run that a command cancelled.

    Attributes:
        run_id: The run.
        session_id: Its session.
        status: How it ended; it can have completed or failed before the command reached it.
        ended: Whether it ended in time.
        owner: The run's owner, if it did not end.
    """

    run_id: str
    session_id: str
    status: RunStatus
    ended: bool
    owner: Owner | None = None


class KillSwitch:
    """Cancels runs of a store; see `kill`. Name what to stop in one of these ways: `run_id`, `session_id`,
    `tenant`, `label` (as `key=value`), or `everything=True`.

    Args:
        store: shared by the supervisors whose runs are meant.
        end_orphans: ends what a lost run left running on this machine.
        redactor: redacts what is recorded.
    """

    def __init__(
        self, store: Store, *, end_orphans: EndOrphans | None = None, redactor: Redactor | None = None
    ) -> None:
        check_store(store)
        self.store = store
        self._end_orphans = end_orphans
        self._redactor = redactor or Redactor()

    async def kill(
        self,
        *,
        by: str,
        reason: str = "killed by an operator",
        run_id: str | None = None,
        session_id: str | None = None,
        tenant: str | None = None,
        label: str | None = None,
        everything: bool = False,
        block_starts: bool = False,
        wait_s: float = 30.0,
    ) -> list[KillOutcome]:
        """Cancel runs in every process, and wait up to `wait_s` seconds; returns how each ended.

        This call itself ends lost runs and created ones. The id of a lost run also names its retry. With
        `block_starts`, no run of the scope starts until `lift`. Raises StoreError; UsageError for an invalid scope.
        """
        check_seconds(wait_s=wait_s)
        scope = scope_of(run_id=run_id, session_id=session_id, tenant=tenant, label=label, everything=everything)
        return await self.stop(scope, by=by, reason=reason, block_starts=block_starts, wait_s=wait_s)

    @calls_store
    async def stop(
        self, scope: Scope, *, by: str, reason: str, block_starts: bool = False, wait_s: float = 30.0
    ) -> list[KillOutcome]:
        """The same for a scope. Raises StoreError."""
        if scope.kind == "run":
            scope = Scope("run", await self._latest(scope.value))
        if block_starts:
            await self.block(scope, by=by, reason=reason)
        before: dict[str, RunInfo] = {}
        unread: StoreError | None = None
        try:
            before = await self.going_on(scope)  # one of these may end before it could be found again
        except StoreError as error:
            unread = error
        await self._send(Cancel, scope, by, reason)  # the owners have their runs, whatever the list says
        try:
            if unread is not None:
                raise unread
            wanted = before | await self.going_on(scope)
            left = await self._awaited(wanted, scope, wait_s, by=by, reason=reason)
            now = await self._now(scope, wanted)
            following = await self._latest(scope.value) if scope.kind == "run" else ""
        except StoreError as error:
            raise StoreError(f"{error}; the command to cancel is recorded", kind=error.kind) from error
        outcomes = [_outcome(now[run_id], ended=run_id not in left) for run_id in wanted]
        if following not in ("", scope.value):  # it was lost meanwhile
            outcomes += await self.stop(Scope("run", following), by=by, reason=reason, wait_s=wait_s)
        return outcomes

    async def block_starts(
        self,
        *,
        by: str,
        reason: str,
        session_id: str | None = None,
        tenant: str | None = None,
        label: str | None = None,
        everything: bool = False,
    ) -> None:
        """Prevent starts in this scope, in any process, until `lift`: starting a run raises StartsBlockedError."""
        scope = scope_of(session_id=session_id, tenant=tenant, label=label, everything=everything)
        await self.block(scope, by=by, reason=reason)

    @calls_store
    async def block(self, scope: Scope, *, by: str, reason: str) -> None:
        """The same for a scope."""
        await self._send(Block, scope, by, reason)

    async def lift(
        self,
        *,
        by: str,
        reason: str = "",
        session_id: str | None = None,
        tenant: str | None = None,
        label: str | None = None,
        everything: bool = False,
    ) -> list[Block]:
        """Lift the freeze of exactly this scope; `everything` lifts every freeze. Returns the lifted ones."""
        scope = scope_of(session_id=session_id, tenant=tenant, label=label, everything=everything)
        return await self.unblock(scope, by=by, reason=reason)

    @calls_store
    async def unblock(self, scope: Scope, *, by: str, reason: str = "") -> list[Block]:
        """The same for a scope."""
        try:
            before = await self.blocks()
        except StoreError as error:
            if error.kind != "no_command" or scope.kind != "all":
                raise
            before = []  # all are lifted, also one that cannot be read and so blocks every start
        await self._send(UnblockStarts, scope, by, reason)
        left = await self.blocks() if before else []
        return [block for block in before if block not in left]

    @calls_store
    async def blocks(self) -> list[Block]:
        """The current freezes, oldest first, with who ordered each, when and why."""
        return await self.store.blocks()

    async def _send(self, command: type[Cancel | Block | UnblockStarts], scope: Scope, by: str, reason: str) -> None:
        check_named(by=by)
        check_text(by=by, reason=reason)
        by, reason = self._redactor.redact(by), self._redactor.redact(reason)
        at = datetime.now(UTC)
        await self.store.send_command(command(scope=scope.kind, value=scope.value, by=by, reason=reason, at=at))

    async def _latest(self, run_id: str) -> str:
        run = await self.store.run(run_id)
        return run_id if run is None else (await latest(self.store, run)).run_id

    async def going_on(self, scope: Scope) -> dict[str, RunInfo]:
        """The runs of a scope that are not over, oldest first. Raises UsageError for a run that is not stored."""
        if scope.kind == "run":
            run = await self.store.run(scope.value)
            if run is None:
                raise UsageError(f"there is no run `{scope.value}`")
            return {run.run_id: run} if run.status in NOT_OVER else {}
        found = [run async for run in self._runs(scope, NOT_OVER)]
        return {run.run_id: run for run in reversed(found)}

    def _runs(self, scope: Scope, status: frozenset[RunStatus] = frozenset()) -> AsyncGenerator[RunInfo, None]:
        name, _, text = scope.value.partition("=")
        where = RunFilter(
            status=status,
            tenant=scope.value if scope.kind == "tenant" else None,
            labels={name: text} if scope.kind == "label" else {},
        )
        session_id = scope.value if scope.kind == "session" else None
        return all_runs(self.store, session_id=session_id, where=where)

    async def _now(self, scope: Scope, wanted: dict[str, RunInfo]) -> dict[str, RunInfo]:
        """These runs as they are now: most are among the newest of the scope, the others are read one by one."""
        found: dict[str, RunInfo] = {}
        if scope.kind != "run":
            most = 2 * len(wanted)
            async with aclosing(self._runs(scope)) as runs:
                async for run in runs:
                    if run.run_id in wanted:
                        found[run.run_id] = run
                    most -= 1
                    if not most or len(found) == len(wanted):
                        break
        for run_id in wanted.keys() - found.keys():
            found[run_id] = await self.store.run(run_id) or wanted[run_id]
        return found

    async def _awaited(
        self, wanted: dict[str, RunInfo], scope: Scope, wait_s: float, *, by: str, reason: str
    ) -> set[str]:
        """Wait for runs to end; returns the ids of those that have not. Runs without a live owner are ended here."""
        left, token, pause = set(wanted), 0, POLL_S
        end = partial(end_without_owner, self.store, reason=reason, by=by, end_orphans=self._end_orphans)
        with anyio.move_on_after(wait_s):
            while left:
                token = await wait_again(self.store, token)
                began = anyio.current_time()
                now = await self.going_on(scope)
                await anyio.sleep(anyio.current_time() - began)  # reading many takes half of anybody's time at most
                left &= now.keys()
                if ownerless := [now[run_id] for run_id in wanted if run_id in left and _has_no_owner(now[run_id])]:
                    async with passing_owner(self.store) as owner:  # a new one each time, as nobody renews its lease
                        ended = await each_ended(ownerless, partial(end, epoch=owner.epoch), raises=False)
                    if not ended:  # their sessions are busy: each try is a change of the store, which wakes everybody
                        await anyio.sleep(pause)
                        pause = min(2 * pause, LONGEST_PAUSE_S)
        return left


def _outcome(run: RunInfo, *, ended: bool) -> KillOutcome:
    owner = None if ended else run.owner
    return KillOutcome(run_id=run.run_id, session_id=run.session_id, status=run.status, ended=ended, owner=owner)


def _has_no_owner(run: RunInfo) -> bool:
    """Whether no live owner could end it."""
    owner = run.owner
    return run.status == "lost" or owner is None or owner.is_client or (run.status == "created" and owner.gone)
