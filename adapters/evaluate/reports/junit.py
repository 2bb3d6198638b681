"""JUnit XML: a test suite a file, a test case for each rule of each session."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from proctor.adapters.traces import TraceSession

from ..results import FailOn, SessionReport, ViolationRecord, fails
from .advice import actual, expected, place, suggestion

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_RUN = {
    "not_exercised": "not exercised: no call that the rule restricts",
    "pending": "pending: the record ends before the run does",
}


class JUnitReport:
    """Collects sessions; `xml()` is the document. A rule that was not exercised counts as skipped, one that was
    broken less strictly than `fail_on` as passed.
    """

    def __init__(self, name: str = "proctor", fail_on: FailOn = "deny") -> None:
        self._fail_on = fail_on
        self._root = Element("testsuites", {"name": _clean(name)})
        self._suites: dict[str, Element] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def add(self, session: TraceSession, report: SessionReport) -> None:
        """Add the rules of one session."""
        suite = self._suite(session.source)
        counts = self._counts[session.source]
        broken: dict[str, list[ViolationRecord]] = {}
        for violation in report.violations:
            broken.setdefault(violation.rule, []).append(violation)
        for rule in {**report.rules, **broken}:
            counts["tests"] += 1
            case = SubElement(suite, "testcase", {"classname": _clean(session.id), "name": _clean(rule)})
            if rule in broken and fails((violation.action for violation in broken[rule]), self._fail_on):
                counts["failures"] += 1
                _failure(case, broken[rule])
            elif rule not in broken and (reason := _NOT_RUN.get(report.rules[rule])) is not None:
                counts["skipped"] += 1
                SubElement(case, "skipped", {"message": reason})

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


def _failure(case: Element, violations: list[ViolationRecord]) -> None:
    first = violations[0]
    failure = SubElement(case, "failure", {"type": _clean(first.kind), "message": _clean(actual(first))})
    failure.text = _clean("\n".join(_lines(violations)))


def _lines(violations: list[ViolationRecord]) -> list[str]:
    first = violations[0]
    places = [f"at {place(violation)}" for violation in violations]
    details = [f"expected: {expected(first)}", f"actual: {actual(first)}"]
    return [*details, *places, f"suggestion: {suggestion(first)}"]


def _clean(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)
