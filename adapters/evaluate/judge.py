"""Evaluates recorded sessions: each event of a session by one monitor, in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from proctor.policies import Policy, RunContext
from proctor.policies import events as ev
from proctor.policies.analysis.name_checks import missing_context
from proctor.policies.errors import EventError, Violation
from proctor.policies.events.calls import STRICTNESS, Decision, ToolCall, call_of
from proctor.policies.events.run_context import WHOSE, Capabilities, Tool
from proctor.policies.monitor.compiled_policy import CompiledPolicy
from proctor.policies.monitor.monitor import Report
from proctor.policies.stack.clauses import clauses_of

from ..kit.client_tools import KNOWN, recorded_tools
from ..kit.display_text import escape_control
from ..kit.trace_lines import TraceError

if TYPE_CHECKING:
    from proctor.policies.analysis.findings import Findings

    from ..traces import TraceSession


FailOn: TypeAlias = Literal["never", "warn", "deny", "cancel"]
"""From which action on a broken rule makes a session, or a run, one that failed."""


def fails(actions: Iterable[str], fail_on: FailOn = "deny") -> bool:
    """Whether one of these actions is as strict as that."""
    return fail_on != "never" and any(STRICTNESS[action] >= STRICTNESS[fail_on] for action in actions)


class ViolationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One rule's finding about a recorded session.

    Attributes:
        rule: The rule's id.
        policy: The policy that the rule is in.
        kind: The rule's type, the limit's name, or `net`.
        action: The rule's action.
        seq: The `seq` of the event, or of the last event.
        tool_call_id: The call, if one caused it.
        tool_name: Its tool.
        message: The violation, in words.
        details: Expected and actual values.
    """

    rule: str
    policy: str
    kind: str
    action: str
    seq: int
    tool_call_id: str | None = None
    tool_name: str | None = None
    message: str = ""
    details: dict[str, Any] = {}


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's hypothetical answer to one requested call.

    Attributes:
        tool_call_id: The call.
        action: The action for the call.
        violations: The ids of the violated rules.
    """

    tool_call_id: str
    action: str
    violations: list[str] = []


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One session under one policy.

    Attributes:
        session: The session's id.
        passed: True if there is no violation, whatever its action.
        violations: The violations, in order.
        rules: Each rule's status by its id: `held`, `violated`, `not_exercised` or `pending`.
        whose: The user, role, tenant and labels, if recorded.
        unjudged: Rules that couldn't be evaluated, because a fact for their `when` is missing; each is also a
            violation.
        decisions: The decisions, if the session has requested calls.
    """

    session: str
    passed: bool
    violations: list[ViolationRecord]
    rules: dict[str, str]
    whose: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    unjudged: list[str] | msgspec.UnsetType = msgspec.UNSET
    decisions: list[DecisionRecord] | msgspec.UnsetType = msgspec.UNSET


def whose(session: TraceSession) -> dict[str, Any] | msgspec.UnsetType:
    """For programs: what is recorded of them, UNSET where nothing is."""
    context: RunContext = session.metadata.get("context", RunContext())
    found = {name: value for name in WHOSE if (value := getattr(context, name)) not in (msgspec.UNSET, None, {})}
    return found or msgspec.UNSET


def in_words(found: dict[str, Any] | msgspec.UnsetType) -> str:
    """On one line: `user=ana labels.job=mail`."""
    if found is msgspec.UNSET:
        return ""
    labels = {f"labels.{name}": value for name, value in found.get("labels", {}).items()}
    flat = {name: value for name, value in found.items() if name != "labels"} | labels
    return " ".join(f"{name}={value}" for name, value in flat.items())


_EARLIER_CONCLUSIONS = (ev.PolicyViolated, ev.BudgetWarned)
"""Events that another policy concluded when the session was recorded: they are no facts of the session."""


def judge_sessions(
    compiled: CompiledPolicy,
    sessions: Iterable[TraceSession],
    context: RunContext | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[TraceSession, SessionReport]]:
    """Evaluate sessions as they come, each by a monitor of its own.

    `progress` is called with the number of sessions evaluated so far. Raises what reading the sessions raises.
    """
    for count, session in enumerate(sessions, 1):
        yield session, judge_session(compiled, session, context)
        if progress is not None:
            progress(count)


