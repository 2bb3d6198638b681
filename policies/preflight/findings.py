"""What preflight finds: each finding refuses the run, or is only reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ..errors import PolicyViolationError
from ..stream.calls import rule_name


class PreflightFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong, or worth knowing, before a run starts.

    `policy` is the member of the stack and `rule` the id of the clause it is about, as far as there is one;
    `witness` is what shows it, step by step: a circle, a trace, the names.
    """

    code: str
    severity: Literal["refuse", "report"]
    message: str
    policy: str = ""
    rule: str = ""
    witness: tuple[str, ...] = ()
    suggestion: str = ""

    def __str__(self) -> str:
        place = rule_name(self.policy, self.rule)
        hint = f"; {self.suggestion}" if self.suggestion else ""
        return f"{place + ': ' if place else ''}{self.message}{hint}"


class Findings(list[PreflightFinding]):
    """The findings of one policy, those that refuse first."""

    def __init__(self, findings: Iterable[PreflightFinding] = ()) -> None:
        super().__init__(sorted(findings, key=lambda finding: finding.severity != "refuse"))

    @property
    def refusals(self) -> tuple[PreflightFinding, ...]:
        """Those that refuse the run."""
        return tuple(finding for finding in self if finding.severity == "refuse")

    def check(self) -> None:
        """Raises PolicyViolationError naming every finding that refuses, if there is one."""
        if refusals := self.refusals:
            raise PolicyViolationError("\n".join(map(str, refusals)), findings=refusals)
