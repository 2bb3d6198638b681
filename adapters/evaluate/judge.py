"""Sessions to records: every event of a recorded session judged by one monitor, in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from proctor.adapters.kit.tool_names import recorded_tools
from proctor.adapters.traces import TraceSession
from proctor.policies.monitor.answers.report import Report
from proctor.policies.monitor.compiled import CompiledPolicy
from proctor.policies.preflight.checks.missing_context import missing_context
from proctor.policies.stack.clauses import clauses_of
from proctor.policies.stream.calls import STRICTNESS, Decision, RunContext, ToolCall, Violation
from proctor.policies.stream.events import (
    BudgetWarned,
    Event,
    PolicyViolated,
    RunStarted,
    ToolApprovalGranted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)

from .results import DecisionRecord, SessionReport, ViolationRecord
from .whose import whose

_EARLIER_CONCLUSIONS = (PolicyViolated, BudgetWarned)
"""What another policy concluded when the session was recorded is no fact of the session."""


def judge_sessions(
    compiled: CompiledPolicy,
    sessions: Iterable[TraceSession],
    context: RunContext | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[TraceSession, SessionReport]]:
    """Judge sessions as they come, each by a monitor of its own.

    `progress` is told how many were judged so far. Raises what reading the sessions raises.
    """
    for count, session in enumerate(sessions, 1):
        yield session, judge_session(compiled, session, context)
        if progress is not None:
            progress(count)


def judge_session(
    compiled: CompiledPolicy, session: TraceSession, context: RunContext | None = None
) -> SessionReport:
    """Judge one session under a compiled policy.

    A call that was requested is proposed, as at a gate; whatever else is recorded has happened. `context` is
    what rules name in `when`; session and model are filled in where the record has them.
    """
    judge = _Judge(compiled, session, context or RunContext())
    for event in session.events:
        judge.take(event)
    return judge.finished()


class _Judge:
    """One session being judged. A call that breaks a rule breaks it once, though it was requested and ran.

    `_seen` are the rules that the calls known by their ids have broken; an id that is used again, in this run or a
    later one, is another call. `_held` are the calls that wait for a person.
    """

    def __init__(self, compiled: CompiledPolicy, session: TraceSession, context: RunContext) -> None:
        self._session = session
        self._compiled = compiled = compiled.for_tools(recorded_tools(session.events, session.format))
        context = filled(context, session)
        self._monitor = compiled.monitor(context)
        self._found: list[ViolationRecord] = []
        self._seen: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._over: set[str] = set()
        self._held: dict[str, tuple[ToolCall, bool]] = {}
        self._never_ran = _never_ran(session)
        self._decisions: list[DecisionRecord] = []
        self._seq = 0
        self._unjudged = unjudged(compiled, context)
        self._found += self._unjudged

    def take(self, event: Event) -> None:
        """Judge one event."""
        if isinstance(event, _EARLIER_CONCLUSIONS):
            return
        self._seq = event.seq
        self._follow(event)
        if isinstance(event, ToolCallRequested):
            self._requested(event)
            return
        for violation in self._monitor.observe(event):
            self._add(violation)
        if isinstance(event, ToolApprovalGranted) and event.tool_call_id in self._held:
            call, ran = self._held[event.tool_call_id]
            self._withdraw(call.id)
            self._propose(call, ran=ran)

    def _follow(self, event: Event) -> None:
        """Know which calls the ids stand for."""
        match event:
            case RunStarted():
                self._seen.clear()
                self._over.clear()
                self._held.clear()
            case ToolCallRequested(tool_call_id=id) | ToolCallStarted(tool_call_id=id) if id in self._over:
                self._seen.pop(id, None)
                self._over.discard(id)
            case ToolCallCompleted(tool_call_id=id) | ToolCallFailed(tool_call_id=id):
                self._over.add(id)
            case ToolCallDenied(tool_call_id=id):
                self._held.pop(id, None)

    def _requested(self, event: ToolCallRequested) -> None:
        call = ToolCall(id=event.tool_call_id, name=event.tool_name, input=event.tool_input, turn=event.turn)
        ran = event.seq not in self._never_ran
        decision = self._propose(call, ran=ran)
        if not ran:
            self._monitor.observe(event)
        rules = [violation.rule for violation in decision.violations]
        self._decisions.append(DecisionRecord(tool_call_id=call.id, action=decision.action, violations=rules))

    def _propose(self, call: ToolCall, *, ran: bool) -> Decision:
        """Judge a call as at a gate; one that is held is judged again once a person has agreed."""
        judge = self._monitor
        if not ran:
            # What would have been let through did not run all the same, so it must not be spent.
            judge = self._compiled.restore(judge.snapshot())
        decision = judge.propose(call)
        for violation in decision.violations:
            self._add(violation)
        if decision.action == "request_approval":
            self._held[call.id] = call, ran
        else:
            self._held.pop(call.id, None)
        return decision

    def _withdraw(self, id: str) -> None:
        """A person approved the call: what asked for that has what it asked for."""
        approved = [f for f in self._found if f.tool_call_id == id and f.action == "request_approval"]
        self._found = [f for f in self._found if f not in approved]
        self._seen[id] -= {(f.policy, f.rule) for f in approved}

    def finished(self) -> SessionReport:
        """Settle what the session leaves open and report."""
        report = self._monitor.finish() if self._session.complete else self._monitor.report()
        for violation in report.violations:
            self._add(violation)
        return SessionReport(
            session=self._session.id,
            whose=whose(self._session),
            passed=not self._found,
            violations=self._found,
            rules={**{name: rule.status for name, rule in report.rules.items()}, **self._broken(report)},
            unjudged=[each.rule for each in self._unjudged] or msgspec.UNSET,
            decisions=self._decisions or msgspec.UNSET,
        )

    def _broken(self, report: Report) -> dict[str, str]:
        return {found.rule: "violated" for found in self._found if found.rule in report.rules}

    def _add(self, violation: Violation) -> None:
        if violation.tool_call_id is not None:
            broken, rule = self._seen[violation.tool_call_id], (violation.policy, violation.rule)
            if rule in broken:
                return
            broken.add(rule)
        fields = msgspec.structs.asdict(violation)
        self._found.append(msgspec.convert({**fields, "seq": self._seq}, ViolationRecord))


def _never_ran(session: TraceSession) -> set[int]:
    """The places of the requests whose calls are known not to have run; of an id used again, each by itself."""
    starts = {event.tool_call_id for event in session.events if isinstance(event, ToolCallStarted)}
    found: set[int] = set()
    open: dict[str, int] = {}
    for event in session.events:
        match event:
            case RunStarted():
                found.update(seq for id, seq in open.items() if id in starts)
                open.clear()
            case ToolCallRequested(tool_call_id=id, seq=seq):
                if id in open and id in starts:
                    found.add(open[id])
                open[id] = seq
                if id in session.never_ran:
                    found.add(seq)
            case ToolCallStarted(tool_call_id=id):
                open.pop(id, None)
    return found | {seq for id, seq in open.items() if id in starts}


def unjudged(compiled: CompiledPolicy, context: RunContext) -> list[ViolationRecord]:
    """The rules whose `when` asks for what a session's context leaves out: nobody can say whether they hold."""
    missing = {(f.policy, f.rule): f for f in missing_context(compiled.policy, context)}
    return [
        ViolationRecord(
            rule=clause.id,
            policy=clause.policy,
            kind=clause.machine().kind,
            action=max(clause.action, "deny", key=STRICTNESS.__getitem__),
            seq=0,
            message=f"it could not be judged: {found.message}",
            details={"missing_context": list(found.witness)},
        )
        for clause in (clauses_of(compiled.policy) if missing else ())
        if (found := missing.get((clause.policy, clause.id)))
    ]


def filled(given: RunContext, session: TraceSession) -> RunContext:
    """The context it ran in, as far as that is recorded; what is given stands before it."""
    context = _over(given, session.metadata.get("context"))
    fields = {
        "session_id": session.id,
        **{name: session.metadata.get(name) for name in ("model", "workspace", "home", "shell")},
    }
    missing = {
        name: value for name, value in fields.items() if value is not None and getattr(context, name) is msgspec.UNSET
    }
    return msgspec.structs.replace(context, **missing)


def _over(given: RunContext, recorded: RunContext | None) -> RunContext:
    """One context over another; labels and metadata field by field."""
    if recorded is None:
        return given
    fields: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(given).items():
        if value is not msgspec.UNSET:
            below = getattr(recorded, name)
            fields[name] = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
    return msgspec.structs.replace(recorded, **fields)
