"""The operations of the API, one file for each kind of thing."""

from ..operations import Operation
from . import about, approvals, budgets, decisions, health, runs, stopping, streams

_FILES = (about, health, runs, streams, decisions, approvals, budgets, stopping)
OPERATIONS = tuple(found for file in _FILES for found in vars(file).values() if isinstance(found, Operation))
"""Everything the API can do."""

ROOMS = (
    "about",  # who asks
    "health",  # whether the store answers
    "budgets",  # budgets that runs share
    "streams",  # events as they come
    "decisions",  # decisions, limits, policies of a run
    "approvals",  # calls that wait for a person
    "stopping",  # ends of runs
    "runs",  # runs and their events
)
"""Top first: each imports only those below it."""
