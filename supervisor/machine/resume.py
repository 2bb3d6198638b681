"""A run that continues in another machine: replayed from its event log, or restored from a snapshot."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import EventError, Violation
from proctor.policies.events.calls import UNREADABLE, call_of
from proctor.policies.values.foreign_code import error_text

from ..errors import ProviderError
from ..ports.stored_types import ApprovalRequest
from ..store.invariants import shown
from .ending import RunEnding, described
from .event_factory import PriorSession, violation_of
from .gate import GateKeeper
from .interface import AdapterEnded, Outcome
from .pending_approvals import Held, Proposal
from .provider_events import ProviderEnd, ProviderEvents
from .reservations import BudgetLine, Budgets
from .run_state import RECORD_FULL, CancelCause, Deferred, RunIdentity, RunState, sized


def past_of(identity: RunIdentity, history: Sequence[ev.Event]) -> PriorSession:
    """A run's view of its session's event log."""
    past = PriorSession(of=identity.run_id, turns=identity.turns_before, last_seq=identity.events_before)
    for event in history:
        past.apply(event)
    return past


class HistoryReplay:
    """Replays events: puts the parts of a run's machine into the state they had when the last was recorded."""

    def __init__(self, state: RunState, gate: GateKeeper, reports: ProviderEvents, budgets: Budgets | None) -> None:
        self._state = state
        self._gate = gate
        self._reports = reports
        self._budgets = budgets
        self._waiting: dict[str, tuple[ApprovalRequest, Proposal]] = {}
        self._proposals: dict[str, Proposal] = {}

    def replay(self, history: Sequence[ev.Event]) -> None:
        """Replay the run's own events, in order, and hold again the calls that are pending approval."""
        for event in history:
            if event.run_id == self._state.identity.run_id:
                self._apply(event)
        for request, proposal in self._waiting.values():
            self._gate.hold_again(request, proposal)
        if self._state.ended:  # a run that is over accepts no more events
            self._state.ending = AdapterEnded(now_ms=self._state.now_ms)

    def _apply(self, event: ev.Event) -> None:
        if event.at is not None:
            self._state.advance_clock(ev.at_ms(event.at))
        self._state.counts.count(event, sized(event)[2])
        match event:
            case ev.PolicyViolated():
                violation = violation_of(event)
                self._state.findings.append(violation)
                self._note(event)
                if event.action == "cancel" or event.escalated:
                    self._state.refuse_run(violation)
            case ev.ToolCallRequested():
                self._proposals[event.tool_call_id] = Proposal(0, call_of(event))
            case ev.ApprovalEvent():
                self._approval(event)
            case ev.BudgetReserved() if self._budgets is not None:
                self._budgets.apply(event)
            case ev.RunStarted():
                self._state.begun = True
                if self._budgets is not None:
                    self._budgets.begun(self._state.now_ms)
                self._reports.apply(event)
            case ev.ErrorOccurred() if event.code == RECORD_FULL:
                self._state.record_is_full(event)
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled():
                self._state.ended = True
            case _:
                self._reports.apply(event)

    def _note(self, event: ev.PolicyViolated) -> None:
        """Note a violation found as its call was decided; while it was held, something else was reported under its
        id.
        """
        proposal = self._proposals.get(event.tool_call_id or "")
        if proposal is not None and all(held is not proposal for _, held in self._waiting.values()):
            proposal.noted.add((event.policy, event.rule))

    def _approval(self, event: ev.ApprovalEvent) -> None:
        self._state.skip_approval_id(event.approval_id)
        if not isinstance(event, ev.ToolApprovalRequested):
            self._waiting.pop(event.approval_id, None)
            self._state.signals.pop(event.approval_id, None)
        elif event.held and event.expires_at is not None:
            proposal = self._proposals.get(event.tool_call_id) or Proposal(0, shown(event).call)
            request = shown(event, proposal.call)
            proposal.await_outcome(request.violations)
            self._waiting[event.approval_id] = request, proposal
        elif not event.held:
            self._state.keep_signal(msgspec.structs.replace(shown(event), input_digest=event.input_digest or ""))
        if isinstance(event, ev.ToolApprovalGranted):
            self._state.approved = True
            if event.scope != "once":
                self._gate.held_calls.apply_grant(event)


T = TypeVar("T", bound=msgspec.Struct)


class _State(msgspec.Struct):
    findings: list[Violation]
    cause: CancelCause | None
    faulted: bool
    refusal: Violation | None
    begun: bool
    ended: bool
    ending: AdapterEnded | None
    now_ms: int
    at: datetime
    approved: bool
    signals: dict[str, ApprovalRequest]
    _approvals: int
    _seq: int


class _Outbox(msgspec.Struct):
    broken: bool
    _waiting: list[tuple[int, Deferred]] | None
    _taken: int
    _stored: int


