"""Recorded sessions judged under a policy, and what is reported of it."""

from .diff import CallChange, SessionChange, compare_sessions
from .judge import judge_session, judge_sessions
from .reports.diff_report import DiffTally, diff_table
from .reports.failure import failure_reports
from .reports.junit import JUnitReport
from .reports.sarif import SarifReport
from .reports.table import summary_table
from .results import DecisionRecord, SessionReport, ViolationRecord
from .tally import Tally

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
    "policy_tests",  # policy tests judged, and a failed one on a terminal
    "expectations",  # files of policy tests: calls, and the answers expected
    "reports",  # reports for a terminal, as JSON, JUnit and SARIF
    "diff",  # two policies over the same sessions
    "folding",  # recorded runs judged once more: every decision with its steps
    "judge",  # sessions to records
    "calls",  # calls and inputs as a line of text shows them
    "tally",  # records of many sessions summed up by rule
    "results",  # what is found of one session
    "whose",  # whose session it is, as its record says
)
"""Top first: each imports only those below it."""
