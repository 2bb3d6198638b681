"""A run taken up from its record: what its machine had learnt is read off the events it stored."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.policies.errors import Violation
from proctor.policies.events import (
    ApprovalEvent,
    BudgetReserved,
    Event,
    PolicyViolated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolApprovalGranted,
    ToolApprovalRequested,
    ToolCallRequested,
    at_ms,
)
from proctor.policies.events.calls import ToolCall

from ..store.invariants import shown
from .event_factory import RECORDED, Past
from .gate import GateKeeper
from .interface import AdapterEnded
from .provider_events import ProviderEvents
from .reservations import Budgets
from .run_state import RunIdentity, RunState


def past_of(identity: RunIdentity, history: Sequence[Event]) -> Past:
    """The effect of a session's record on this run."""
    past = Past(of=identity.run_id, turns=identity.turns_before, last_seq=identity.events_before)
    for event in history:
        past.take(event)
    return past


def recall(
    history: Sequence[Event],
    state: RunState,
    gate: GateKeeper,
    reports: ProviderEvents,
    budgets: Budgets | None = None,
) -> None:
    """Put the parts of a run's machine into the state they had when the last of these was recorded."""
    past = _Recollection(state, gate, reports, budgets)
    for event in history:
        if event.run_id == state.identity.run_id:
            past.take(event)
    past.finish()


class _Recollection:
    """Takes a run's own events in order and puts the parts of its machine into the state they had."""

    def __init__(self, state: RunState, gate: GateKeeper, reports: ProviderEvents, budgets: Budgets | None) -> None:
        self._state = state
        self._gate = gate
        self._reports = reports
        self._budgets = budgets
        self._waiting: dict[str, ToolApprovalRequested] = {}
        self._calls: dict[str, ToolCall] = {}

    def take(self, event: Event) -> None:
        """One more event of the run."""
        if event.at is not None:
            self._state.tell_time(at_ms(event.at))
        self._state.messages.recall(event)
        match event:
            case PolicyViolated():
                self._violated(event)
            case ToolCallRequested():
                self._asked_for(event)
            case ApprovalEvent():
                self._approval(event)
            case BudgetReserved() if self._budgets is not None:
                self._budgets.recall(event)
            case RunStarted():
                self._state.begun = True
                if self._budgets is not None:
                    self._budgets.begun(self._state.now_ms)
                self._reports.recall(event)
            case RunCompleted() | RunFailed() | RunCancelled():
                self._state.ended = True
            case _:
                self._reports.recall(event)

    def finish(self) -> None:
        """All has been taken: hold again what waited for a person; of a run that is over nothing more is taken."""
        for event in self._waiting.values():
            self._gate.hold_again(shown(event, self._calls.get(event.tool_call_id)))
        if self._state.ended:
            self._state.ending = AdapterEnded(now_ms=self._state.now_ms)

    def _violated(self, event: PolicyViolated) -> None:
        violation = msgspec.convert({name: getattr(event, name) for name in RECORDED}, Violation)
        self._state.findings.append(violation)
        if event.action == "cancel" or event.escalated:
            self._state.refuse_run(violation)

    def _asked_for(self, event: ToolCallRequested) -> None:
        self._calls[event.tool_call_id] = ToolCall(
            id=event.tool_call_id,
            name=event.tool_name,
            input=event.tool_input,
            turn=event.turn,
            parent_tool_call_id=event.parent_tool_call_id,
        )

    def _approval(self, event: ApprovalEvent) -> None:
        if isinstance(event, ToolApprovalGranted):
            self._state.approved = True
        if isinstance(event, ToolApprovalGranted) and event.scope != "once":
            self._gate.held_calls.take_grant(event)
        self._state.recall_approval(event.approval_id)
        if not isinstance(event, ToolApprovalRequested):
            self._waiting.pop(event.approval_id, None)
            return
        if event.held and event.expires_at is not None:
            self._waiting[event.approval_id] = event
