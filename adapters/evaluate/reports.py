"""Reports of failed rules and tests: on a terminal, as JUnit, as SARIF, as a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.policies.events.calls import rule_name
from proctor.policies.limits import Limits
from proctor.policies.values.amounts import counted

from ..kit.display_text import escape_control
from . import judge

if TYPE_CHECKING:
    from ..traces import TraceSession


_OTHERWISE = "change the call, or allow it in the rule"


def is_limit(violation: judge.ViolationRecord) -> bool:
    """Whether a limit was exceeded: by a call, or by what an event in between reports."""
    return violation.kind in Limits.__struct_fields__


def place(violation: judge.ViolationRecord) -> str:
    """Where it is, in words: a call, an event, or the end of the session."""
    if violation.tool_call_id is not None:
        return f"event {violation.seq}: {violation.tool_name} ({violation.tool_call_id})"
    return f"event {violation.seq}" if is_limit(violation) else "the end of the session"


def expected(violation: judge.ViolationRecord) -> str:
    """The state the rule expected, in words."""
    return str(violation.details.get("expected") or f"`{violation.rule}` to hold")


def actual(violation: judge.ViolationRecord) -> str:
    """The actual state, in words."""
    return str(violation.message or violation.details.get("actual") or "it did not")


def suggestion(violation: judge.ViolationRecord) -> str:
    """A way to fix it: the rule's own suggestion, or a general one."""
    return str(violation.details.get("suggestion") or _OTHERWISE)


_BEFORE, _AFTER = 3, 1
"""How many calls are shown around an offending one."""
_SHOWN = 12
"""How many calls are shown at most."""


def failure_reports(
    session: TraceSession, report: judge.SessionReport, *, fail_on: judge.FailOn = "deny"
) -> Iterator[Text]:
    """A text for each rule the session broke, in the order it broke them; `WARNED` where that is no failure."""
    lines = judge.call_lines(session.events)
    by_rule: dict[tuple[str, str], list[judge.ViolationRecord]] = {}
    for violation in report.violations:
        by_rule.setdefault((violation.policy, violation.rule), []).append(violation)
    for violations in by_rule.values():
        failed = judge.fails((violation.action for violation in violations), fail_on)
        yield _report(session, violations, lines, failed=failed)


def _report(
    session: TraceSession, violations: list[judge.ViolationRecord], lines: list[judge.CallLine], *, failed: bool
) -> Text:
    first = violations[0]
    text = Text()
    text.append(*(("FAILED", "bold red") if failed else ("WARNED", "bold yellow")))
    text.append(f" {escape_control(first.rule)} ({first.kind})\n", "bold")
    append_field(text, "session", session.id)
    if of := judge.in_words(judge.whose(session)):
        append_field(text, "whose", of)
    append_field(text, "policy", f"{first.policy}, action {first.action}")
    append_field(text, "expected", expected(first))
    append_field(text, "actual", actual(first))
    offending = judge.by_call(violations, lines)
    if position := next(iter(judge.by_call([first], lines))):
        append_field(text, "at", f"call {position} of {len(lines)}")
    if len(violations) > 1:
        append_field(text, "violations", f"{len(violations)}; the first is described here")
    text.append("\n")
    _trace(text, lines, violations[0], {position for position in offending if position})
    text.append("\n")
    append_field(text, "suggestion", suggestion(first))
    return text


def append_field(text: Text, name: str, value: str) -> None:
    """A named line of a failure."""
    text.append(f"  {name + ':':<12}", "dim")
    text.append(f"{escape_control(value)}\n")


def _trace(text: Text, lines: list[judge.CallLine], first: judge.ViolationRecord, offending: set[int]) -> None:
    text.append("  trace:\n" if lines else "  trace: no calls\n", "dim")
    last = 0
    for line in _excerpt(lines, offending, first):
        append_gap(text, line.position - last - 1)
        last = line.position
        append_call(text, line, mark="violation" if line.position in offending else "")
    if not offending:
        moment = f"what event {first.seq} reports" if is_limit(first) else "the session ended here"
        text.append(f"  > {moment}", "bold red")
        text.append("  <-- violation\n", "red")
    append_gap(text, len(lines) - last)


def _excerpt(lines: list[judge.CallLine], offending: set[int], first: judge.ViolationRecord) -> list[judge.CallLine]:
    """The offending calls with their neighbours or, where no call is to blame, the calls before."""
    marks = [index for index, line in enumerate(lines) if line.position in offending]
    if not marks:
        return [line for line in lines if line.seq <= first.seq][-_SHOWN:]
    wanted = {index for mark in marks for index in range(mark - _BEFORE, mark + _AFTER + 1)}
    chosen = [line for index, line in enumerate(lines) if index in wanted]
    return chosen[:_SHOWN]


def append_call(text: Text, line: judge.CallLine, *, mark: str = "") -> None:
    """A call of a trace with its position; what is marked stands out, with the mark behind it."""
    fate = f" [{line.fate}]" if line.fate else ""
    head, style, tail = (">", "bold red", f"  <-- {mark}\n") if mark else (" ", "", "\n")
    text.append(f"  {head} {line.position:>4}. {line.text}{fate}", style)
    text.append(tail, "red")


