"""How a run ends: its one terminal event, and the outcome for the caller."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec

from proctor.policies.errors import Violation
from proctor.policies.events import Event, RunCancelled, RunCompleted, RunFailed
from proctor.policies.events.run_context import Usage
from proctor.policies.monitor.monitor import Report
from proctor.policies.values.foreign_code import as_error, error_text, isolated, to_jsonable

from ..errors import ProviderError
from ..store.records import ENDINGS
from . import event_factory, interface
from .gate import GateKeeper
from .provider_events import ProviderEnd, ProviderEvents
from .reservations import Budgets
from .run_state import CancelCause, CancelDue, EndDue, RunState, cancel_reason, sized, within_bounds

BROKEN = ("store", "fault", "lost")
"""Causes of a cancel by which the run has failed."""


def terminal_event_and_outcome(
    state: RunState, reports: ProviderEvents, adapter_end: interface.AdapterEnded, notes: Mapping[str, Any]
) -> tuple[Event, interface.Outcome]:
    """The terminal event, still to be recorded, and the outcome; the monitor is finished by then."""
    cause, end = state.cause, reports.end
    error = caller_error(cause, end, adapter_end.error)
    event = terminal_event(cause, end, error, adapter_end.evidence, state.monitor.usage)
    terminal = state.stamp(within_bounds(event))
    settled = None
    if not state.faulted:
        found = [*state.monitor.observe(terminal)]
        settled = state.monitor.finish()
        state.enforce(new_violations([*found, *settled.violations], state.findings), ended=True)
    outcome = interface.Outcome(
        status=ENDINGS[type(terminal)],
        policy=report_of(state, settled, notes),
        usage=msgspec.structs.replace(state.monitor.usage),
        output=reports.output,
        reason=cancel_reason(state.refusal) if state.refusal else cause.reason if cause else "",
        refusal=state.refusal,
        error=error,
    )
    state.ended = True
    return terminal, outcome


def end_without(refused: Exception, end: Event | None = None) -> Event:
    """The terminal event if the store refused events of the run: `end`, unless that says that the run completed."""
    return RunFailed(error=described(refused)) if end is None or isinstance(end, RunCompleted) else end


def aborted(state: RunState, reports: ProviderEvents, error: Exception) -> interface.Outcome:
    """The outcome of a run whose shell ends before the run could."""
    return interface.Outcome(
        status="failed",
        policy=report_of(state, None, {}),
        usage=msgspec.structs.replace(state.monitor.usage),
        output=reports.output,
        error=error,
    )


def terminal_event(
    cause: CancelCause | None,
    end: ProviderEnd | None,
    error: BaseException | None,
    evidence: dict[str, Any],
    usage: Usage,
) -> Event:
    """The terminal event of a run with this error for its caller; only one that completed has neither that nor a
    cause.
    """
    used = msgspec.to_builtins(usage)
    if cause is not None and cause.kind not in BROKEN:
        return RunCancelled(reason=cause.reason, by=cause.person, evidence=evidence, usage=used)
    if end is None or error is not None:
        return RunFailed(error=described(error), usage=used)
    return RunCompleted(output=end.output, usage=used)


def provider_error(end: ProviderEnd | None, error: BaseException | None) -> BaseException | None:
    """The provider's own error: raised by its client, or reported by its last event."""
    if error is not None or (end is not None and end.completed):
        return error
    if end is None:
        return ProviderError("the provider's stream ended without a result")
    details = end.error if isinstance(end.error, dict) else {"message": end.error}
    message = details.get("message") or "the provider reported a failure"
    return ProviderError(str(message), details=details)


def caller_error(
    cause: CancelCause | None, end: ProviderEnd | None, error: BaseException | None
) -> BaseException | None:
    """The error for the caller: None after a requested cancel, the cause where something broke."""
    if cause is None:
        return provider_error(end, error)
    if cause.kind in BROKEN:
        return cause.error
    if cause.kind == "policy":
        return provider_error(end, error) if error is not None or end is not None else None
    return None


def report_of(state: RunState, settled: Report | None, notes: Mapping[str, Any]) -> interface.PolicyReport:
    """The policies' report on a run; after a fault of the monitor, only what it found before."""
    findings = tuple(state.findings)
    action = interface.reported_action(findings, refused=state.refusal is not None, approved=state.approved)
    if settled is None:
        return interface.PolicyReport(action=action, violations=findings, metadata={**notes})
    rules = dict(settled.rules)
    idle = [rule_id for rule_id, rule in rules.items() if rule.status == "not_exercised"]
    metadata = {**notes, **state.monitor.metadata, "not_exercised": idle}
    return interface.PolicyReport(action=action, violations=findings, metadata=metadata, rules=rules)


def described(error: BaseException | None) -> dict[str, Any]:
    """An error as it is recorded."""
    record: dict[str, Any] = {"type": type(error).__name__, "message": error_text(error)}
    code = _attribute(error, "code")
    if isinstance(code, (str, int)):
        record["code"] = code
    details = _attribute(error, "details")
    if isinstance(details, dict) and details:
        try:
            record["details"] = isolated(msgspec.to_builtins, details, enc_hook=error_text, str_keys=True)
        except Exception:
            record["details"] = to_jsonable(details)
    return record


