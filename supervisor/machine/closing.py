"""From the order to end a run to its last command: the end is stored, or the caller learns what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.policies.stream.events import Event
from proctor.policies.values.foreign import error_text

from ..errors import as_error
from .boundary.commands import CancelAdapter, Finish, HurryRecord, RetryRecord
from .boundary.inputs import AdapterEnded, CancelAsked, Reserved, Retried, Settled
from .boundary.result import Outcome
from .budgets import Budgets
from .ending import end_without, ended
from .events import approvals as approvals
from .events.sizes import sized
from .gate import GateKeeper
from .provider_events import ProviderEvents
from .run_state import Cause, RunState


@dataclass(slots=True, eq=False)
class Closing:
    """Sees a run to its end, and its record.

    Args:
        state: of the run.
        gate: refuses the calls that are open.
        reports: what the provider reported.
        budgets: the shared ones, told at the end what was used.
        notes: what else goes into the report's metadata.

    # INVARIANT: of several terminal events that were written, the store has taken one at most: another is
    # written only when the store has refused the one before.
    """

    state: RunState
    gate: GateKeeper
    reports: ProviderEvents
    budgets: Budgets | None
    notes: Mapping[str, Any]
    _stopping: bool = False
    _end: Event | None = None
    _outcome: Outcome | None = None
    _error: Exception | None = None
    _lacking: Exception | None = None
    _replaced: bool = False

    def cancel_asked(self, input: CancelAsked) -> None:
        """Somebody orders the run to end; the order changes nothing where the run is ending already."""
        state = self.state
        if state.ending is not None or self.reports.end is not None or state.cause is not None:
            return
        if input.approval is not None:
            request = msgspec.structs.replace(input.approval, held=False, requested_at=state.at)
            state.record(approvals.requested(request))
        state.order_cancel(Cause(kind=input.by, reason=input.reason, person=input.person))

    def fault(self, raised: BaseException) -> None:
        """Judging has failed, and so has the run; the judge is not called again."""
        error = as_error(raised)
        self.state.faulted = True
        self.state.order_cancel(Cause(kind="fault", reason=f"judging failed: {error_text(error)}", error=error))
        if self.state.ending is not None and not self.state.ended:
            self._conclude(self.state.ending)

    def store_failed(self, error: Exception) -> None:
        """The record cannot be written: what waits for it is let go, and the run is cancelled."""
        self.state.outbox.broken = True
        self._error = self._error or error
        if not self.state.ended:
            reason = f"the record cannot be written: {error_text(error)}"
            self.state.order_cancel(Cause(kind="store", reason=reason, error=error))

    def stop_once(self, cause: Cause) -> None:
        """Tell the agent to stop, once, as soon as the reason is on record."""
        if self._stopping:
            return
        self._stopping = True
        self.gate.refuse_open(cause.reason, decision="cancel")
        state = self.state
        state.outbox.at_once(HurryRecord())
        state.outbox.after_record(lambda: None if state.ending else CancelAdapter(reason=cause.reason))

    def adapter_ended(self, input: AdapterEnded) -> None:
        """The agent is gone: the run ends, once the store knows what it used of shared budgets."""
        if self.state.ending is None:
            self.state.ending = input
            self.gate.refuse_open("the run has ended", decision="run_ended")
            if self.budgets is None:
                self._conclude(input)
            else:
                self.budgets.settle()

    def reserved(self, input: Reserved) -> None:
        """The store has answered a draw on shared budgets."""
        assert self.budgets is not None
        self.budgets.reserved(input.drawn, input.error)
        if self.state.ending is not None:
            self.budgets.settle()

    def settled(self, input: Settled) -> None:
        """What the last response used is known to the store, as far as that answers."""
        assert self.budgets is not None
        if self.state.ending is not None:
            self.budgets.settled(input.drawn)
            self._conclude(self.state.ending)

    def retried(self, retry: Retried) -> None:
        """The store was asked once more for what it lacked."""
        if retry.refused is not None and not self._replaced:
            end_refused = self._lacking is not None
            self._lacking = self._lacking or retry.refused
            self._rewrite(end_without(retry.refused, None if end_refused else self._end))
            return
        failed = retry.refused or retry.error
        self._error = failed and (self._error or failed)
        self.state.outbox.at_once(self._finished())

    def _conclude(self, input: AdapterEnded) -> None:
        """Write the end of the run, and have the caller told when it is stored."""
        self.state.hand_over_warnings()
        end, outcome = ended(self.state, self.reports, input, self.notes)
        self._end, self._outcome = end, outcome
        outbox = self.state.outbox
        outbox.put(*sized(end))
        outbox.at_once(HurryRecord())
        outbox.after_record(lambda: RetryRecord(end=end) if outbox.broken else self._finished())

    def _rewrite(self, end: Event) -> None:
        self._replaced = end is not self._end
        self._end = self.state.stamp(end)
        self.state.outbox.put(*sized(self._end))
        self.state.outbox.at_once(RetryRecord(end=self._end))

    def _finished(self) -> Finish:
        assert self._outcome is not None
        status = "failed" if self._replaced else self._outcome.status
        error = self._lacking or self._error
        return Finish(outcome=msgspec.structs.replace(self._outcome, status=status, store_error=error))
