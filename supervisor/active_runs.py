"""The runs that go on in one supervisor: found, counted, ended, and handed their mail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import anyio
import msgspec

from .control.approvals import check_digest, requested_at
from .control.commands import answer_of, is_for
from .machine.inputs import CancelAsked
from .ports import ApprovalAnswer, ApprovalRequest, Mail
from .run.actor import RunActor


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the supervisor was opened; `refused` are runs a policy cancelled."""

    running: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0
    approvals: int = 0
    subscribers: int = 0
    publishers_dropped: int = 0


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes on."""

    actor: RunActor
    run_id: str
    session_id: str
    tenant: str | None
    started_at: datetime

    def cancel(self, reason: str, approval: Any = None) -> None:
        """Order the run to end, for `approval` (a request as mail carries it) where that is the reason."""
        now_ms = self.actor.now_ms()
        if approval is None:
            self.actor.cancel(CancelAsked(now_ms=now_ms, reason=reason))
            return
        request = msgspec.convert(approval, ApprovalRequest)
        self.actor.cancel(CancelAsked(now_ms=now_ms, reason=reason, by="approval", approval=request))

    def deliver(self, mail: Mail) -> None:
        """Take a message, if it concerns this run."""
        if not is_for(
            mail,
            run_id=self.run_id,
            session_id=self.session_id,
            tenant=self.tenant,
            started_at=self.started_at,
        ):
            return
        if mail.kind == "cancel":
            self.cancel(str(mail.body.get("reason") or "cancelled"), mail.body.get("approval"))
        else:
            self.actor.answer(str(mail.body.get("approval_id")), answer_of(mail))


class ActiveRuns:
    """Runs by id, and what became of those that are over."""

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}
        self._idle: anyio.Event | None = None
        self._counts = {"started": 0, "completed": 0, "failed": 0, "cancelled": 0, "refused": 0}

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running.values()))

    def __len__(self) -> int:
        return len(self._running)

    def add(self, running: Running) -> None:
        """A run starts."""
        self._running[running.run_id] = running
        self._counts["started"] += 1

    def remove(self, running: Running) -> None:
        """A run is over; it is counted by how it ended."""
        del self._running[running.run_id]
        outcome = running.actor.outcome
        if outcome is not None:
            self._counts["refused" if outcome.refused else outcome.status] += 1
        if not self._running and self._idle is not None:
            self._idle.set()

    async def drained(self) -> None:
        """Wait until no run goes on."""
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def drained_for_sure(self) -> None:
        """Wait for every run to end, also when this task is cancelled again while it waits: no shield of ours
        holds off asyncio's own `Task.cancel`.
        """
        interrupted: BaseException | None = None
        while self._running:
            try:
                with anyio.CancelScope(shield=True):
                    await self.drained()
            except anyio.get_cancelled_exc_class() as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def cancel_all(self, reason: str) -> None:
        """Order every run to end."""
        for running in self:
            running.cancel(reason)

    def deliver(self, mail: Mail) -> None:
        """Hand a message to the runs it concerns."""
        for running in self:
            running.deliver(mail)

    def requests(self) -> list[ApprovalRequest]:
        """The calls held for a person, oldest first."""
        return sorted((request for running in self for request in running.actor.requests), key=requested_at)

    def answer(self, approval_id: str, given: ApprovalAnswer) -> bool:
        """Answer a held call; False when none of these runs holds it. Raises UsageError for another input."""
        for running in self:
            for request in running.actor.requests:
                if request.approval_id == approval_id:
                    check_digest(request, given)
                    running.actor.answer(approval_id, given)
                    return True
        return False

    def statistics(self, *, subscribers: int, publishers_dropped: int) -> Statistics:
        """The counts."""
        return Statistics(
            running=len(self._running),
            approvals=sum(len(running.actor.requests) for running in self),
            subscribers=subscribers,
            publishers_dropped=publishers_dropped,
            **self._counts,
        )
