"""Conditions in words, for people who ask why a rule objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from .conditions import Condition
from .operands import is_argument, is_output, output_ref

LONGEST = 60
_SAYS = {
    "equals": "is",
    "not_equals": "is not",
    "in": "is one of",
    "not_in": "is none of",
    "type": "is of type",
    "gt": "is more than",
    "gte": "is at least",
    "lt": "is less than",
    "lte": "is at most",
    "regex": "matches",
    "contains": "contains",
    "length": "has length",
    "length_gte": "has a length of at least",
    "length_lte": "has a length of at most",
    "set_equals": "has just the values",
    "within": "is inside",
    "runs": "would run",
}


def condition_words(conditions: Sequence[Condition]) -> str:
    """Conditions that must all hold, as one phrase."""
    return " and ".join(_condition(condition) for condition in conditions)


def _condition(condition: Condition) -> str:
    if condition.any_of is not UNSET:
        return f"({' or '.join(_condition(inner) for inner in condition.any_of)})"
    if condition.not_ is not UNSET:
        return f"not ({condition_words(condition.not_)})"
    operators = " and ".join(_operator(name, operand) for name, operand in condition.operators())
    often = "" if condition.at_least in (UNSET, 1) else f" {condition.at_least} times"
    return f"`{condition.path}` {operators}{often}"


def _operator(name: str, operand: Any) -> str:
    if name == "exists":
        return "is given" if operand else "is not given"
    return f"{_SAYS[name]} {_operand(operand)}"


def _operand(operand: Any) -> str:
    if is_argument(operand):
        return f"the call's `{operand['arg']}`"
    if is_output(operand):
        ref = output_ref(operand)
        return f"what {' or '.join(f'`{tool}`' for tool in ref.tools)} returned at `{ref.path}`"
    if isinstance(operand, tuple):
        return " or ".join(_operand(item) for item in operand)
    text = operand if isinstance(operand, str) else msgspec.json.encode(operand).decode()
    return f"`{text if len(text) <= LONGEST else f'{text[: LONGEST - 3]}...'}`"
