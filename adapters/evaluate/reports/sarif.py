"""SARIF 2.1.0: a result for each violation, for code-scanning pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from proctor.adapters.traces import TraceSession
from proctor.policies.stream.calls import rule_name

from ..results import SessionReport, ViolationRecord
from .advice import actual, expected, suggestion

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"warn": "warning", "request_approval": "warning", "deny": "error", "cancel": "error"}


class SarifReport:
    """Collects sessions; `json()` is the document."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._rules: dict[tuple[str, str], dict[str, Any]] = {}
        self._results: list[dict[str, Any]] = []

    def add(self, session: TraceSession, report: SessionReport) -> None:
        """Add the violations of one session."""
        self._results.extend(self._result(session, violation) for violation in report.violations)

    def json(self) -> bytes:
        """The document, UTF-8."""
        driver = {"name": "proctor", "version": self._version, "rules": list(self._rules.values())}
        run = {"tool": {"driver": driver}, "results": self._results, "columnKind": "utf16CodeUnits"}
        return msgspec.json.encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})

    def _result(self, session: TraceSession, violation: ViolationRecord) -> dict[str, Any]:
        key = violation.policy, violation.rule
        if key not in self._rules:
            self._rules[key] = _rule(violation)
        where = violation.tool_call_id or "end"
        path = Path(session.source)
        uri = path.as_uri() if path.is_absolute() else quote(session.source)
        named = {"name": violation.tool_name or "session", "fullyQualifiedName": f"{session.id}/{where}"}
        place = {
            "physicalLocation": {"artifactLocation": {"uri": uri}},
            "logicalLocations": [{**named, "kind": "member"}],
        }
        return {
            "ruleId": self._rules[key]["id"],
            "ruleIndex": list(self._rules).index(key),
            "level": _LEVELS.get(violation.action, "warning"),
            "message": {"text": f"expected {expected(violation)}; {actual(violation)}"},
            "locations": [place],
            "partialFingerprints": {"sessionCallRule/v1": f"{session.id}/{where}/{violation.rule}"},
            "properties": {"policy": violation.policy, "action": violation.action, "seq": violation.seq},
        }


def _rule(violation: ViolationRecord) -> dict[str, Any]:
    about = f"{violation.kind} rule `{violation.rule}` of policy `{violation.policy}`"
    return {
        "id": rule_name(violation.policy, violation.rule),
        "name": violation.kind,
        "shortDescription": {"text": about},
        "help": {"text": suggestion(violation)},
    }