class _Counts(msgspec.Struct):
    _used: dict[str, tuple[int, int]]
    _full: frozenset[str]
    _events: int
    _bytes: int
    full: bool


class _Reports(msgspec.Struct):
    _model: str | None
    _message: Any
    _deltas: list[str]
    _reported: ev.TokenUsageUpdated | None
    end: ProviderEnd | None
    turn: int


class _Budgets(msgspec.Struct):
    _lines: list[BudgetLine]
    _awaiting: bool
    _starting: bool
    _settled: bool
    _since_ms: int | None
    _reserving: list[int]
    _waiting: list[int]


class _RunEnding(msgspec.Struct):
    _stopping: bool
    _end: ev.RunCompleted | ev.RunFailed | ev.RunCancelled | None
    _outcome: Outcome | None
    _error: Exception | None
    _lacking: Exception | None
    _replaced: bool


class MachineSnapshot(msgspec.Struct, kw_only=True):
    """The whole state of a machine, by its parts. `permitted` are the keys of running calls, `held` the approval
    requests with the key of their call.
    """

    identity: RunIdentity
    state: _State
    outbox: _Outbox
    counts: _Counts
    reports: _Reports
    budgets: _Budgets | None
    closing: _RunEnding
    proposals: list[Proposal]
    permitted: dict[str, int]
    held: list[tuple[ApprovalRequest, int, bool, bool]]
    grants: list[ev.ToolApprovalGranted]
    deadline: int | None


def snapshot(run_ending: RunEnding, deadline: int | None) -> bytes:
    """A run's machine as bytes; `deadline` is its next tick. Raises EventError for what JSON cannot hold."""
    state, gate, budgets = run_ending.state, run_ending.gate, run_ending.budgets
    if state.outbox.unwritten:
        raise EventError("take the record of the machine first: a snapshot has no events")
    kept = MachineSnapshot(
        identity=state.identity,
        state=_kept(_State, state),
        outbox=_kept(_Outbox, state.outbox),
        counts=_kept(_Counts, state.counts),
        reports=_kept(_Reports, run_ending.reports),
        budgets=None if budgets is None else _kept(_Budgets, budgets),
        closing=_kept(_RunEnding, run_ending),
        proposals=gate.proposals,
        permitted={id: call.key for id, call in state.monitor.calls.items() if call.key},
        held=[
            (each.request, each.proposal.key, each.shown, each.closing) for each in gate.held_calls.waiting.values()
        ],
        grants=gate.held_calls.grants,
        deadline=deadline,
    )
    try:
        return msgspec.json.encode(kept, enc_hook=_written)
    except UNREADABLE as error:
        raise EventError(f"the run has what a snapshot cannot hold: {error_text(error)[:200]}") from None


def read_snapshot(data: bytes) -> MachineSnapshot:
    """What `snapshot` wrote. Raises EventError for other bytes."""
    try:
        return msgspec.json.decode(data, type=MachineSnapshot, dec_hook=_read_error)
    except (*UNREADABLE, msgspec.DecodeError) as error:
        raise EventError(f"not a snapshot of a run: {error_text(error)[:200]}") from None


def restore(kept: MachineSnapshot, run_ending: RunEnding) -> None:
    """Put the parts of a new machine into the state of a snapshot."""
    state, gate, budgets = run_ending.state, run_ending.gate, run_ending.budgets
    for part, fields in (
        (state, kept.state),
        (state.outbox, kept.outbox),
        (state.counts, kept.counts),
        (run_ending.reports, kept.reports),
        (budgets, kept.budgets),
        (run_ending, kept.closing),
    ):
        for name in fields.__struct_fields__ if fields is not None else ():
            setattr(part, name, getattr(fields, name))
    proposals = {proposal.key: proposal for proposal in kept.proposals}
    for proposal in kept.proposals:
        gate.restore_proposal(proposal)
    for call_id, key in kept.permitted.items():
        state.monitor.calls[call_id].key = key
    for request, key, was_shown, closing in kept.held:
        gate.held_calls.hold_again(Held(request, proposals[key], shown=was_shown, closing=closing))
    for grant in kept.grants:
        gate.held_calls.apply_grant(grant)


def _kept(of: type[T], part: object) -> T:
    return of(**{name: getattr(part, name) for name in of.__struct_fields__})


def _written(given: object) -> Any:
    """An error as it is recorded; a foreign object as its text."""
    return described(given) if isinstance(given, BaseException) else error_text(given)


def _read_error(wanted: type, given: Any) -> Any:
    """A `ProviderError` with the name, code and details of the original."""
    error = type(given["type"], (ProviderError,), {"code": given.get("code")})(given["message"])
    error.details = given.get("details", {})
    return error
