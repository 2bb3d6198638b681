"""Recorded sessions evaluated under policies, and what is reported of it."""

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .diff import CallChange, DiffSummary, SessionChange, compare_sessions, diff_table
    from .judge import DecisionRecord, EvalSummary, SessionReport, ViolationRecord, judge_session, judge_sessions
    from .reports import JUnitReport, SarifReport, failure_reports, summary_table

__all__ = ["CallChange", "DecisionRecord", "DiffSummary", "EvalSummary", "JUnitReport", "SarifReport"]
__all__ += ["SessionChange", "SessionReport", "ViolationRecord", "compare_sessions", "diff_table", "failure_reports"]
__all__ += ["judge_session", "judge_sessions", "summary_table"]
__getattr__, __dir__ = lazily(
    __name__,
    {
        "diff": "CallChange DiffSummary SessionChange compare_sessions diff_table",
        "judge": "DecisionRecord EvalSummary SessionReport ViolationRecord judge_session judge_sessions",
        "reports": "JUnitReport SarifReport failure_reports summary_table",
    },
)
ROOMS = ("rule_proofs", "diff", "fold", "counterexamples", "policy_tests", "proofs", "reports", "judge")
"""Top first: each imports only those below it."""
