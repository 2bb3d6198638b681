"""What must hold after every step of a simulation, whatever broke: checked as events are stored and calls run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.policies.events import (
    TERMINAL,
    Event,
    MessageReceived,
    TokenUsageUpdated,
    ToolApprovalDenied,
    ToolApprovalExpired,
    ToolApprovalGranted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallStarted,
)
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.ports.budget_ledger import ReservationResult
from proctor.supervisor.ports.stored_types import RunInfo
from proctor.supervisor.store.memory_store import MemoryStore

from .plans import Plan

LIE = "a lie"
"""What an agent says of what only a supervisor may say: it is never stored."""
PLACES = 2
"""How many runs may go on at once, where a plan bounds that."""
A_WEEK = 4
"""How many calls a week has, where a plan bounds that."""
CLOSING = 40
"""More events than these does no run record for its end."""
AFTER_THE_END = (ToolApprovalGranted, ToolApprovalDenied, ToolApprovalExpired)


class Witness:
    """Sees every event that is stored and every call that is permitted and run; `found` is what must not be.

    Args:
        plan: what bounds the runs: how many calls of all together may be permitted, and how much is recorded.
    """

    def __init__(self, plan: Plan) -> None:
        self.found: list[str] = []
        self.events: list[Event] = []
        self.ended: dict[str, str] = {}
        self.epochs: dict[str, int] = {}
        self.started: Counter[str] = Counter()
        self.reported: Counter[tuple[str, str]] = Counter()
        self.weeks: set[int] = set()
        """When the weeks began that the store's clock was in."""
        self._plan = plan
        self._going: set[str] = set()
        self._recorded: Counter[tuple[str, bool]] = Counter()
        self._permitted = 0
        self._in_flight: dict[tuple[str, str], str] = {}  # with the tool; every call has the same input
        self._may_run: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[tuple[str, str]] = Counter()

    def claimed(self, run_id: str, epoch: int) -> None:
        """A run has another owner from now on."""
        self.epochs[run_id] = epoch

    def stored(self, event: Event, epoch: int) -> None:
        """An event is in the record."""
        run_id = event.run_id
        self.events.append(event)
        if not run_id:
            return
        if epoch and self.epochs.get(run_id, epoch) != epoch:
            self._says(f"`{event.type}` of run {run_id} was stored by an owner that it has no more")
        if run_id in self.ended and not isinstance(event, AFTER_THE_END):
            self._says(f"run {run_id} has `{event.type}` after its end, `{self.ended[run_id]}`")
        if LIE in map(str, msgspec.structs.astuple(event)):
            self._says(f"run {run_id} has stored `{event.type}` that its agent made up")
        if isinstance(event, TERMINAL):
            self.ended.setdefault(run_id, event.type)
            self.settled(run_id)
        self._count(run_id, event)
        self._bound(run_id, event)

    def _bound(self, run_id: str, event: Event) -> None:
        is_message = isinstance(event, MessageReceived)
        most = self._plan.record.get("max_messages" if is_message else "max_events")
        self._recorded[run_id, is_message] += 1
        if most is not None and self._recorded[run_id, is_message] > most + (0 if is_message else CLOSING):
            self._says(
                f"run {run_id} has stored {self._recorded[run_id, is_message]} events, and {most} are its most"
            )

    def opened(self, run_id: str) -> None:
        """A run's agent is started: it has a place."""
        self._going.add(run_id)
        if "places" in self._plan.budgets and len(self._going) > PLACES:
            self._says(f"{len(self._going)} runs go on at once: {sorted(self._going)}")

    def settled(self, run_id: str) -> None:
        """A run draws on no budget any more."""
        self._going.discard(run_id)

    def _count(self, run_id: str, event: Event) -> None:
        if isinstance(event, MessageReceived | TokenUsageUpdated):
            what = (run_id, event.content if isinstance(event, MessageReceived) else event.type)
            self._kept[what] += 1
            if self._kept[what] > self.reported[what]:
                self._says(f"run {run_id} has stored `{event.type}` more often than its agent reported it: {what[1]}")
        if isinstance(event, ToolCallStarted):
            self.started[run_id] += 1
            if self._in_flight.get((run_id, event.tool_call_id)) == event.tool_name:
                self._says(f"call {event.tool_call_id} of run {run_id} was started twice")
            self._in_flight[run_id, event.tool_call_id] = event.tool_name
        elif isinstance(event, ToolCallCompleted | ToolCallFailed | ToolCallDenied):
            self._in_flight.pop((run_id, event.tool_call_id), None)

    @property
    def unasked(self) -> int:
        """How many calls their agents made without asking: no budget stops those."""
        return sum(self.started.values()) - self._permitted

    def permitted(self, run_id: str, call: ToolCall) -> None:
        """The gate has allowed a call: it must be in the record, and within the budget."""
        self._permitted += 1
        self._may_run[run_id, call.id] += 1
        if (run_id, call.id) not in self._in_flight:
            self._says(f"call {call.id} of run {run_id} was permitted before that was recorded")
        most = self._plan.budget
        if "week" in self._plan.budgets:
            most = min(most, A_WEEK * len(self.weeks))
        if self._permitted > most:
            self._says(f"{self._permitted} calls were permitted, and the budget is {most}")

    def runs(self, run_id: str, call_id: str) -> None:
        """A call that was put to the gate runs."""
        self._may_run[run_id, call_id] -= 1
        if self._may_run[run_id, call_id] < 0:
            self._says(f"call {call_id} of run {run_id} ran once more than it was permitted")

    def _says(self, text: str) -> None:
        self.found.append(text)


class WatchedStore(MemoryStore):
    """A store in memory; the witness sees all that it stores."""

    def __init__(self, witness: Witness, wall_clock: Callable[[], float]) -> None:
        super().__init__(wall_clock=wall_clock)
        self._witness = witness
        self._last = 0

    async def create_run(self, run: RunInfo, *, epoch: int = 0) -> RunInfo:
        """See `Store.create_run`."""
        created = await super().create_run(run, epoch=epoch)
        self._witness.claimed(run.run_id, epoch)
        return created

    async def claim_run(self, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
        """See `Store.claim_run`."""
        claimed = await super().claim_run(run_id, epoch=epoch, lost=lost)
        self._witness.claimed(run_id, epoch)
        return claimed

    async def settle(self, run_id: str, used: Mapping[str, float], *, epoch: int) -> list[ReservationResult]:
        """See `Store.settle`."""
        drawn = await super().settle(run_id, used, epoch=epoch)
        self._witness.settled(run_id)
        return drawn

    def _append(self, events: Sequence[Event], epoch: int) -> list[Event]:
        before: Any = len(self._records.log)
        stored = super()._append(events, epoch)
        for event in stored[len(stored) - (len(self._records.log) - before) :] if stored else ():
            self._witness.stored(event, epoch)
        return stored
