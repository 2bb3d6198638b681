"""Recorded sessions judged under a policy, and what is reported of it."""

from .diff import CallChange, SessionChange, compare_sessions
from .diff_report import DiffTally, diff_json_line, diff_table
from .failure import failure_reports
from .jsonl import json_line
from .judge import judge_session, judge_sessions
from .junit import JUnitReport
from .records import DecisionRecord, SessionReport, ViolationRecord
from .sarif import SarifReport
from .table import summary_table
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
    "diff_json_line",
    "diff_table",
    "failure_reports",
    "json_line",
    "judge_session",
    "judge_sessions",
    "summary_table",
]

ROOMS = (
    "policy_tests",  # policy tests judged, and a failed one on a terminal
    "expectations",  # files of policy tests: calls, and the answers expected
    "diff_report",  # what `diff` found, on a terminal and as JSON
    "diff",  # two policies over the same sessions
    "failure",  # one failed rule on a terminal, with the calls around it
    "jsonl",  # one line of JSON a session
    "folding",  # recorded runs judged once more: every decision with its steps
    "judge",  # sessions to records
    "junit",  # JUnit XML
    "sarif",  # SARIF 2.1.0
    "advice",  # what a violation says: where, what was expected, what to do
    "table",  # the summary of many sessions on a terminal
    "calls",  # calls and inputs as a line of text shows them
    "tally",  # records of many sessions summed up by rule
    "records",  # what is found of one session
    "whose",  # whose session it is, as its record says
)
"""Top first: each imports only those below it."""
