"""Records of many sessions summed up by rule."""

from __future__ import annotations

from collections import Counter

import msgspec

from .results import FailOn, SessionReport, fails
from .whose import in_words


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


class Tally:
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
        """Take one session's report into account."""
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
        """Whether no session failed."""
        return self.passed == self.sessions

    def _rule(self, name: str) -> RuleTally:
        rule = self.rules.get(name)
        if rule is None:
            rule = self.rules[name] = RuleTally(rule=name)
        return rule