def append_gap(text: Text, calls: int) -> None:
    """How many calls of a trace are left out here, if any."""
    if calls > 0:
        text.append(f"         ... {counted(calls, 'more call')}\n", "dim")


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_RUN = {
    "not_exercised": "not exercised: no call that the rule restricts",
    "pending": "pending: the record ends before the run does",
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A policy test or a question about every session, as a report has it.

    Attributes:
        kind: `test`, or the kind of the question.
        file: the file of the test, or of the policy that is asked about.
        wrong: one line that says what is wrong; empty if nothing is.
        details: all of it, as on a terminal.
        undecided: whether `wrong` says why there is no answer.
    """

    kind: str
    name: str
    file: str
    wrong: str = ""
    details: str = ""
    undecided: bool = False


class JUnitReport:
    """Collects sessions and cases; `xml()` is the document. A rule that was not exercised counts as skipped, one that
    was broken less strictly than `fail_on` as passed.
    """

    def __init__(self, name: str = "proctor", fail_on: judge.FailOn = "deny") -> None:
        self._fail_on = fail_on
        self._root = Element("testsuites", {"name": _clean(name)})
        self._suites: dict[str, Element] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def add(self, session: TraceSession, report: judge.SessionReport) -> None:
        suite = self._suite(session.source)
        counts = self._counts[session.source]
        broken: dict[str, list[judge.ViolationRecord]] = {}
        for violation in report.violations:
            broken.setdefault(violation.rule, []).append(violation)
        for rule in {**report.rules, **broken}:
            counts["tests"] += 1
            case = SubElement(suite, "testcase", {"classname": _clean(session.id), "name": _clean(rule)})
            if rule in broken and judge.fails((violation.action for violation in broken[rule]), self._fail_on):
                counts["failures"] += 1
                _failure(case, broken[rule])
            elif rule not in broken and (reason := _NOT_RUN.get(report.rules[rule])) is not None:
                counts["skipped"] += 1
                SubElement(case, "skipped", {"message": reason})

    def add_case(self, case: Case) -> None:
        """Add a test or a question; one without an answer is an error."""
        suite = self._suite(case.file)
        self._counts[case.file]["tests"] += 1
        element = SubElement(suite, "testcase", {"classname": case.kind, "name": _clean(case.name)})
        if case.wrong:
            self._counts[case.file]["errors" if case.undecided else "failures"] += 1
            tag = "error" if case.undecided else "failure"
            SubElement(element, tag, {"type": case.kind, "message": _clean(case.wrong)}).text = _clean(case.details)

    def xml(self) -> bytes:
        """The document, UTF-8."""
        for source, suite in self._suites.items():
            suite.attrib.update({name: str(count) for name, count in self._counts[source].items()})
        for name in ("tests", "failures", "errors"):
            self._root.set(name, str(sum(counts[name] for counts in self._counts.values())))
        indent(self._root)
        document: bytes = tostring(self._root, encoding="utf-8", xml_declaration=True)
        return document

    def _suite(self, source: str) -> Element:
        if source not in self._suites:
            self._suites[source] = SubElement(self._root, "testsuite", {"name": _clean(source)})
            self._counts[source] = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        return self._suites[source]


def _failure(case: Element, violations: list[judge.ViolationRecord]) -> None:
    first = violations[0]
    failure = SubElement(case, "failure", {"type": _clean(first.kind), "message": _clean(actual(first))})
    failure.text = _clean("\n".join(_lines(violations)))


def _lines(violations: list[judge.ViolationRecord]) -> list[str]:
    first = violations[0]
    places = [f"at {place(violation)}" for violation in violations]
    details = [f"expected: {expected(first)}", f"actual: {actual(first)}"]
    return [*details, *places, f"suggestion: {suggestion(first)}"]


def _clean(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_CASES = {
    "test": "a policy test: a session with the decisions that are expected",
    "property": "a property that every allowed session keeps",
    "no_looser_than": "everything that is allowed is also allowed by the base",
    "same_as": "both policies decide every call alike",
    "reach": "whether some allowed session comes to a call",
    "sanity": "every rule has an effect, and every tool can be called",
}
_LEVELS = {"warn": "warning", "request_approval": "warning", "deny": "error", "cancel": "error"}


class SarifReport:
    """Collects sessions and cases; `json()` is the document."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._rules: dict[tuple[str, str], dict[str, Any]] = {}
        self._results: list[dict[str, Any]] = []
        self._fingerprints: Counter[str] = Counter()

    def add(self, session: TraceSession, report: judge.SessionReport) -> None:
        for violation in report.violations:
            where = violation.tool_call_id or "end"
            named = {"name": violation.tool_name or "session", "fullyQualifiedName": f"{session.id}/{where}"}
            place = {
                "physicalLocation": {"artifactLocation": {"uri": _uri(session.source)}},
                "logicalLocations": [{**named, "kind": "member"}],
            }
            self._add(
                (violation.policy, violation.rule),
                _rule(violation),
                level=_LEVELS.get(violation.action, "warning"),
                message={"text": f"expected {expected(violation)}; {actual(violation)}"},
                locations=[place],
                partialFingerprints={"sessionCallRule/v1": self._fingerprint(session.id, where, violation.rule)},
                properties={"policy": violation.policy, "action": violation.action, "seq": violation.seq},
            )

    def add_case(self, case: Case) -> None:
        """Add a test or a question that went wrong."""
        if not case.wrong:
            return
        about = {"shortDescription": {"text": _CASES.get(case.kind, f"a question of the kind `{case.kind}`")}}
        self._add(
            ("", case.kind),
            {"id": case.kind, "name": case.kind, **about},
            level="warning" if case.undecided else "error",
            message={"text": f"{case.name}: {case.wrong}"},
            locations=[{"physicalLocation": {"artifactLocation": {"uri": _uri(case.file)}}}],
            partialFingerprints={"case/v1": self._fingerprint(case.file, case.kind, case.name)},
        )

    def json(self) -> bytes:
        """The document, UTF-8."""
        driver = {"name": "proctor", "version": self._version, "rules": list(self._rules.values())}
        run = {"tool": {"driver": driver}, "results": self._results, "columnKind": "utf16CodeUnits"}
        return msgspec.json.encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})

    def _fingerprint(self, *what: str) -> str:
        """What a result is known by in later reports; its number if it is not the first, as of a reused call id."""
        found = "/".join(what)
        self._fingerprints[found] += 1
        number = self._fingerprints[found]
        return found if number == 1 else f"{found}/{number}"

    def _add(self, key: tuple[str, str], rule: dict[str, Any], **result: Any) -> None:
        self._rules.setdefault(key, rule)
        self._results.append({"ruleId": rule["id"], "ruleIndex": list(self._rules).index(key), **result})


