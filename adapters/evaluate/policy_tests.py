"""Unit tests of policies: sessions with the expected decisions, and `prove:` blocks; reading and running both."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from rich.text import Text

from proctor.policies import CompiledPolicy, Policy, PolicyError, RunContext, compile_policy, merge_policies
from proctor.policies import events as ev
from proctor.policies.errors import Action, Problem, read_each
from proctor.policies.events.calls import input_digest
from proctor.policies.reading.convert import INVALID, Converter
from proctor.policies.reading.load import load_policies, parse_policies, policies_of
from proctor.policies.reading.rewriting import expect_keys
from proctor.policies.reading.schema import Open, did_you_mean
from proctor.policies.reading.sources import read_source
from proctor.policies.reading.tree import ListNode, MapNode, Node, ProblemReport, Scalar, join
from proctor.policies.values.globs import is_plain
from proctor.policies.values.model_base import Amount, Issue, Name, Natural, Record

from ..kit.client_tools import AGENTS
from ..kit.display_text import escape_control
from ..kit.trace_lines import TraceLog, TraceSession
from .judge import DecisionRecord, SessionReport, call_lines, judge_session
from .proofs import ProofQuestion, ProofRecord, SharedTime, answer_question, read_call
from .reports import Case, append_call, append_field, append_gap

Ending: TypeAlias = Literal["held", "violated", "not_exercised"]


class UsedBefore(Record, frozen=True):
    """The agent's usage since the call before: tokens and USD."""

    input_tokens: Natural = 0
    output_tokens: Natural = 0
    cost_usd: Amount | None = None
    model: str | None = None


