"""The rule families: what is written and how it is judged, one family a file."""

from __future__ import annotations

from .counting.circuit_breaker import CircuitBreaker
from .counting.count import Count, MaxCalls
from .counting.loop import Loop, MaxParallel
from .evidence.check import Check
from .evidence.precondition import Precondition
from .evidence.provenance import Provenance
from .lists import Allowlist, Blocklist
from .order.after import After, Eventually
from .order.before import Before, ImmediatelyBefore
from .order.never_after import ForbidsAfter, NeverAfter
from .order.require import Require
from .order.sequence import ForbiddenSequence, Sequence
from .record import Rule

WRITTEN: tuple[type[Rule], ...] = (
    Allowlist,
    Blocklist,
    Require,
    Count,
    MaxCalls,
    Before,
    ImmediatelyBefore,
    After,
    Eventually,
    NeverAfter,
    Sequence,
    ForbiddenSequence,
    Precondition,
    ForbidsAfter,
    Provenance,
    Loop,
    MaxParallel,
    CircuitBreaker,
)

RULES: dict[str, type[Rule]] = {str(rule.__struct_config__.tag): rule for rule in WRITTEN}
"""The families a policy file may use, by their `type`."""

__all__ = ["RULES", "Check", *sorted(rule.__name__ for rule in WRITTEN)]

ROOMS = (
    "evidence",  # what a call must stand on: `check`, `precondition`, `provenance`
    "order",  # what comes before, after, or at all
    "keyed",  # `key`
    "counting",  # how often, and how many at once
    "nets",  # how nets are written
    "lists",  # `allowlist` and `blocklist`
    "approval",  # `human-approval` where a rule says what must come first
    "refusal",  # how a function of the user's answers about a call
    "record",  # what every rule shares, and what it says of itself
    "machine",  # what judges a rule
    "wording",  # how selectors and figures are said in a few words
)
