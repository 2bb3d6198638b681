"""Which condition was met or missed by which value, for people who ask why a call was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from ..values import paths
from ..values.equality import unkeepable
from .conditions import Condition
from .facts import Facts
from .operands import Expand, as_written
from .predicates import compile_conditions
from .wording import condition_words

LONGEST = 200
"""How many characters of a value are shown."""
MOST = 5
"""How many values of a path are shown."""


def explained(
    conditions: Sequence[Condition],
    document: Any,
    facts: Facts,
    *,
    permits: bool,
    loose: bool,
    expand: Expand = as_written,
) -> list[dict[str, Any]]:
    """Each condition in words, whether it holds, and the values it looked at."""
    found: list[dict[str, Any]] = []
    for condition in conditions:
        holds = compile_conditions([condition], permits=permits, loose=loose, expand=expand).holds(document, facts)
        entry: dict[str, Any] = {"condition": condition_words([condition]), "holds": holds}
        if condition.path is not UNSET:
            values = [_shown(value) for value in paths.compile_path(condition.path, loose)(document)[:MOST]]
            entry["value"] = values[0] if len(values) == 1 else values
        found.append(entry)
    return found


def _shown(value: Any) -> Any:
    """A value as it is, if it is short; else the beginning of its text."""
    if unkeepable(value):
        return "a value that cannot be written down"
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= LONGEST else f"{text[:LONGEST]}..."
