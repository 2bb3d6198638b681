"""What is reported of judged sessions: terminal, JSON, JUnit, SARIF."""

ROOMS = (
    "diff_report",  # what `diff` found, on a terminal and as JSON
    "failure",  # one failed rule on a terminal, with the calls around it
    "junit",  # JUnit XML
    "sarif",  # SARIF 2.1.0
    "advice",  # what a violation says: where, what was expected, what to do
    "table",  # the summary of many sessions on a terminal
)
"""Top first: each imports only those below it."""
