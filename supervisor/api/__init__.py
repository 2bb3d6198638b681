"""The entry points: one run, many runs, and the handle of a run."""

ROOMS = ("run_once", "supervisor", "active_runs")
"""Top first: each imports only those below it."""
