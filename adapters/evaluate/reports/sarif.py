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


class SarifText(msgspec.Struct, frozen=True):
    text: str


class SarifRule(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    short_description: SarifText = msgspec.field(name="shortDescription")
    help: SarifText


class ArtifactLocation(msgspec.Struct, frozen=True):
    uri: str


class PhysicalLocation(msgspec.Struct, frozen=True):
    artifact_location: ArtifactLocation = msgspec.field(name="artifactLocation")


class LogicalLocation(msgspec.Struct, frozen=True, kw_only=True):
    """A place within a session, written `session/call`."""

    name: str
    fully_qualified_name: str = msgspec.field(name="fullyQualifiedName")
    kind: str


class Location(msgspec.Struct, frozen=True, kw_only=True):
    physical_location: PhysicalLocation = msgspec.field(name="physicalLocation")
    logical_locations: list[LogicalLocation] = msgspec.field(name="logicalLocations")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    rule_id: str = msgspec.field(name="ruleId")
    rule_index: int = msgspec.field(name="ruleIndex")
    level: str
    message: SarifText
    locations: list[Location]
    partial_fingerprints: dict[str, str] = msgspec.field(name="partialFingerprints")
    properties: dict[str, Any]


class SarifReport:
    """Collects sessions; `json()` is the document."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._rules: dict[tuple[str, str], SarifRule] = {}
        self._results: list[Result] = []

    def add(self, session: TraceSession, report: SessionReport) -> None:
        """Add the violations of one session."""
        self._results.extend(self._result(session, violation) for violation in report.violations)

    def json(self) -> bytes:
        """The document, UTF-8."""
        driver = {"name": "proctor", "version": self._version, "rules": list(self._rules.values())}
        run = {"tool": {"driver": driver}, "results": self._results, "columnKind": "utf16CodeUnits"}
        return msgspec.json.encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})

    def _result(self, session: TraceSession, violation: ViolationRecord) -> Result:
        key = violation.policy, violation.rule
        if key not in self._rules:
            self._rules[key] = _rule(violation)
        where = violation.tool_call_id or "end"
        return Result(
            rule_id=self._rules[key].id,
            rule_index=list(self._rules).index(key),
            level=_LEVELS.get(violation.action, "warning"),
            message=SarifText(f"expected {expected(violation)}; {actual(violation)}"),
            locations=[_location(session, violation, where)],
            partial_fingerprints={"sessionCallRule/v1": f"{session.id}/{where}/{violation.rule}"},
            properties={"policy": violation.policy, "action": violation.action, "seq": violation.seq},
        )


def _rule(violation: ViolationRecord) -> SarifRule:
    return SarifRule(
        id=rule_name(violation.policy, violation.rule),
        name=violation.kind,
        short_description=SarifText(f"{violation.kind} rule `{violation.rule}` of policy `{violation.policy}`"),
        help=SarifText(suggestion(violation)),
    )


def _location(session: TraceSession, violation: ViolationRecord, where: str) -> Location:
    path = Path(session.source)
    uri = path.as_uri() if path.is_absolute() else quote(session.source)
    call = LogicalLocation(
        name=violation.tool_name or "session",
        fully_qualified_name=f"{session.id}/{where}",
        kind="member",
    )
    return Location(physical_location=PhysicalLocation(ArtifactLocation(uri)), logical_locations=[call])
