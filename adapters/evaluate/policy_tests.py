"""Policy tests judged: each session as it is expected to go, until an answer is another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from rich.text import Text

from proctor.adapters.kit.values.printable import printable
from proctor.adapters.traces.session import EventLog, TraceSession
from proctor.policies import CompiledPolicy, RunContext
from proctor.policies.stream.calls import input_digest
from proctor.policies.stream.events import (
    MessageSent,
    RunCancelled,
    RunCompleted,
    RunStarted,
    TokenUsageUpdated,
    ToolApprovalGranted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)

from .calls import call_lines
from .expectations import ExpectedCall, PolicyTest
from .judge import judge_session
from .reports.failure import append_call, append_field, append_gap
from .results import DecisionRecord, SessionReport

_START = datetime(2000, 1, 1, tzinfo=UTC)
"""When a session begins; only what passes from there matters."""
_BEFORE = 5
"""How many calls are shown before the one that was answered otherwise."""


class Mismatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was expected and what happened: of a call, by its number from 1, or of a rule at the end."""

    expected: str
    actual: str
    call: int | None = None
    rule: str | None = None


class JudgedTest(msgspec.Struct, frozen=True, kw_only=True):
    """One test judged. What follows an answer that was not expected is not judged."""

    file: str
    test: str
    passed: bool
    mismatches: list[Mismatch]


def judge_test(
    compiled: CompiledPolicy, test: PolicyTest, context: RunContext, *, file: str
) -> tuple[TraceSession, JudgedTest]:
    """Judge a test; the session is the one that it expects."""
    session = _as_expected(test, file)
    report = judge_session(compiled, session, context)
    found = _of_the_context(report) or _of_calls(test, report) or _of_the_end(test, report)
    return session, JudgedTest(file=file, test=test.name, passed=not found, mismatches=found)


def _as_expected(test: PolicyTest, file: str) -> TraceSession:
    log = EventLog(test.name, test.agent or "")
    log.add(RunStarted, at=_START)
    at = _START
    for number, call in enumerate(test.calls, 1):
        at += timedelta(seconds=call.after_s)
        _add_before(log, call, at)
        _add_call(log, call, number)
    cancelled = bool(test.calls) and test.calls[-1].expect == "cancel"
    log.add(RunCancelled if cancelled else RunCompleted)
    return TraceSession(id=test.name, source=file, format="tests", events=log.events)


def _add_before(log: EventLog, call: ExpectedCall, at: datetime) -> None:
    """What happened since the call before, up to the response that asks for this one."""
    if call.user is not None:
        log.add(MessageSent, at=at, content=call.user)
    if not call.same_turn:
        log.enter_turn(log.turn + 1, at)
    if call.used is not None:
        log.add(TokenUsageUpdated, at=at, **msgspec.structs.asdict(call.used))


def _add_call(log: EventLog, call: ExpectedCall, number: int) -> None:
    """A call and what becomes of it."""
    named: dict[str, Any] = {"tool_call_id": _id(number), "tool_name": call.tool}
    given: dict[str, Any] = {**named, "tool_input": call.input, "turn": log.turn}
    log.add(ToolCallRequested, **given)
    if call.expect in ("deny", "cancel") or (call.expect == "request_approval" and not call.ended):
        log.add(ToolCallDenied, **named)
        return
    if call.expect == "request_approval":
        digest = input_digest(call.input)
        log.add(ToolApprovalGranted, approval_id=f"{number}", tool_input=call.input, input_digest=digest, **named)
    log.add(ToolCallStarted, **given)
    if call.error is not msgspec.UNSET:
        log.add(ToolCallFailed, error=call.error, **named)
    else:
        output = None if call.result is msgspec.UNSET else call.result
        log.add(ToolCallCompleted, tool_output=output, **named)


def _id(number: int) -> str:
    return f"call_{number}"


def _of_the_context(report: SessionReport) -> list[Mismatch]:
    """What the test's context leaves out: a run without it would not start."""
    left_out = set(report.unjudged or ())
    return [
        Mismatch(
            rule=each.rule,
            expected="a `context` that fits every `when`",
            actual=f"`{each.rule}`: {each.message}",
        )
        for each in report.violations
        if each.rule in left_out and "missing_context" in each.details
    ]


def _of_calls(test: PolicyTest, report: SessionReport) -> list[Mismatch]:
    """The first call that was answered otherwise; what comes after it would not have come to that."""
    decisions = report.decisions or []
    for number, (call, decision) in enumerate(zip(test.calls, decisions, strict=True), 1):
        rules = None if call.rules is msgspec.UNSET else call.rules
        if decision.action != call.expect or (rules is not None and set(rules) != set(decision.violations)):
            expected = _answer(call.expect, rules)
            return [Mismatch(call=number, expected=expected, actual=_actual(decision, report))]
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
    text.append(f" {printable(judged.test)}\n", "bold")
    append_field(text, "file", judged.file)
    for mismatch in judged.mismatches:
        append_field(text, "expected", mismatch.expected)
        append_field(text, "actual", mismatch.actual)
    text.append("\n")
    _trace(text, session, judged.mismatches[0].call)
    return text


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
