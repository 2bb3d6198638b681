"""Rows of the matrix as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from proctor.policies.calls import Capabilities

from .rows import Row

COLUMNS: Final[tuple[tuple[str, str, Callable[[Capabilities], str]], ...]] = (
    ("gate", "gate", lambda can: can.gate),
    ("rewrite", "rewrite", lambda can: _yes(can.rewrite)),
    ("after a refusal", "deny_ends_turn", lambda can: "-" if can.gate == "none" else _refusal(can.deny_ends_turn)),
    ("usage", "usage", lambda can: can.usage.replace("_", " ")),
    ("cost", "reports_cost", lambda can: _yes(can.reports_cost)),
    ("cancel ends children", "cancel_kills_children", lambda can: _yes(can.cancel_kills_children)),
    ("resume", "resume", lambda can: _yes(can.resume)),
    ("narrow", "narrow", lambda can: _yes(can.narrow)),
    ("launch options", "compiles", lambda can: ", ".join(f"`{part}`" for part in can.compiles) or "none"),
)
"""Title, the capability it is about, how its value reads."""


def markdown(rows: Sequence[Row]) -> str:
    """The table of the documentation; what no test has shown is in italics."""
    titles = ["adapter", *(title for title, _, _ in COLUMNS), "a denied call is"]
    lines = [_line(titles), _line(["---"] * len(titles))]
    for row in rows:
        cells = [_cell(row, name, value(row.declared)) for _, name, value in COLUMNS]
        lines.append(_line([f"`{row.subject.name}`", *cells, row.level]))
    return "\n".join(lines) + "\n"


def cells(row: Row) -> list[str]:
    """The row for a terminal; what no test has shown has an asterisk."""
    values = ((name, value(row.declared)) for _, name, value in COLUMNS)
    return [f"{value.replace('`', '')}{'' if _is_plain(row, name, value) else '*'}" for name, value in values]


def _cell(row: Row, name: str, value: str) -> str:
    return value if _is_plain(row, name, value) else f"*{value}*"


def _is_plain(row: Row, name: str, value: str) -> bool:
    """Launch options are compiled by a pure function, and what is absent needs no proof."""
    return name in row.shown or name == "compiles" or value in ("no", "none", "-")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _refusal(ends_turn: bool) -> str:
    return "ends the turn" if ends_turn else "goes on"
