"""The rule families: what is written and how it is judged, one family a file."""

from __future__ import annotations

from .after import After, Eventually
from .before import Before, ImmediatelyBefore
from .check import Check
from .circuit_breaker import CircuitBreaker
from .count import Count, MaxCalls
from .lists import Allowlist, Blocklist
from .loop import Loop, MaxParallel
from .never_after import ForbidsAfter, NeverAfter
from .precondition import Precondition
from .provenance import Provenance
from .record import Rule
from .require import Require
from .sequence import ForbiddenSequence, Sequence

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
    "after",  # `after` and `eventually`
    "check",  # `check`
    "check_context",  # what a `check` is told beside the call, and how it may answer
    "keyed",  # `key`
    "circuit_breaker",  # `circuit_breaker`
    "loop",  # `loop` and `max_parallel`
    "count",  # `count` and its other spelling `max_calls`
    "nets",  # how nets are written
    "never_after",  # `never_after` and `forbids_after`
    "provenance",  # `provenance`
    "require",  # `require`
    "lists",  # `allowlist` and `blocklist`
    "sequence",  # `sequence` and `forbidden_sequence`
    "precondition",  # `precondition`
    "prior",  # the evidence behind a `prior` requirement
    "requirement",  # what a precondition asks for
    "before",  # `before` and `immediately_before`
    "approval",  # `human-approval` where a rule says what must come first
    "record",  # what every rule shares, and what it says of itself
    "machine",  # what judges a rule
    "wording",  # how selectors and figures are said in a few words
)
"""Top first: each imports only those below it."""
