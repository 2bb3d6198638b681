"""The operations, a file for each kind of thing."""

from .about import OPERATIONS as _ABOUT
from .approvals import OPERATIONS as _APPROVALS
from .budgets import OPERATIONS as _BUDGETS
from .decisions import OPERATIONS as _DECISIONS
from .health import OPERATIONS as _HEALTH
from .runs import OPERATIONS as _RUNS
from .stopping import OPERATIONS as _STOPPING
from .streams import OPERATIONS as _STREAMS

OPERATIONS = (*_ABOUT, *_HEALTH, *_RUNS, *_STREAMS, *_DECISIONS, *_APPROVALS, *_BUDGETS, *_STOPPING)
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