def _attribute(error: object, name: str) -> object:
    try:
        return isolated(getattr, error, name, None)
    except Exception:
        return None


def new_violations(found: list[Violation], earlier: list[Violation]) -> list[Violation]:
    """The violations that are not among the earlier ones, each once."""
    seen = set(map(_mark, earlier))
    first = {_mark(violation): violation for violation in reversed(found)}
    return [violation for violation in found if first[_mark(violation)] is violation and _mark(violation) not in seen]


_mark = attrgetter("policy", "rule", "kind", "tool_call_id", "message")
"""The fields that two findings of one violation have in common."""


@dataclass(slots=True, eq=False)
class RunEnding:
    """Cancels a run, ends it, and has its last events stored; `notes` go into the report's metadata.

    # INVARIANT: the store has at most one terminal event: another is written only after it refused the first.
    """

    state: RunState
    gate: GateKeeper
    reports: ProviderEvents
    budgets: Budgets | None
    notes: Mapping[str, Any]
    _stopping: bool = False
    _end: Event | None = None
    _outcome: interface.Outcome | None = None
    _error: Exception | None = None
    _lacking: Exception | None = None
    _replaced: bool = False

    def cancel_asked(self, input: interface.CancelAsked) -> None:
        """Cancel the run by request, unless it is ending already."""
        state = self.state
        if state.ending is not None or self.reports.end is not None or state.cause is not None:
            return
        if input.approval is not None:
            request = msgspec.structs.replace(input.approval, held=False, requested_at=state.at)
            state.record(event_factory.requested(request))
        state.request_cancel(CancelCause(kind="user", reason=input.reason, person=input.person))

    def fault(self, raised: BaseException) -> None:
        """The monitor has raised: fail the run, and never call the monitor again."""
        error = as_error(raised)
        self.state.faulted = True
        self.state.request_cancel(
            CancelCause(kind="fault", reason=f"evaluation failed: {error_text(error)}", error=error)
        )
        if self.state.ending is not None and not self.state.ended:
            self._conclude(self.state.ending)

    def store_failed(self, error: Exception) -> None:
        """The store has failed: return what waited for it, and cancel the run."""
        self.state.outbox.broken = True
        self._error = self._error or error
        if not self.state.ended:
            reason = f"the record cannot be written: {error_text(error)}"
            self.state.request_cancel(CancelCause(kind="store", reason=reason, error=error))

    def stop_once(self, cause: CancelCause) -> None:
        """Cancel the agent, once, as soon as the cause is on record."""
        if self._stopping:
            return
        self._stopping = True
        self.gate.deny_open(cause.reason, decision="cancel")
        state = self.state
        state.outbox.at_once(interface.BoundFlush())
        state.outbox.after_record(CancelDue(cause.reason))

    def adapter_ended(self, input: interface.AdapterEnded) -> None:
        """The agent has ended: end the run once its shared budgets are settled."""
        if self.state.ending is None:
            self.state.ending = input
            self.gate.deny_open("the run has ended", decision="run_ended")
            if self.budgets is None:
                self._conclude(input)
            else:
                self.budgets.settle()

    def reserved(self, input: interface.Reserved) -> None:
        """The store has answered a reservation of shared budgets."""
        assert self.budgets is not None
        self.budgets.reserved(input.results, input.error)
        if self.state.ending is not None:
            self.budgets.settle()

    def settled(self, input: interface.Settled) -> None:
        """The shared budgets are settled: end the run."""
        assert self.budgets is not None
        if self.state.ending is not None:
            self.budgets.settled(input.results)
            self._conclude(self.state.ending)

    def retried(self, retry: interface.Retried) -> None:
        if retry.refused is not None and not self._replaced:
            end_refused = self._lacking is not None
            self._lacking = self._lacking or retry.refused
            self._rewrite(end_without(retry.refused, None if end_refused else self._end))
            return
        self._error = retry.error and (self._error or retry.error)
        self.state.outbox.at_once(self._finished())

    def due(self) -> interface.Effect:
        """All events are stored, or the store has failed: finish the run, or retry the store."""
        assert self._end is not None
        return interface.RetryRecord(end=self._end) if self.state.outbox.broken else self._finished()

    def _conclude(self, input: interface.AdapterEnded) -> None:
        """Record the end of the run; the run finishes when it is stored."""
        self.state.record_warnings()
        end, outcome = terminal_event_and_outcome(self.state, self.reports, input, self.notes)
        self._end, self._outcome = end, outcome
        outbox = self.state.outbox
        outbox.put(*sized(end))
        outbox.at_once(interface.BoundFlush())
        outbox.after_record(EndDue())

    def _rewrite(self, end: Event) -> None:
        self._replaced = end is not self._end
        self._end = self.state.stamp(end)
        self.state.outbox.put(*sized(self._end))
        self.state.outbox.at_once(interface.RetryRecord(end=self._end))

    def _finished(self) -> interface.Finish:
        assert self._outcome is not None
        status = "failed" if self._replaced else self._outcome.status
        error = self._lacking or self._error
        return interface.Finish(outcome=msgspec.structs.replace(self._outcome, status=status, store_error=error))
