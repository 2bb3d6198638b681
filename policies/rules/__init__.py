"""The rule families: what is written and how it is evaluated, one family a file."""

from .count import Count, MaxCalls
from .lists import Allowlist, Blocklist
from .precedence import Before, ImmediatelyBefore
from .precondition import Precondition
from .provenance import Provenance
from .python_check import Check
from .repetition import CircuitBreaker, Loop, MaxParallel
from .response import After, Eventually, Require
from .rule import Rule
from .sequence import ForbiddenSequence, ForbidsAfter, NeverAfter, Sequence

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
    "lists",
    "net_shorthand",
    "per_key",
    "precondition",
    "provenance",
    "python_check",
    "repetition",
    "response",
    "sequence",
    "count",
    "petri_net",
    "prior_calls",
    "precedence",
    "rule",
    "machine",
    "memory",
)
"""Top first: each imports only those below it."""
