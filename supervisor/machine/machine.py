"""The machine of one run: `handle(input)` returns effects, and nothing else happens.

It is synchronous and without I/O; the actor owns it, feeds it and carries out its effects.

# INVARIANT: by construction, whatever the order of inputs - the adapter is cancelled at most once; exactly
# one terminal event is recorded and none after it; no proposal is answered twice; a call is permitted only
# when its record is durable; a violation is stored before the cancel it causes is sent, unless the store
# has failed, and then the cancel is sent all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.policies import events as ev
from proctor.policies.monitor.call_table import CallTable
from proctor.policies.monitor.monitor import Monitor
from proctor.policies.policy import Approval
from proctor.policies.values.foreign_code import is_signal

from ..arguments import BOUNDS, RecordBounds
from ..ports.stored_types import ApprovalRequest
from ..redaction import UNREDACTED, Redactor, SessionRedactor
from . import ending, interface
from .ending import RunEnding
from .gate import GateKeeper
from .provider_events import ProviderEvents
from .reservations import BudgetLine, Budgets
from .resume import HistoryReplay, past_of, read_snapshot, restore, snapshot
from .run_state import AnswerDue, ApprovalDue, CancelDue, Deferred, EndDue, RecordCounts, RunIdentity, RunState, lost


class RunMachine:
    """One run from its start to its one terminal event.

    `approval` says how long a held call waits and what then, in place of the policy's own; if nobody is `answerable`,
    it is refused at once. `earlier_grants` are those an earlier run of the session left (see `resume.past_of`).
    `notes` are more metadata for the report.
    """

    __slots__ = (
        "_budgets",
        "_clocked",
        "_deadline",
        "_gate",
        "_handles",
        "_net_changes",
        "_reports",
        "_run_ending",
        "_state",
        "_warns",
        "outbox",
        "signal",
    )

    def __init__(
        self,
        identity: RunIdentity,
        monitor: Monitor,
        *,
        approval: Approval | None = None,
        earlier_grants: Iterable[ev.ToolApprovalGranted] = (),
        model: str | None = None,
        notes: Mapping[str, Any] | None = None,
        answerable: bool = True,
        redactor: Redactor = UNREDACTED,
        bounds: RecordBounds = BOUNDS,
    ) -> None:
        self._state = RunState(identity, monitor, redactor, RecordCounts(bounds))
        monitor.state.compare_redacted(SessionRedactor(redactor, identity.session_id))
        self.outbox = self._state.outbox
        self.signal: BaseException | None = None  # raised by a handler of the program's signals while it evaluated
        lines = list(map(BudgetLine, monitor.budgets))
        self._budgets = Budgets(self._state, lines) if lines else None
        program = monitor.state.program
        self._gate = GateKeeper(
            self._state, approval or program.approval, earlier_grants, answerable=answerable, budgets=self._budgets
        )
        self._reports = ProviderEvents(self._state, model=model)
        self._warns = bool(program.limits.warns)
        self._clocked = program.limits.has_clocks
        self._deadline: int | None = None
        self._handles = False
        self._net_changes: tuple[ev.Event, ...] = ()  # of the input that it handles
        self._run_ending = RunEnding(self._state, self._gate, self._reports, self._budgets, notes or {})

    @classmethod
    def resume(
        cls, identity: RunIdentity, monitor: Monitor, history: Sequence[ev.Event], **settings: Any
    ) -> RunMachine:
        """The machine of a run, rebuilt from the record; see this package for how a second shell drives it.

        `history` is the session's record, in order, which the monitor observes. A run that is not in the record is
        new, not `begun`. `settings` are the arguments of the constructor.
        """
        past = past_of(identity, history)
        identity = msgspec.structs.replace(identity, turns_before=past.turns, events_before=past.last_seq)
        machine = cls(identity, monitor, earlier_grants=past.grants, **settings)
        for event in history:
            monitor.observe(event)
            own_use = isinstance(event, ev.TokenUsageUpdated) and event.run_id == identity.run_id
            if own_use and machine._budgets is not None:
                machine._budgets.record_use()
        monitor.warnings()  # those are on record
        HistoryReplay(machine._state, machine._gate, machine._reports, machine._budgets).replay(history)
        return machine

    @classmethod
    def restore(cls, data: bytes, monitor: Monitor, **settings: Any) -> RunMachine:
        """The machine of a snapshot, with its monitor as it was at that moment. `settings` are the arguments of the
        constructor. Its shell still has to answer earlier effects; asynchronous checks may be requested again.

        Raises EventError for bytes that are not a snapshot.
        """
        kept = read_snapshot(data)
        machine = cls(kept.identity, monitor, **settings)
        restore(kept, machine._run_ending)
        machine._deadline = kept.deadline
        return machine

    def snapshot(self) -> bytes:
        """The machine as bytes, without its monitor and settings, with the exact input of its calls.

        Raises EventError if events were not drained by `drain_record` first, or for what JSON cannot hold.
        """
        return snapshot(self._run_ending, self._deadline)

    @property
    def monitor(self) -> Monitor:
        """The monitor of its session; a net that joins or leaves it counts from the next call on."""
        return self._state.monitor

    def handle(self, input: interface.Input) -> Sequence[interface.Effect]:
        """Handle one input and return effects, which are to be carried out in order, before the next input. The
        events it recorded are among `unwritten`.

        A function of a policy may change nets while it evaluates a call: that is recorded after what it evaluates,
        which is decided by the nets from before.
        """
        state = self._state
        within, self._handles = self._handles, True
        if input.now_ms > state.now_ms:
            state.advance_clock(input.now_ms)
        try:
            if type(input) is interface.Reported:  # almost always
                if state.ending is None:
                    self._reports.handle_event(input.event)
            elif not (state.ended and isinstance(input, _NOT_AFTER_THE_END)):
                _HANDLERS[type(input)](self, input)
            if self._net_changes and not within:
                self._record_net_changes()
            if self._budgets is not None:
                self._budgets.check()
            if self._warns and self.outbox.unwritten and not state.ended:
                state.record_warnings()
        except BaseException as error:  # a monitor that raises refuses: the run is cancelled with its error
            self._run_ending.fault(error)
            self.signal = error if is_signal(error) else self.signal
        self._handles = within
        if state.cause is not None:
            self._run_ending.stop_once(state.cause)
        effects = self._due(ready) if (ready := self.outbox.drain()) else ()
        # Only calls, approvals and the start can bring a deadline nearer; what moves it further is seen when
        # the alarm rings early.
        if type(input) is not interface.Reported or (self._clocked and type(input.event) not in _LEAVES_DEADLINES):
            return self._armed(effects)
        return effects

    @property
    def unwritten(self) -> Sequence[ev.Event]:
        """The events recorded since the last `drain_record`."""
        return self.outbox.unwritten

    def drain_record(self) -> list[ev.Event]:
        """The events to store next, redacted, in order, as one unit; the input `Stored` is to follow."""
        return self.outbox.drain_record()

    @property
    def begun(self) -> bool:
        """Whether the run has started: `Begin` is the first input of one that has not."""
        return self._state.begun

    @property
    def ended(self) -> bool:
        """Whether the run is over: its terminal event is recorded, and every call is refused."""
        return self._state.ended

    @property
    def seq(self) -> int:
        """The `seq` of the latest event recorded."""
        return self._state.seq

    @property
    def turn(self) -> int:
        """The number of the current turn, from 1 in each run, as providers count."""
        return self._reports.turn

    @property
    def calls(self) -> CallTable:
        """The calls that have not ended, each with its state."""
        return self._state.monitor.calls

    @property
    def provider_done(self) -> bool:
        """Whether the provider has reported its end."""
        return self._reports.end is not None

    @property
    def cancelling(self) -> bool:
        return self._state.cause is not None

    @property
    def requests(self) -> list[ApprovalRequest]:
        return self._gate.held_calls.requests()

    def aborted(self, error: Exception) -> interface.Outcome:
        """The outcome of a run whose shell ends before it; nothing is recorded."""
        return ending.aborted(self._state, self._reports, error)

    def _armed(self, effects: Sequence[interface.Effect]) -> Sequence[interface.Effect]:
        deadline = self._next_deadline()
        if deadline == self._deadline:
            return effects
        self._deadline = deadline
        return [*effects, interface.ArmDeadline(at_ms=deadline)]

    def _due(self, ready: Sequence[interface.Effect | Deferred]) -> Sequence[interface.Effect]:
        effects: list[interface.Effect] = []
        for each in ready:
            effect = each if isinstance(each, interface.Effect) else self._effect_of(each)
            if effect is not None:
                effects.append(effect)
        return effects

    def _effect_of(self, deferred: Deferred) -> interface.Effect | None:
        """The effect that was deferred until now; None if it is not needed any more."""
        match deferred:
            case AnswerDue(key=key):
                return self._gate.deliver(key)
            case ApprovalDue(approval_id=approval_id):
                return self._gate.held_calls.shown(approval_id)
            case CancelDue(reason=reason):
                return None if self._state.ending else interface.CancelAdapter(reason=reason)
            case EndDue():
                return self._run_ending.due()

    def _next_deadline(self) -> int | None:
        if self._state.ended or self._state.cause is not None:
            return None
        due = self._state.monitor.deadline() if self._clocked and self._reports.end is None else None
        held = self._gate.held_calls
        expiry = held.next_expiry() if held.waiting else None
        if self._budgets is not None:
            moments = (due, expiry, self._budgets.deadline())
            return min((moment for moment in moments if moment is not None), default=None)
        return due if expiry is None else expiry if due is None else min(due, expiry)

    def _begin(self, input: interface.Begin) -> None:
        self._state.begin(input)
        if self._budgets is not None and self._state.cause is None:
            self._budgets.begin()

    def _nets_changed(self, input: interface.NetsChanged) -> None:
        self._net_changes = (*self._net_changes, input.event)

    def _record_net_changes(self) -> None:
        changes, self._net_changes = self._net_changes, ()
        for event in changes if not self._state.ended else ():
            self._state.record(event)

    def _input_changed(self, input: interface.InputChanged) -> None:
        if self._state.ending is None:
            self._reports.changed_input(input.event)

    def _answered(self, input: interface.ApprovalAnswered) -> None:
        self._gate.answered(input.approval_id, input.answer, input.tool_input)

    def _ticked(self, input: interface.Ticked) -> None:
        self._deadline = None  # the alarm has fired
        self._gate.held_calls.close_due()
        if self._reports.end is None:
            self._state.enforce(self._state.monitor.tick(input.now_ms))


_LEAVES_DEADLINES = frozenset(
    (ev.MessageStreamed, ev.MessageReceived, ev.MessageSent, ev.TokenUsageUpdated, ev.TurnStarted, ev.TurnCompleted)
)
_NOT_AFTER_THE_END = (
    interface.ApprovalAnswered,
    interface.Ticked,
    interface.CancelAsked,
    interface.NetsChanged,
    interface.Reserved,
    interface.Settled,
)
"""Inputs that are ignored after the run's end."""
_HANDLERS: dict[type, Callable[[RunMachine, Any], None]] = {
    interface.Begin: RunMachine._begin,
    interface.InputChanged: RunMachine._input_changed,
    interface.Proposed: lambda on, input: on._gate.proposed(input.key, input.call),
    interface.Checked: lambda on, input: on._gate.checked(input.key, input.answers),
    interface.Withdrawn: lambda on, input: on._gate.withdrawn(input.key, input.call_id),
    interface.ApprovalAnswered: RunMachine._answered,
    interface.Ticked: RunMachine._ticked,
    interface.CancelAsked: lambda on, input: on._run_ending.cancel_asked(input),
    interface.OwnerLost: lambda on, input: on._state.request_cancel(lost(input.error)),
    interface.NetsChanged: RunMachine._nets_changed,
    interface.Reserved: lambda on, input: on._run_ending.reserved(input),
    interface.Settled: lambda on, input: on._run_ending.settled(input),
    interface.AdapterEnded: lambda on, input: on._run_ending.adapter_ended(input),
    interface.Stored: lambda on, input: on._state.outbox.stored(input.count),
    interface.StoreFailed: lambda on, input: on._run_ending.store_failed(input.error),
    interface.Retried: lambda on, input: on._run_ending.retried(input),
}
