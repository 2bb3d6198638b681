"""How a run ended, from its events: whoever asks need not be the process that ran it."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.policies.stream.calls import Violation
from proctor.policies.stream.events import Event, PolicyViolated, RunCancelled, RunCompleted, RunFailed
from proctor.supervisor.errors import OwnerLostError, ProviderError
from proctor.supervisor.machine.boundary.result import Outcome, PolicyReport, RunResult, conclude, strictest
from proctor.supervisor.machine.events.sizes import weight
from proctor.supervisor.ports.facts import RunInfo
from proctor.supervisor.run.kept_events import KeptEvents
from proctor.supervisor.store.codec import Status

_OF_A_VIOLATION = tuple(name for name in Violation.__struct_fields__ if name in PolicyViolated.__struct_fields__)


class Followed:
    """The events of a run as they come."""

    def __init__(self) -> None:
        self._kept = KeptEvents()
        self._violations: list[Violation] = []
        self._end: Event | None = None

    def take(self, event: Event) -> None:
        """The next one."""
        self._kept.add((event,), weight(event))
        if isinstance(event, PolicyViolated):
            self._violations.append(_violation(event))
        elif isinstance(event, RunCompleted | RunFailed | RunCancelled):
            self._end = event

    def result(self, run: RunInfo) -> RunResult:
        """The result of the run, which is over; raises what `RunHandle.wait` does instead of one."""
        events = self._kept.latest()
        before, session_id = self._kept.before, run.session_id
        return conclude(
            self._outcome(run), run_id=run.run_id, session_id=session_id, events=events, events_before=before
        )

    def _outcome(self, run: RunInfo) -> Outcome:
        end = self._end
        status: Status = "failed"
        if isinstance(end, RunCompleted):
            status = "completed"
        elif isinstance(end, RunCancelled):
            status = "cancelled"
        action = strictest(self._violations)
        return Outcome(
            status=status,
            policy=PolicyReport(action=action, violations=tuple(self._violations)),
            usage=run.usage,
            output=end.output if isinstance(end, RunCompleted) else None,
            reason=end.reason if isinstance(end, RunCancelled) else "",
            refusal=next(filter(_ended_it, self._violations), None) if status == "cancelled" else None,
            error=_error(end.error if isinstance(end, RunFailed) else None) if status == "failed" else None,
        )


def _ended_it(violation: Violation) -> bool:
    """Whether a violation ended its run; what was found while something else ended it was only observed."""
    how = violation.enforcement
    return how == "interrupted" or (violation.action == "cancel" and how == "prevented")


def _violation(event: PolicyViolated) -> Violation:
    return msgspec.convert({name: getattr(event, name) for name in _OF_A_VIOLATION}, Violation)


def _error(recorded: Any) -> Exception:
    """A recorded error as one to raise."""
    described: dict[str, Any] = (
        recorded if isinstance(recorded, dict) else {"message": str(recorded or "the run failed")}
    )
    message = str(described.get("message") or "the run failed")
    if described.get("code") == OwnerLostError.code:
        return OwnerLostError(message, details=described.get("details"))
    return ProviderError(message, details=described)
