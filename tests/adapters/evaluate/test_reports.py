"""Reports of evaluated sessions: on a terminal, as JUnit XML, as SARIF."""

import io
import json
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
from rich.console import Console, RenderableType

from proctor.adapters.evaluate import (
    EvalSummary,
    JUnitReport,
    SarifReport,
    SessionReport,
    ViolationRecord,
    failure_reports,
    summary_table,
)
from proctor.adapters.traces import TraceSession

from .conftest import MakeSession


def violation(rule: str = "verify-first", call: str | None = "c2", **more: Any) -> ViolationRecord:
    fields = {
        "policy": "bank",
        "kind": "before",
        "action": "deny",
        "seq": 5,
        "tool_call_id": call,
        "tool_name": "pay" if call else None,
        "message": "`verify` never completed",
        "details": {
            "expected": "`verify` before `pay`",
            "actual": "`verify` never completed",
            "suggestion": "call `verify` before `pay`",
        },
    }
    return ViolationRecord(rule=rule, **{**fields, **more})


def report_of(session: TraceSession, *violations: ViolationRecord, **rules: str) -> SessionReport:
    broken = {one.rule: "violated" for one in violations}
    return SessionReport(
        session=session.id, passed=not violations, violations=list(violations), rules={**rules, **broken}
    )


def shown(renderable: RenderableType, width: int = 80, **how: Any) -> str:
    """The output on a terminal of this width."""
    console = Console(file=io.StringIO(), width=width, **how)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def session(make_session: MakeSession) -> TraceSession:
    """Four calls, the third of them `pay`."""
    pay = {"type": "tool_call_started", "tool_call_id": "c2", "tool_name": "pay", "tool_input": {"amount": 7}}
    return make_session("look", "look", pay, "mail", id="monday")


def test_a_failure_has_the_expectation_the_fact_the_position_and_the_remedy(session: TraceSession) -> None:
    """The calls around it are shown, and the call is marked by text, not by colour alone."""
    (text,) = failure_reports(session, report_of(session, violation()))

    assert text.plain.splitlines() == [
        "FAILED verify-first (before)",
        "  session:    monday",
        "  policy:     bank, action deny",
        "  expected:   `verify` before `pay`",
        "  actual:     `verify` never completed",
        "  at:         call 3 of 4",
        "",
        "  trace:",
        "       1. look()",
        "       2. look()",
        "  >    3. pay(amount=7)  <-- violation",
        "       4. mail()",
        "",
        "  suggestion: call `verify` before `pay`",
    ]


def test_the_shown_part_of_a_trace_is_around_the_failure(make_session: MakeSession, session: TraceSession) -> None:
    """Omitted calls of a long session are counted. The end, and events between calls, are marked at their
    position.
    """
    long = make_session(*["look"] * 50, "pay", *["look"] * 50)
    limited = make_session("look", {"type": "token_usage_updated", "input_tokens": 9}, "mail")
    over = violation("max_total_tokens", call=None, kind="max_total_tokens", seq=3)

    def lines(of: TraceSession, found: ViolationRecord) -> list[str]:
        (text,) = failure_reports(of, report_of(of, found))
        return text.plain.splitlines()

    assert {"         ... 47 more calls", "  >   51. pay()  <-- violation", "         ... 49 more calls"} <= {
        *lines(long, violation(call="c50"))
    }
    assert "  > the session ended here  <-- violation" in lines(session, violation(call=None))
    assert lines(limited, over)[6:-2] == [
        "  trace:",
        "       1. look()",
        "  > what event 3 reports  <-- violation",
        "         ... 1 more call",
    ]


def test_each_rule_is_reported_once_with_all_its_calls_marked(session: TraceSession) -> None:
    """In the order of their violations."""
    texts = list(failure_reports(session, report_of(session, violation(), violation("other"), violation(call="c3"))))

    assert [text.plain.splitlines()[0] for text in texts] == ["FAILED verify-first (before)", "FAILED other (before)"]
    assert texts[0].plain.count("<-- violation") == 2


def test_a_tool_cannot_write_to_the_terminal(make_session: MakeSession) -> None:
    """Control characters in names and arguments of recorded calls are escaped."""
    evil = {
        "type": "tool_call_started",
        "tool_call_id": "c2",
        "tool_name": "pay\x1b[2J",
        "tool_input": {"x": "\x1b]0;owned\x07"},
    }
    session = make_session(evil)

    (text,) = failure_reports(session, report_of(session, violation(tool_name="pay\x1b[2J")))

    assert "\x1b" not in text.plain
    assert "\x07" not in text.plain