class ExpectedCall(Record, frozen=True):
    """A call with the expected decision; `rules` are the ids of all rules that it violates.

    An allowed call returns `result`, or fails with `error`. A call that waits for a person is approved if it has one
    of the two, else declined. `user` is what the user wrote since the call before, `used` what the agent used,
    `after_s` the seconds that passed, `turns_without_calls` how many turns of the model asked for nothing;
    `same_turn`: the same turn as for the call before asks for it.
    """

    tool: Name
    input: dict[str, Any] = {}
    user: str | None = None
    used: UsedBefore | None = None
    after_s: Amount = 0
    turns_without_calls: Natural = 0
    same_turn: bool = False
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET
    expect: Action = "allow"
    rules: tuple[Name, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def ended(self) -> bool:
        """Whether the file says how the call itself ended."""
        return self.result is not msgspec.UNSET or self.error is not msgspec.UNSET

    def problems(self) -> Iterator[Issue]:
        """A call ends once, and a refused one not at all."""
        if self.result is not msgspec.UNSET and self.error is not msgspec.UNSET:
            yield ("error",), "a call has a `result` or an `error`, not both"
        elif self.ended and self.expect in ("deny", "cancel"):
            key = "error" if self.result is msgspec.UNSET else "result"
            yield (key,), f"a denied call has no `{key}`"
        if self.same_turn and self.turns_without_calls:
            yield ("turns_without_calls",), "no turn is between two calls of the same turn"


class PolicyTest(Record, frozen=True):
    """One session, its calls in order, and the statuses of rules at its end that are expected.

    In a file a call may be the name of a tool alone, and a test may have the `expect` of its last call.
    `agent` is the one whose names of tools the calls have; without one a tool is what it is called.
    """

    name: Name
    agent: str | None = None
    context: dict[str, Any] = {}
    calls: tuple[ExpectedCall, ...] = ()
    ends: dict[str, Ending] = {}

    def problems(self) -> Iterator[Issue]:
        """Nothing follows a cancelled run, something is expected, and of a known agent."""
        if self.agent is not None and self.agent.casefold() not in AGENTS:
            hint = did_you_mean(self.agent, AGENTS) or f"expected one of: {', '.join(AGENTS)}"
            yield ("agent",), f"the tools of `{self.agent}` are not known; {hint}"
        if self.calls and self.calls[0].same_turn:
            yield ("calls", 0, "same_turn"), "there is no call before"
        for index, call in enumerate(self.calls[:-1]):
            if call.expect == "cancel":
                yield ("calls", index + 1), "no call can follow one that cancels the run"
        if not self.calls and not self.ends:
            yield (), "the test expects nothing; give it `calls` or `ends`"


class _File(Record, frozen=True):
    policies: tuple[str | dict[str, Any], ...]
    tests: tuple[PolicyTest, ...] = ()
    prove: tuple[ExpectedProof, ...] = ()

    def problems(self) -> Iterator[Issue]:
        if not self.policies:
            yield ("policies",), "there are no policies"
        if not self.tests and not self.prove:
            yield ("tests",), "there are no tests, and nothing to `prove`"
        names = [test.name for test in self.tests]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield ("tests", index, "name"), f"another test is called `{name}`"


class PolicyTests(msgspec.Struct, frozen=True):
    """The tests of one file, each with its context, and the stack of policies they are about."""

    file: str
    compiled: CompiledPolicy
    tests: tuple[tuple[PolicyTest, RunContext], ...]
    proofs: tuple[PreparedProof, ...] = ()


def read_policy_tests(text: str, file: str, folder: Path) -> PolicyTests:
    """Read a file of policy tests; the policies it names are files relative to `folder`. Raises PolicyError: it is
    wrong, or a policy is; every problem is listed.
    """
    roots, report = read_source(text, ProblemReport(file), file, None, "a file of tests has `policies:` and `tests:`")
    root = roots[0]
    if {"name", "policies", "tests", "prove"} & root.entries.keys() == {"name"}:
        about = Path(file).name
        report.add(
            "a policy, not a file of tests", root.span, "", f"a file of tests has `policies: [{about}]` and `tests:`"
        )
        report.raise_if_any()
    for more in roots[1:]:
        report.add("a file of tests is one document", more.span)
    for test in _items(root, "tests"):
        if isinstance(test, MapNode):
            _write_out(test, report)
    given = Converter(report, {}).record(_File, root)
    nodes = [node for node in _items(root, "tests") if isinstance(node, MapNode)]
    contexts = [_context(node.entries.get("context"), report) for node in nodes]
    policies, elsewhere = _policies(root, report, folder)
    _check_properties(root, report)
    _raise_all(report, elsewhere)
    assert given is not INVALID
    compiled = _compiled(policies, file)
    rules = compiled.monitor(RunContext()).report().rules
    for node in nodes:
        _check_ends(node, rules, report)
    report.raise_if_any()
    proofs = read_each(lambda proof: prepared(proof, folder), given.prove)
    return PolicyTests(file, compiled, tuple(zip(given.tests, contexts, strict=True)), tuple(proofs))


def judge_expected_proof(
    tests: PolicyTests, proof: PreparedProof, time: SharedTime
) -> tuple[JudgedTest, ProofRecord]:
    """Answer one `prove` block of a file, in the time that all share; the record has the counterexample."""
    prover = time.prover(tools=proof.tools or None)
    record, remark = answer_question(proof.question, tests.compiled.policy, prover)
    passed = record.verdict == proof.expected
    words = {"proved": "proved", "refuted": "a session that comes to it"}
    found = [] if passed else [Mismatch(expected=words[proof.expected], actual=f"{record.verdict}: {record.reason}")]
    remark = f"no session comes to the call; {remark}" if remark else ""
    return JudgedTest(file=tests.file, test=proof.name, passed=passed, mismatches=found, note=remark), record


def _write_out(test: MapNode, report: ProblemReport) -> None:
    """Make calls of names alone whole, and give the `expect` of a test to its last call."""
    calls = test.entries.get("calls")
    if isinstance(calls, ListNode):
        calls.items = [
            MapNode({"tool": call}, {"tool": call.span}, call.span, call.path) if isinstance(call, Scalar) else call
            for call in calls.items
        ]
    if "expect" not in test.entries:
        return
    last = calls.items[-1] if isinstance(calls, ListNode) and calls.items else None
    if not isinstance(last, MapNode) or "expect" in last.entries:
        why = "its last call has one" if isinstance(last, MapNode) else "it has no call"
        report.add(f"the `expect` of a test is that of its last call, and {why}", test.key_span("expect"), test.path)
    else:
        last.entries["expect"], last.key_spans["expect"] = test.entries["expect"], test.key_span("expect")
    del test.entries["expect"]


def _items(root: MapNode, key: str) -> list[Node]:
    listed = root.entries.get(key)
    return listed.items if isinstance(listed, ListNode) else []


def _policies(root: MapNode, report: ProblemReport, folder: Path) -> tuple[list[Policy], list[Problem]]:
    """The policies, written here or named, and the problems of the files that were named."""
    found: list[Policy] = []
    elsewhere: list[Problem] = []
    for node in _items(root, "policies"):
        if isinstance(node, MapNode):
            found += policies_of([node], report)
        elif isinstance(node, Scalar) and isinstance(node.value, str):
            path = folder / node.value
            if not path.exists():
                report.add(f"there is no file `{path}`", node.span, node.path)
                continue
            try:
                found += load_policies(path)
            except PolicyError as error:
                elsewhere += error.problems
    return found, elsewhere


def _check_properties(root: MapNode, report: ProblemReport) -> None:
    """Report what is wrong in the properties that are written here, at its place; a property needs no name."""
    for node in _items(root, "prove"):
        given = node.entries.get("property") if isinstance(node, MapNode) else None
        if isinstance(given, MapNode):
            entries = {"name": Scalar("property", given.span, given.path), **given.entries}
            policies_of([MapNode(entries, given.key_spans, given.span, given.path)], report)


def _raise_all(report: ProblemReport, elsewhere: list[Problem]) -> None:
    try:
        report.raise_if_any()
    except PolicyError as error:
        raise PolicyError([*error.problems, *elsewhere]) from None
    if elsewhere:
        raise PolicyError(elsewhere)


def _compiled(policies: list[Policy], file: str) -> CompiledPolicy:
    try:
        return compile_policy(merge_policies(policies))
    except PolicyError as error:
        replace = msgspec.structs.replace
        raise PolicyError([each if each.file else replace(each, file=file) for each in error.problems]) from None


def _context(node: Node | None, report: ProblemReport) -> RunContext:
    """The context that rules name in `when`; values that are no mapping, or no JSON, are reported elsewhere."""
    if not isinstance(node, MapNode):
        return RunContext()
    fields = RunContext.__struct_fields__
    values: dict[str, Any] = {}
    expect_keys(node, fields, report)
    for key, child in node.entries.items():
        value = Converter(ProblemReport(), {}).value(Open(), child)
        if value is INVALID or key not in fields:
            continue
        try:
            msgspec.convert({key: value}, RunContext)
        except msgspec.ValidationError:
            wanted = "a mapping" if key in ("labels", "metadata") else "text"
            report.add(f"`{key}` is {wanted}", child.span, child.path)
        else:
            values[key] = value
    return RunContext(**values)


def _check_ends(node: MapNode, rules: Collection[str], report: ProblemReport) -> None:
    ends = node.entries.get("ends")
    if not isinstance(ends, MapNode):
        return
    for key in ends.entries:
        if key not in rules:
            hint = did_you_mean(key, rules) or f"there are {', '.join(rules) or 'none'}"
            report.add(f"no rule is called `{key}`", ends.key_span(key), join(ends.path, key), hint)


_START = datetime(2000, 1, 1, tzinfo=UTC)
"""When a session begins; only what passes from there matters."""
_BEFORE = 5
"""How many calls are shown before the one that was answered otherwise."""


class Mismatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expected and actual for a call, by its number from 1, or for a rule at the end."""

    expected: str
    actual: str
    call: int | None = None
    rule: str | None = None


class JudgedTest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a test. After an unexpected decision, the rest is skipped; `note` is about a passed test."""

    file: str
    test: str
    passed: bool
    mismatches: list[Mismatch]
    note: str = ""


def judge_test(
    compiled: CompiledPolicy, test: PolicyTest, context: RunContext, *, file: str
) -> tuple[TraceSession, JudgedTest]:
    """Run a test; also returns its session, as the test expects it."""
    session = _as_expected(test, file)
    report = judge_session(compiled, session, context)
    budgets = bool(compiled.policy.budgets)
    found = _of_the_context(report) or _of_calls(test, report, budgets) or _of_the_end(test, report)
    return session, JudgedTest(file=file, test=test.name, passed=not found, mismatches=found)


def _as_expected(test: PolicyTest, file: str) -> TraceSession:
    log = TraceLog(test.name, test.agent or "")
    log.add(ev.RunStarted, at=_START)
    at = _START
    for number, call in enumerate(test.calls, 1):
        at += timedelta(seconds=call.after_s)
        _add_before(log, call, at)
        _add_call(log, call, number)
    cancelled = bool(test.calls) and test.calls[-1].expect == "cancel"
    log.add(ev.RunCancelled if cancelled else ev.RunCompleted)
    return TraceSession(id=test.name, source=file, format="tests", events=log.events)


def _add_before(log: TraceLog, call: ExpectedCall, at: datetime) -> None:
    """Add the events since the call before, up to the response that asks for this one."""
    if call.user is not None:
        log.add(ev.MessageSent, at=at, content=call.user)
    if not call.same_turn:
        log.enter_turn(log.turn + call.turns_without_calls + 1, at)
    if call.used is not None:
        log.add(ev.TokenUsageUpdated, at=at, **msgspec.structs.asdict(call.used))


def _add_call(log: TraceLog, call: ExpectedCall, number: int) -> None:
    """A call and what becomes of it."""
    id, requests = f"call_{number}", call.expect == "request_approval"
    named: dict[str, Any] = {"tool_call_id": id, "tool_name": call.tool}
    given: dict[str, Any] = {**named, "tool_input": call.input, "turn": log.turn}
    log.add(ev.ToolCallRequested, **given)
    if call.expect in ("deny", "cancel") or (requests and not call.ended):
        log.add(ev.ToolCallDenied, **named)
        return
    if requests:
        log.add(ev.ToolApprovalGranted, approval_id=f"{number}", input_digest=input_digest(call.input), **named)
    log.add(ev.ToolCallStarted, **given)
    failed = call.error is not msgspec.UNSET
    output = call.error if failed else None if call.result is msgspec.UNSET else call.result
    log.end_call(id, call.tool, output, failed=failed)


def _of_the_context(report: SessionReport) -> list[Mismatch]:
    """Fields missing in the test's context: a run without them would not start."""
    left_out = set(report.unjudged or ())
    return [
        Mismatch(
            rule=each.rule, expected="a `context` that fits every `when`", actual=f"`{each.rule}`: {each.message}"
        )
        for each in report.violations
        if each.rule in left_out and "missing_context" in each.details
    ]


def _of_calls(test: PolicyTest, report: SessionReport, budgets: bool) -> list[Mismatch]:
    """The first call that was answered otherwise; what comes after it would not have come to that."""
    decisions = report.decisions or []
    for number, (call, decision) in enumerate(zip(test.calls, decisions, strict=True), 1):
        rules = None if call.rules is msgspec.UNSET else call.rules
        if decision.action != call.expect or (rules is not None and set(rules) != set(decision.violations)):
            expected = _answer(call.expect, rules)
            uncounted = " (tests count no budgets)" if budgets and decision.action == "allow" else ""
            return [Mismatch(call=number, expected=expected, actual=_actual(decision, report) + uncounted)]
    return []


def _actual(decision: DecisionRecord, report: SessionReport) -> str:
    messages = [
        each.message for each in report.violations if each.tool_call_id == decision.tool_call_id and each.message
    ]
    answer = _answer(decision.action, decision.violations)
    return f"{answer}: {'; '.join(messages)}" if messages else answer


def _answer(action: str, rules: tuple[str, ...] | list[str] | None) -> str:
    """An answer in words, with the rules that object where they matter."""
    if rules is None or (action == "allow" and not rules):
        return action
    return f"{action} by {', '.join(f'`{rule}`' for rule in rules) or 'no rule'}"


def _of_the_end(test: PolicyTest, report: SessionReport) -> list[Mismatch]:
    return [
        Mismatch(rule=rule, expected=f"`{rule}` {status} at the end", actual=report.rules[rule])
        for rule, status in test.ends.items()
        if report.rules[rule] != status
    ]


def failed_test(session: TraceSession, judged: JudgedTest) -> Text:
    """A failed test on a terminal: what was expected, what happened, the calls up to there."""
    text = Text()
    text.append("FAILED", "bold red")
    text.append(f" {escape_control(judged.test)}\n", "bold")
    append_field(text, "file", judged.file)
    for mismatch in judged.mismatches:
        append_field(text, "expected", mismatch.expected)
        append_field(text, "actual", mismatch.actual)
    text.append("\n")
    _trace(text, session, judged.mismatches[0].call)
    return text


def case_of(judged: JudgedTest, kind: str, details: str, *, undecided: bool = False) -> Case:
    """A test or a proof for a report; `details` is its failure on a terminal."""
    wrong = "; ".join(f"expected {each.expected}, got {each.actual}" for each in judged.mismatches)
    return Case(kind=kind, name=judged.test, file=judged.file, wrong=wrong, details=details, undecided=undecided)


def _trace(text: Text, session: TraceSession, call: int | None) -> None:
    lines = call_lines(session.events)
    text.append("  trace:\n" if lines else "  trace: no calls\n", "dim")
    last = call or len(lines)
    first = max(last - _BEFORE - 1, 0)
    append_gap(text, first)
    for line in lines[first:last]:
        here = line.position == call
        append_call(text, msgspec.structs.replace(line, fate="") if here else line, mark="here" * here)
    if call is None:
        text.append("  > the session ended here\n", "bold red")
    append_gap(text, len(lines) - last)


_KINDS = ("property", "no_looser_than", "reach", "unreachable")


class ExpectedProof(Record, frozen=True):
    """One expectation about every session that the policies let through; it has exactly one of the four questions.

    Attributes:
        name: The proof's name; the question if not given.
        property: Rules that every allowed session keeps: a policy file, or the policy itself.
        no_looser_than: A policy file, or several: nothing is allowed that they do not allow.
        reach: A call that some session comes to, as `prove --reach` takes it.
        unreachable: A call that no session comes to.
        tools: The tools that the agent has; any if not given.
    """

    name: Name | None = None
    property: str | dict[str, Any] | None = None
    no_looser_than: Name | Sequence[Name] | None = None
    reach: Name | None = None
    unreachable: Name | None = None
    tools: Sequence[Name] = ()

    def problems(self) -> Iterator[Issue]:
        """Exactly one question, in a form that can be read."""
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            yield (), f"a question has one of {', '.join(f'`{kind}`' for kind in _KINDS)}, this has {len(given)}"
        for kind in ("reach", "unreachable"):
            if (call := getattr(self, kind)) is not None:
                try:
                    read_call(call)
                except PolicyError as error:
                    problem = error.problems[0]
                    yield (kind,), f"{problem.message}: {problem.suggestion}"
        for n, name in enumerate(self.tools):
            if not is_plain(name):
                yield ("tools", n), f"`{name}` is a pattern: name each tool, or leave `tools` out"


class PreparedProof(msgspec.Struct, frozen=True):
    """An expectation with its policies read: the question, the verdict expected, and the tools."""

    name: str
    question: ProofQuestion
    expected: str
    tools: tuple[str, ...]


def prepared(proof: ExpectedProof, folder: Path) -> PreparedProof:
    """Read what an expectation names, relative to `folder`. Raises PolicyError."""
    if proof.property is not None:
        argument: Any = _policy(proof.property, folder)
        text = f"property {proof.property if isinstance(proof.property, str) else argument.name}"
        question, expected = ProofQuestion(kind="property", text=text, argument=argument), "proved"
    elif proof.no_looser_than is not None:
        files = [proof.no_looser_than] if isinstance(proof.no_looser_than, str) else [*proof.no_looser_than]
        argument = merge_policies([each for file in files for each in load_policies(folder / file)])
        text = f"no looser than {' '.join(files)}"
        question, expected = ProofQuestion(kind="no_looser_than", text=text, argument=argument), "proved"
    else:
        call = proof.reach or proof.unreachable or ""
        kind, expected = ("reach", "refuted") if proof.reach is not None else ("unreachable", "proved")
        question = ProofQuestion(kind="reach", text=f"{kind} {call}", argument=read_call(call))
    return PreparedProof(proof.name or question.text, question, expected, tuple(proof.tools))


def _policy(given: str | dict[str, Any], folder: Path) -> Policy:
    if isinstance(given, str):
        return merge_policies(load_policies(folder / given))
    return merge_policies(parse_policies({"name": "property", **given}))
