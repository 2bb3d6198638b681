"""Tables and lists, as pages have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns in which no row has anything are left out."""
    listed = [list(row) for row in rows]
    kept = [at for at, _ in enumerate(titles) if any(row[at] for row in listed)]
    lines = [_line([titles[at] for at in kept]), _line(["---"] * len(kept))]
    return "\n".join([*lines, *(_line([row[at] for at in kept]) for row in listed)]) + "\n"


def entries(rows: Iterable[Sequence[str]]) -> str:
    """A list: each entry a name, what it is in brackets if that is said, and its meaning."""
    return "".join(f"- {name}{f' ({kind})' if kind else ''}: {paragraph(meaning)}\n" for name, kind, meaning in rows)


def code(text: object) -> str:
    """As code, where there is anything."""
    return f"`{text}`" if text not in ("", None) else ""


def codes(texts: Iterable[object]) -> str:
    """Several as code."""
    return ", ".join(code(text) for text in texts)


def paragraph(text: str) -> str:
    """Lines of one paragraph as one line."""
    return re.sub(r"\s+", " ", text).strip()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(paragraph(cell).replace('|', chr(92) + '|') for cell in cells)} |"
