"""Whole supervised sessions under generated policies: the monitor against the reference in `tests/reference`."""

from typing import Final

from hypothesis import HealthCheck, Phase, settings

from tests.reference.agreeing import KINDS, compare_sessions
from tests.reference.directed import ASKS, supervised

from .ledger import Share

_POLICIES: Final = 60
"""Policies in a share, all of one kind."""
_SOME: Final = settings(
    max_examples=_POLICIES,
    suppress_health_check=list(HealthCheck),
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
)
_COUNTED: Final = {
    "proposals": ("agreed", "objected"),
    "objected to": ("objected",),
    "held for a person": ("request_approval",),
    "late answers": ("a late answer",),
    "ids used again": ("an id again",),
    "rewritten inputs": ("an input rewritten",),
    "runs of a session gone on with": ("another run",),
}


def sessions(seed: int, number: int) -> Share:
    """Sessions under policies of one kind; the kinds alternate."""
    kind = KINDS[number % len(KINDS)]
    try:
        seen = compare_sessions(kind, _SOME, supervised, also=[ASKS], seeded=seed * 1_000_003 + number)
    except AssertionError as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        return Share({}, [f"{kind}, share {number} of seed {seed}: {error}\n{notes}"])
    return Share({name: sum(seen[key] for key in keys) for name, keys in _COUNTED.items()})
