"""What is proved: the certificate of each part of a property, which `certificate.check` verifies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ..monitor.program import Program
    from ..stack.merge import BudgetEntry, LimitEntry
    from .alphabet import PlayedRule
    from .components import Standard
    from .session_search import SessionProduct, State


class Side(NamedTuple):
    """A policy as the search sees it: its rules by id, its limits, and its program without checks in Python."""

    program: Program
    rules: dict[str, PlayedRule]
    limits: tuple[LimitEntry, ...]


class ProofCertificate(NamedTuple):
    """The rules, the calls and the states of one proof: that a stack's rules imply one rule of a property."""

    product: SessionProduct
    states: frozenset[State]


class SameRuleCertificate(NamedTuple):
    """A rule of the stack that is, word by word, one of the property, and their actions."""

    mine: PlayedRule
    rule: PlayedRule
    standard: Standard


class AmountCertificate(NamedTuple):
    """Limits of the stack that together end a run before it exceeds one of the property, or the very same limit."""

    mine: tuple[LimitEntry, ...]
    limit: LimitEntry
    standard: Standard


class BudgetCertificate(NamedTuple):
    """A budget of the stack that is one of the property, with no more in it."""

    mine: BudgetEntry
    budget: BudgetEntry
    standard: Standard


class NothingCertificate(NamedTuple):
    """A property that nothing can break, by the standard of the question."""

    property: Side
    standard: Standard


Certificate: TypeAlias = (
    ProofCertificate | SameRuleCertificate | AmountCertificate | BudgetCertificate | NothingCertificate
)
BOUNDED_BY: dict[str, list[tuple[str, ...]]] = {
    "max_total_tokens": [("max_input_tokens", "max_output_tokens")],
    "max_input_tokens": [("max_total_tokens",)],
    "max_output_tokens": [("max_total_tokens",)],
    "max_idle_ms": [("max_duration_ms",)],
}
"""For an amount other limits that together bound it, in each way."""