def judge_session(
    compiled: CompiledPolicy, session: TraceSession, context: RunContext | None = None
) -> SessionReport:
    """Evaluate one session under a compiled policy.

    Requested calls are proposed, as at a gate; all other events have happened. `context` has the facts for `when`;
    the session's and the model's are added if they are recorded. Raises TraceError for an event that cannot be
    evaluated, such as one with a negative amount.
    """
    judge = _Judge(compiled, session, context or RunContext())
    for event in session.events:
        try:
            judge.observe(event)
        except EventError as error:
            raise TraceError(f"session `{session.id}`, event {event.seq}: {error}", place=session.source) from None
    return judge.finished()


class _Judge:
    """One session being evaluated. A call that breaks a rule breaks it once, though it was requested and ran.

    `_seen` are the rules that the calls known by their ids have broken; an id that is used again, in this run or a
    later one, is another call, also if the call that was requested under it never ran (`_unstarted`). `_held` are the
    calls that wait for a person, each with the `seq` at which it began.
    """

    def __init__(self, compiled: CompiledPolicy, session: TraceSession, context: RunContext) -> None:
        self._session = session
        self._compiled = compiled = compiled.for_tools(recorded_tools(session.events, session.format))
        context = filled(context, session)
        self._monitor = compiled.monitor(context)
        self._found: list[ViolationRecord] = []
        self._seen: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._over: set[str] = set()
        self._unstarted: set[str] = set()
        self._held: dict[str, tuple[ToolCall, bool, int]] = {}
        self._never_ran = _never_ran(session)
        self._decisions: list[DecisionRecord] = []
        self._seq = 0
        self._unjudged = unjudged(compiled, context)
        self._found += self._unjudged

    def observe(self, event: ev.Event) -> None:
        if isinstance(event, _EARLIER_CONCLUSIONS):
            return
        self._seq = event.seq
        self._follow(event)
        if isinstance(event, ev.ToolCallRequested):
            self._requested(event)
            return
        for violation in self._monitor.observe(event):
            self._add(violation)
        if isinstance(event, ev.ToolApprovalGranted) and event.tool_call_id in self._held:
            call, ran, since = self._held[event.tool_call_id]
            self._withdraw(call.id, since)
            self._propose(call, ran=ran)

    def _follow(self, event: ev.Event) -> None:
        """Know which calls the ids stand for."""
        match event:
            case ev.RunStarted():
                self._seen.clear()
                self._over.clear()
                self._unstarted.clear()
                self._held.clear()
            case ev.ToolCallRequested(tool_call_id=id) | ev.ToolCallStarted(tool_call_id=id) if id in self._over:
                self._seen.pop(id, None)
                self._over.discard(id)
            case ev.ToolCallRequested(tool_call_id=id) if id in self._monitor.calls.session.denied:
                self._seen.pop(id, None)
            case ev.ToolCallStarted(tool_call_id=id) if id in self._unstarted:
                self._seen.pop(id, None)
                self._unstarted.discard(id)
            case ev.ToolCallCompleted(tool_call_id=id) | ev.ToolCallFailed(tool_call_id=id):
                self._over.add(id)
            case ev.ToolCallDenied(tool_call_id=id):
                self._held.pop(id, None)

    def _requested(self, event: ev.ToolCallRequested) -> None:
        call = call_of(event)
        ran = event.seq not in self._never_ran
        (self._unstarted.discard if ran else self._unstarted.add)(call.id)
        late = self._monitor.tick(ev.at_ms(event.at)) if event.at is not None else []
        decision = self._propose(call, ran=ran)
        late += self._monitor.observe(event)
        of_call = {(violation.policy, violation.rule) for violation in decision.violations}
        for violation in late:
            if (violation.policy, violation.rule) not in of_call:
                self._add(violation)
        rules = [violation.rule for violation in decision.violations]
        self._decisions.append(DecisionRecord(tool_call_id=call.id, action=decision.action, violations=rules))

    def _propose(self, call: ToolCall, *, ran: bool) -> Decision:
        """Evaluate a call as at a gate; one that is held is evaluated again once a person has agreed."""
        judge = self._monitor
        if not ran:
            # What would have been allowed did not run all the same, so it must not be spent.
            judge = self._compiled.restore(judge.snapshot())
        decision = judge.propose(call)
        self._monitor.state.session.limits.reported = judge.state.session.limits.reported
        for violation in decision.violations:
            self._add(violation)
        if decision.action == "request_approval":
            self._held[call.id] = call, ran, self._seq
        else:
            self._held.pop(call.id, None)
        return decision

    def _withdraw(self, id: str, since: int) -> None:
        """A person approved the call, so the rules that asked are satisfied."""
        of_call = [found for found in self._found if found.tool_call_id == id and found.seq >= since]
        approved = [found for found in of_call if found.action == "request_approval"]
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
            rules={**{name: rule.status for name, rule in report.rules.items()}, **self._violated(report)},
            unjudged=[each.rule for each in self._unjudged] or msgspec.UNSET,
            decisions=self._decisions or msgspec.UNSET,
        )

    def _violated(self, report: Report) -> dict[str, str]:
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
    starts = {event.tool_call_id for event in session.events if isinstance(event, ev.ToolCallStarted)}
    found: set[int] = set()
    open: dict[str, ev.ToolCallRequested] = {}
    for event in session.events:
        match event:
            case ev.RunStarted():
                found.update(request.seq for id, request in open.items() if id in starts)
                open.clear()
            case ev.ToolCallRequested(tool_call_id=id, seq=seq):
                if id in open and id in starts:
                    found.add(open[id].seq)
                open[id] = event
                if id in session.never_ran:
                    found.add(seq)
            case ev.ToolCallStarted(tool_call_id=id):
                request = open.pop(id, None)
                if request is not None and not _may_be(request.tool_name, request.turn, event):
                    found.add(request.seq)
    return found | {request.seq for id, request in open.items() if id in starts}


