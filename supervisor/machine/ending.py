"""How a run ends: its one terminal event, and what the caller is told."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec

from proctor.policies.stream.calls import STRICTNESS, UNREADABLE, Usage, Violation
from proctor.policies.stream.events import Event, RunCancelled, RunCompleted, RunFailed
from proctor.policies.values.foreign import error_text, isolated

from ..errors import ProviderError
from ..store.codec import ENDINGS
from .boundary.inputs import AdapterEnded
from .boundary.judge import SettledReport
from .boundary.result import Outcome, PolicyReport, strictest
from .events.sizes import within_bounds
from .provider_events import ProviderEnd, ProviderEvents
from .run_state import Cause, RunState, because

BROKEN = ("store", "fault", "lost")
"""Causes of cancelling that mean the run has failed."""


def ended(
    state: RunState, reports: ProviderEvents, adapter_end: AdapterEnded, notes: Mapping[str, Any]
) -> tuple[Event, Outcome]:
    """The event that ends the run, still to be recorded, and what the caller is told; the judge has settled then."""
    cause, end = state.cause, reports.end
    event = terminal_event(cause, end, adapter_end.error, adapter_end.evidence, state.judge.usage)
    terminal = state.stamp(within_bounds(event))
    settled = None
    if not state.faulted:
        found = [*state.judge.observe(terminal)]
        settled = state.judge.finish()
        state.follow(unseen([*found, *settled.violations], state.findings), ended=True)
    outcome = Outcome(
        status=ENDINGS[type(terminal)],
        policy=report_of(state, settled, notes),
        usage=msgspec.structs.replace(state.judge.usage),
        output=reports.output,
        reason=because(state.refusal) if state.refusal else cause.reason if cause else "",
        refusal=state.refusal,
        error=error_owed(cause, end, adapter_end.error),
    )
    state.ended = True
    return terminal, outcome


def end_without(refused: Exception, end: Event | None = None) -> Event:
    """The end of a run whose record lacks what the store refused: its own (`end`), unless it had completed."""
    return RunFailed(error=described(refused)) if end is None or isinstance(end, RunCompleted) else end


def torn_down(state: RunState, reports: ProviderEvents, error: Exception) -> Outcome:
    """What is known of a run that was left before it could end."""
    return Outcome(
        status="failed",
        policy=report_of(state, None, {}),
        usage=msgspec.structs.replace(state.judge.usage),
        output=reports.output,
        error=error,
    )


def terminal_event(
    cause: Cause | None,
    end: ProviderEnd | None,
    error: BaseException | None,
    evidence: dict[str, Any],
    usage: Usage,
) -> Event:
    """The event that ends the run."""
    used = msgspec.to_builtins(usage)
    if cause is not None and cause.kind in BROKEN:
        return RunFailed(error=described(cause.error), usage=used)
    if cause is not None:
        return RunCancelled(reason=cause.reason, by=cause.person, evidence=evidence, usage=used)
    if error is not None:
        return RunFailed(error=described(error), usage=used)
    if end is None or not end.completed:
        return RunFailed(error=described(provider_error(end, None)), usage=used)
    return RunCompleted(output=end.output, usage=used)


def provider_error(end: ProviderEnd | None, error: BaseException | None) -> BaseException | None:
    """The provider's own error: what its client raised, or what its last event said."""
    if error is not None or (end is not None and end.completed):
        return error
    if end is None:
        return ProviderError("the provider's stream ended without a result")
    details = end.error if isinstance(end.error, dict) else {"message": end.error}
    message = details.get("message") or "the provider reported a failure"
    return ProviderError(str(message), details=details)


def error_owed(cause: Cause | None, end: ProviderEnd | None, error: BaseException | None) -> BaseException | None:
    """The error for the caller: None after a requested cancel, the cause where something broke."""
    if cause is None:
        return provider_error(end, error)
    if cause.kind in BROKEN:
        return cause.error
    if cause.kind == "policy":
        return provider_error(end, error) if error is not None or end is not None else None
    return None


def report_of(state: RunState, settled: SettledReport | None, notes: Mapping[str, Any]) -> PolicyReport:
    """The policies' report on a run; of a faulted judge, only what it found before."""
    findings = tuple(state.findings)
    action = "cancel" if state.refusal else strictest(findings)
    if state.approved and STRICTNESS[action] < STRICTNESS["request_approval"]:
        action = "request_approval"
    if settled is None:
        return PolicyReport(action=action, violations=findings, metadata={**notes})
    rules = dict(settled.rules)
    idle = [rule_id for rule_id, rule in rules.items() if rule.status == "not_exercised"]
    metadata = {**notes, **state.judge.metadata, "not_exercised": idle}
    return PolicyReport(action=action, violations=findings, metadata=metadata, rules=rules)


def described(error: BaseException | None) -> dict[str, Any]:
    """An error as a record holds it."""
    message = error_text(error).encode("utf-8", "backslashreplace").decode()  # lone surrogates cannot be stored
    record: dict[str, Any] = {"type": type(error).__name__, "message": message}
    code = _attribute(error, "code")
    if isinstance(code, (str, int)):
        record["code"] = code
    details = _attribute(error, "details")
    if isinstance(details, dict) and details:
        try:
            record["details"] = isolated(msgspec.to_builtins, details, enc_hook=error_text, str_keys=True)
        except Exception:
            record["details"] = plain(details)
    return record


def _attribute(error: object, name: str) -> object:
    try:
        return isolated(getattr, error, name, None)
    except Exception:
        return None


def plain(given: object) -> Any:
    """What code of others reported, as a record can hold it: in place of what it cannot, how that shows itself."""
    try:
        return msgspec.json.decode(msgspec.json.encode(given, enc_hook=error_text))
    except UNREADABLE:
        return error_text(given).encode("utf-8", "backslashreplace").decode()


def unseen(found: list[Violation], earlier: list[Violation]) -> list[Violation]:
    """The violations that are not among those known already, each once."""
    seen = set(map(_mark, earlier))
    first = {_mark(violation): violation for violation in reversed(found)}
    return [violation for violation in found if first[_mark(violation)] is violation and _mark(violation) not in seen]


_mark = attrgetter("policy", "rule", "kind", "tool_call_id", "message")
"""What two findings of one violation have in common."""