@pytest.mark.parametrize("color_system", [None, "truecolor"])
def test_the_summary_is_readable_at_80_columns_with_and_without_colour(
    session: TraceSession, color_system: Any
) -> None:
    """Rules with their counts, failed sessions, and one line with the totals."""
    summary = EvalSummary()
    for number in range(3):
        report = report_of(session, *[violation()] * number, kept="held", unused="not_exercised")
        summary.add(report, session.source)

    text = shown(summary_table(summary), color_system=color_system, force_terminal=color_system is not None)

    if color_system is None:
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 80
        rows = [line.split() for line in text.splitlines()]
        assert ["kept", "0", "3", "0", "0", "0"] in rows
        assert ["unused", "0", "0", "3", "0", "0"] in rows
        assert ["verify-first", "2", "0", "0", "0", "3"] in rows
        assert ["monday", "verify-first", "x2"] in rows
    assert "3 sessions: 1 passed, 2 failed (3 violations)" in text


def test_only_some_failed_sessions_are_listed_and_the_rest_counted(session: TraceSession) -> None:
    """Thousands may fail. A rule may have any name."""
    summary = EvalSummary(keep=5)
    for _ in range(30):
        summary.add(report_of(session, violation("[red]x[/red]")))

    text = shown(summary_table(summary, failed_shown=3))

    assert text.count("monday") == 3
    assert "... and 27 more that failed" in text
    assert "[red]x[/red]" in text


def test_junit_has_a_case_for_each_rule_of_each_session(session: TraceSession) -> None:
    """Failures have the expectation. Rules that never applied are skipped."""
    junit = JUnitReport()
    junit.add(session, report_of(session, violation(), kept="held", unused="not_exercised"))
    junit.add(session, report_of(session, kept="held"))

    root = fromstring(junit.xml())

    assert root.attrib == {"name": "proctor", "tests": "4", "failures": "1", "errors": "0"}
    (suite,) = root
    assert (suite.get("name"), suite.get("tests")) == ("traces/one.jsonl", "4")
    cases = {case.get("name"): [child.tag for child in case] for case in suite[:3]}
    assert cases == {"kept": [], "unused": ["skipped"], "verify-first": ["failure"]}
    failure = suite.find(".//failure")
    assert failure is not None
    assert failure.text == (
        "expected: `verify` before `pay`\nactual: `verify` never completed\nat event 5: pay (c2)\n"
        "suggestion: call `verify` before `pay`"
    )


def test_junit_can_contain_any_text(make_session: MakeSession) -> None:
    """XML has no control characters and no lone surrogates."""
    session = make_session("look", id="a\x00b<&\x1b")
    junit = JUnitReport()
    junit.add(session, report_of(session, violation("r\x08")))

    (case,) = fromstring(junit.xml())[0]

    assert (case.get("classname"), case.get("name")) == ("a\ufffdb<&\ufffd", "r\ufffd")


def test_sarif_has_a_result_for_each_violation(session: TraceSession) -> None:
    """With its rule, level, file, session and call."""
    sarif = SarifReport("1.2.3")
    sarif.add(session, report_of(session, violation(), violation("other", call=None, action="warn")))

    document = json.loads(sarif.json())

    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("proctor", "1.2.3")
    assert [rule["id"] for rule in driver["rules"]] == ["bank/verify-first", "bank/other"]
    first, second = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("bank/verify-first", 0, "error")
    assert (second["ruleIndex"], second["level"]) == (1, "warning")
    (location,) = first["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "traces/one.jsonl"
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "monday/c2"
    assert first["message"]["text"] == "expected `verify` before `pay`; `verify` never completed"


def test_sarif_tells_the_calls_of_a_reused_id_apart(session: TraceSession) -> None:
    """Code-scanning pages take results of one fingerprint for one; the first keeps its own if more come later."""
    fingerprints = []
    for calls in ((violation(seq=5),), (violation(seq=5), violation(seq=9), violation("other", seq=9))):
        sarif = SarifReport("1")
        sarif.add(session, report_of(session, *calls))
        (run,) = json.loads(sarif.json())["runs"]
        fingerprints.append([result["partialFingerprints"]["sessionCallRule/v1"] for result in run["results"]])

    first = "monday/c2/verify-first"
    assert fingerprints == [[first], [first, f"{first}/2", "monday/c2/other"]]


def test_sarif_without_violations_is_a_document_too() -> None:
    """So code-scanning pages clear their earlier results."""
    (run,) = json.loads(SarifReport("1").json())["runs"]

    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])
