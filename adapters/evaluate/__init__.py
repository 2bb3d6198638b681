"""Recorded sessions judged under a policy, and what is reported of it."""

from .diff import CallChange, DiffTally, SessionChange, compare_sessions, diff_table
from .judge import DecisionRecord, SessionReport, Tally, ViolationRecord, judge_session, judge_sessions
from .reports import JUnitReport, SarifReport, failure_reports, summary_table

__all__ = [
    "CallChange",
    "DecisionRecord",
    "DiffTally",
    "JUnitReport",
    "SarifReport",
    "SessionChange",
    "SessionReport",
    "Tally",
    "ViolationRecord",
    "compare_sessions",
    "diff_table",
    "failure_reports",
    "judge_session",
    "judge_sessions",
    "summary_table",
]

ROOMS = (
    "rule_proofs",
    "diff",
    "fold",
    "counterexamples",
    "policy_tests",
    "proofs",
    "reports",
    "judge",
)
"""Top first: each imports only those below it."""