def _uri(source: str) -> str:
    path = Path(source)
    return path.as_uri() if path.is_absolute() else quote(source)


def _rule(violation: judge.ViolationRecord) -> dict[str, Any]:
    about = f"{violation.kind} rule `{violation.rule}` of policy `{violation.policy}`"
    return {
        "id": rule_name(violation.policy, violation.rule),
        "name": violation.kind,
        "shortDescription": {"text": about},
        "help": {"text": suggestion(violation)},
    }


_STATUSES = ("violated", "held", "not_exercised", "pending")


def summary_table(summary: judge.EvalSummary, *, failed_shown: int = 20) -> RenderableType:
    """A table of the rules and one of the sessions that failed, at most `failed_shown` of them.

    Everything it says is in words and figures; colour only repeats it.
    """
    return Group(*_parts(summary, failed_shown))


def _parts(summary: judge.EvalSummary, failed_shown: int) -> Iterator[RenderableType]:
    yield _rules(summary)
    if summary.failed and failed_shown:
        yield Text()
        yield _sessions(summary, failed_shown)
    more = summary.sessions - summary.passed - min(failed_shown, len(summary.failed))
    if more > 0:
        yield Text(f"... and {more} more that failed")
    yield Text()
    yield _verdict(summary)


def _rules(summary: judge.EvalSummary) -> Table:
    table = _table("rules, in sessions")
    table.add_column("rule", overflow="fold")
    for heading in ("violated", "held", "not exercised", "pending", "violations"):
        table.add_column(heading, justify="right")
    for rule in summary.rules.values():
        table.add_row(*_rule_cells(rule))
    return table


def _table(title: str) -> Table:
    return Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")


def _rule_cells(rule: judge.RuleTally) -> list[Text]:
    style = "red" if rule.violations else ""
    counts = [Text(str(rule.sessions[status])) for status in _STATUSES]
    counts[0].style = style
    return [Text(escape_control(rule.rule), style), *counts, Text(str(rule.violations), style)]


def _sessions(summary: judge.EvalSummary, shown: int) -> Table:
    table = _table("sessions that failed")
    table.add_column("session", overflow="fold", ratio=3)
    table.add_column("rules violated", overflow="fold", ratio=2)
    with_owner = any(failed.whose for failed in summary.failed[:shown])
    if with_owner:
        table.add_column("whose", overflow="fold", ratio=2)
    for failed in summary.failed[:shown]:
        rules = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in failed.rules.items())
        of = [Text(escape_control(failed.whose))] if with_owner else []
        table.add_row(Text(escape_control(failed.session)), Text(escape_control(rules), "red"), *of)
    return table


def _verdict(summary: judge.EvalSummary) -> Text:
    failed = summary.sessions - summary.passed
    text = f"{counted(summary.sessions, 'session')}: {summary.passed:,} passed, {failed:,} failed"
    style = "bold red" if failed else "bold green"
    return Text(f"{text} ({counted(summary.violations, 'violation')})" if summary.violations else text, style)
