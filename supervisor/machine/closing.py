"""From the event that ends a run to its last command: the end is stored, or the caller hears what is lacking."""

from __future__ import annotations

import msgspec

from proctor.policies.stream.events import Event

from .boundary.commands import Finish, HurryRecord, RetryRecord
from .boundary.inputs import Retried
from .boundary.result import Outcome
from .ending import end_without
from .events.sizes import sized
from .run_state import Cause, RunState


class Closing:
    """Sees the record of a run to its end.

    # INVARIANT: of several terminal events that were written, the store has taken one at most: another is
    # written only when the store has refused the one before.
    """

    __slots__ = ("_end", "_error", "_lacking", "_outcome", "_replaced", "_state")

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._end: Event | None = None
        self._outcome: Outcome | None = None
        self._error: Exception | None = None
        self._lacking: Exception | None = None
        self._replaced = False

    def store_failed(self, error: Exception) -> None:
        """The record cannot be written: whatever waits for it waits no more, and the run is cancelled."""
        self._state.outbox.broken = True
        self._error = self._error or error
        if not self._state.ended:
            reason = f"the record cannot be written: {error}"
            self._state.order_cancel(Cause(kind="store", reason=reason, error=error))

    def conclude(self, end: Event, outcome: Outcome) -> None:
        """The run is over: write its end, and have the caller told when it is stored."""
        self._end, self._outcome = end, outcome
        outbox = self._state.outbox
        outbox.put(*sized(end))
        outbox.at_once(HurryRecord())
        outbox.after_record(lambda: RetryRecord(end=end) if outbox.broken else self._finished())

    def retried(self, retry: Retried) -> None:
        """The store was asked once more for what it lacked."""
        if retry.refused is not None and not self._replaced:
            end_refused = self._lacking is not None
            self._lacking = self._lacking or retry.refused
            self._rewrite(end_without(retry.refused, None if end_refused else self._end))
            return
        failed = retry.refused or retry.error
        self._error = failed and (self._error or failed)
        self._state.outbox.at_once(self._finished())

    def _rewrite(self, end: Event) -> None:
        self._replaced = end is not self._end
        self._end = self._state.stamp(end)
        self._state.outbox.put(*sized(self._end))
        self._state.outbox.at_once(RetryRecord(end=self._end))

    def _finished(self) -> Finish:
        assert self._outcome is not None
        status = "failed" if self._replaced else self._outcome.status
        error = self._lacking or self._error
        return Finish(outcome=msgspec.structs.replace(self._outcome, status=status, store_error=error))
