"""What people of any process answer and order, for a store in memory."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from proctor.policies.stream.events import TERMINAL, ApprovalEvent, Event

from ...ports.facts import ApprovalAnswer, StoredApproval
from ...ports.orders import AnswerGiven, Block, Cancel, Instruction, Lift
from ..approvals import asks, closed, outlives, shown
from ..refusals import check_answerable, no_approval


class Desk:
    """Approvals in the order they were requested, and instructions in the order they came."""

    def __init__(self) -> None:
        self._approvals: dict[str, StoredApproval] = {}
        self._count = 0
        self._waiting: dict[str, set[str]] = {}
        self._instructions: list[Instruction] = []
        self.blocks: list[Block] = []

    def note(self, event: Event) -> None:
        """Let approvals follow from an event that was stored."""
        if isinstance(event, ApprovalEvent):
            stored = self._approvals.get(event.approval_id)
            if stored is None and asks(event):
                self._count += 1
                self._approvals[event.approval_id] = StoredApproval(request=shown(event), number=self._count)
                self._waiting.setdefault(event.run_id, set()).add(event.approval_id)
            elif stored is not None and event.type != "tool_approval_requested":
                self._keep(closed(stored, event))
        elif isinstance(event, TERMINAL):
            for approval_id in self._waiting.pop(event.run_id, ()):
                stored = self._approvals[approval_id]
                if stored.state == "requested" and not outlives(stored, event):
                    self._approvals[approval_id] = replace(
                        stored, state="withdrawn", answered_at=event.at, recorded=True
                    )

    def forget(self, session_id: str) -> None:
        """The session's record was removed, and what was asked in it."""
        for approval_id, stored in list(self._approvals.items()):
            if stored.request.session_id == session_id:
                del self._approvals[approval_id]
                self._waiting.get(stored.request.run_id, set()).discard(approval_id)

    def answer(self, approval_id: str, given: ApprovalAnswer, at: datetime, *, instruct: bool) -> StoredApproval:
        """Take an answer, if it is the first; see `Store.answer`."""
        stored = self._approvals.get(approval_id)
        if stored is None:
            raise no_approval(approval_id)
        check_answerable(stored, given)
        state = "granted" if given.granted else "denied"
        answered = replace(stored, state=state, answer=given, answered_at=at)
        if instruct:
            self._keep(answered)
            run_id = stored.request.run_id
            number = len(self._instructions) + 1
            given_answer = AnswerGiven(run_id=run_id, approval_id=approval_id, answer=given, at=at, number=number)
            self._instructions.append(given_answer)
        return answered

    def instruct(self, order: Cancel | Block | Lift) -> int:
        """Keep an order; returns its number."""
        number = len(self._instructions) + 1
        order = replace(order, number=number)
        self._instructions.append(order)
        if isinstance(order, Block):
            self.blocks.append(order)
        elif isinstance(order, Lift):
            self.blocks = [block for block in self.blocks if not order.lifts(block)]
        return number

    def instructions(self, after: int) -> list[Instruction]:
        """Those with a number > after."""
        return self._instructions[max(after, 0) :]

    @property
    def last_instruction(self) -> int:
        """The number of the latest."""
        return len(self._instructions)

    def approval(self, approval_id: str) -> StoredApproval | None:
        """An approval, or None."""
        return self._approvals.get(approval_id)

    def approvals(
        self, *, waiting: bool, run_id: str | None, session_id: str | None, after: int, limit: int
    ) -> list[StoredApproval]:
        """See `Store.approvals`."""
        found = (
            approval
            for approval in self._approvals.values()
            if approval.number > after
            and (not waiting or (approval.state == "requested" and not approval.request.ran))
            and run_id in (None, approval.request.run_id)
            and session_id in (None, approval.request.session_id)
        )
        return list(islice(found, max(limit, 0)))

    def _keep(self, approval: StoredApproval) -> None:
        request = approval.request
        self._approvals[request.approval_id] = approval
        self._waiting.get(request.run_id, set()).discard(request.approval_id)
