"""Rows of the matrix as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from proctor.policies.events.run_context import Capabilities

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
)
"""Title, the capability it is about, how its value reads."""
SUB_AGENTS: Final = "sub-agents"
LAUNCH: Final = "launch options"
LEVEL: Final = "a denied call is"
TITLES: Final = (*(title for title, _, _ in COLUMNS), SUB_AGENTS, LAUNCH, LEVEL)


def markdown(rows: Sequence[Row]) -> str:
    """The table of the documentation; what no test has shown is in italics."""
    lines = [_line(["adapter", *TITLES]), _line(["---"] * (len(TITLES) + 1))]
    lines += [_line([f"`{row.spec.name}`", *facts(row).values()]) for row in rows]
    return "\n".join(lines) + "\n"


def facts(row: Row) -> dict[str, str]:
    """The row by the titles of its columns; what no test has shown is in italics."""
    texts = (value if plain else f"*{value}*" for value, plain in _values(row))
    options = (f"`{part}`" if _is_compiled(row, part) else f"*`{part}`*" for part in row.declared.compiles)
    return {
        **dict(zip((title for title, _, _ in COLUMNS), texts, strict=True)),
        SUB_AGENTS: "held" if "sub_agents" in row.shown else "-",
        LAUNCH: ", ".join(options) or "none",
        LEVEL: row.level,
    }


def cells(row: Row) -> list[str]:
    """The row for a terminal, without its launch options; what no test has shown has an asterisk."""
    return [value if plain else f"{value}*" for value, plain in _values(row)]


def _values(row: Row) -> Iterator[tuple[str, bool]]:
    """What each column says, and whether a test has shown it; what is absent needs no proof."""
    for _, name, read in COLUMNS:
        value = read(row.declared)
        yield value, name in row.shown or value in ("no", "none", "-")


def _is_compiled(row: Row, part: str) -> bool:
    return f"compiles {part}" in row.shown


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _refusal(ends_turn: bool) -> str:
    return "ends the turn" if ends_turn else "goes on"