def _may_be(name: str, turn: int, event: ev.ToolCallRequested | ev.ToolCallStarted) -> bool:
    """Whether an event under a requested call's id may be of that call: a person or a rule may have changed its
    input.
    """
    return event.tool_name == name and (event.turn == turn or not (event.turn and turn))


def unjudged(compiled: CompiledPolicy, context: RunContext) -> list[ViolationRecord]:
    """The rules whose `when` names a fact that the session's context lacks, so they can't be evaluated."""
    missing = {(f.policy, f.rule): f for f in missing_context(compiled, context)}
    return [
        ViolationRecord(
            rule=clause.id,
            policy=clause.policy,
            kind=clause.machine().kind,
            action=max(clause.action, "deny", key=STRICTNESS.__getitem__),
            seq=0,
            message=f"it could not be evaluated: {found.message}",
            details={
                "missing_context": list(found.witness),
                "suggestion": "give the context that it asks for: `--context NAME=VALUE`, or `context` of a test",
            },
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


class RuleTally(msgspec.Struct, kw_only=True):
    """One rule over all sessions: how many ended with which status, and how often it was violated."""

    rule: str
    kind: str = ""
    sessions: Counter[str] = msgspec.field(default_factory=Counter)
    violations: int = 0


class FailedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that broke rules, by id, with how often it broke each."""

    session: str
    source: str
    rules: dict[str, int]
    whose: str = ""


class EvalSummary:
    """Sums up reports; `failed` keeps at most `keep` sessions that broke rules as strict as `fail_on`."""

    def __init__(self, keep: int = 1000, fail_on: FailOn = "deny") -> None:
        self.fail_on = fail_on
        self.sessions = 0
        self.passed = 0
        self.violations = 0
        self.rules: dict[str, RuleTally] = {}
        self.failed: list[FailedSession] = []
        self._keep = keep

    def add(self, report: SessionReport, source: str = "") -> None:
        self.sessions += 1
        failed = fails((violation.action for violation in report.violations), self.fail_on)
        self.passed += not failed
        self.violations += len(report.violations)
        for name, status in report.rules.items():
            self._rule(name).sessions[status] += 1
        for violation in report.violations:
            rule = self._rule(violation.rule)
            rule.kind = violation.kind
            rule.violations += 1
        for name in {violation.rule for violation in report.violations} - report.rules.keys():
            self._rule(name).sessions["violated"] += 1  # a limit: it has no status of its own
        if failed and len(self.failed) < self._keep:
            rules = Counter(violation.rule for violation in report.violations)
            self.failed.append(
                FailedSession(session=report.session, source=source, rules=dict(rules), whose=in_words(report.whose))
            )

    @property
    def all_passed(self) -> bool:
        return self.passed == self.sessions

    def _rule(self, name: str) -> RuleTally:
        rule = self.rules.get(name)
        if rule is None:
            rule = self.rules[name] = RuleTally(rule=name)
        return rule


_NEARLY = 0.9
"""How much a name must be like one of the sessions' to be taken for it: tools with other names are alike, too."""


class CalledTools:
    """The tools that sessions called, each with the inputs that it was given."""

    def __init__(self) -> None:
        self._inputs: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, session: TraceSession) -> None:
        for event in session.events:
            if isinstance(event, ev.ToolCallRequested | ev.ToolCallStarted):
                self._inputs[event.tool_name].update(event.tool_input)

    def misspelt_in(self, policy: Policy) -> Findings:
        """Names in a policy that no session has, though it has nearly the same."""
        from proctor.policies.analysis.all_checks import misspelt_names  # who shows a session needs no analysis

        own = {name: () if name.casefold() in KNOWN else tuple(sorted(names)) for name, names in self._inputs.items()}
        called = Capabilities(
            tools=[Tool(name=name, takes=takes) for name, takes in own.items()], other_tools=True, elsewhere=KNOWN
        )
        return misspelt_names(policy, called, alike=_NEARLY, tools_alike=_NEARLY)


_LONGEST = 40
NEVER_RAN = "never ran"
_encoder = msgspec.json.Encoder()


class CallLine(msgspec.Struct, kw_only=True):
    """One call of a session: where it stands in it (from 1), what it was, what became of it."""

    position: int
    seq: int
    id: str
    name: str
    input: dict[str, Any]
    turn: int = 0
    fate: str = ""

    @property
    def text(self) -> str:
        """The call as it would be written in a program, long arguments cut."""
        arguments = ", ".join(f"{name}={_short(value)}" for name, value in self.input.items())
        return f"{escape_control(self.name)}({escape_control(arguments)})"


def call_lines(events: list[ev.Event]) -> list[CallLine]:
    """The calls of a session in order, each once; an id that is used again is another call."""
    lines: list[CallLine] = []
    open: dict[str, CallLine] = {}
    for event in events:
        if isinstance(event, ev.RunStarted):
            open.clear()
        elif isinstance(event, ev.ToolCallRequested | ev.ToolCallStarted):
            line = open.get(event.tool_call_id)
            again = line is not None and line.fate == "denied" and isinstance(event, ev.ToolCallRequested)
            if line is None or again or (line.fate == NEVER_RAN and not _may_be(line.name, line.turn, event)):
                line = open[event.tool_call_id] = CallLine(
                    position=len(lines) + 1,
                    seq=event.seq,
                    id=event.tool_call_id,
                    name=event.tool_name,
                    input=event.tool_input,
                    turn=event.turn,
                )
                lines.append(line)
            line.fate = NEVER_RAN if isinstance(event, ev.ToolCallRequested) else ""
            line.input = event.tool_input
        elif isinstance(event, ev.ToolCallDenied) and event.tool_call_id in open:
            open[event.tool_call_id].fate = "denied"
        elif isinstance(event, ev.ToolCallCompleted | ev.ToolCallFailed) and event.tool_call_id in open:
            line = open.pop(event.tool_call_id)
            line.fate = "failed" if isinstance(event, ev.ToolCallFailed) else line.fate
    return lines


def by_call(violations: Iterable[ViolationRecord], lines: Sequence[CallLine]) -> dict[int, list[ViolationRecord]]:
    """Violations by the positions of their calls; 0 has those of the session as a whole."""
    by_id: defaultdict[str, list[CallLine]] = defaultdict(list)
    for line in lines:
        by_id[line.id].append(line)
    found: defaultdict[int, list[ViolationRecord]] = defaultdict(list)
    for each in violations:
        calls = by_id.get(each.tool_call_id or "", [])
        begun = [line for line in calls if line.seq <= each.seq] or calls[:1]
        found[begun[-1].position if begun else 0].append(each)
    return found


def _short(value: Any) -> str:
    text = _encoder.encode(value).decode(errors="replace")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
