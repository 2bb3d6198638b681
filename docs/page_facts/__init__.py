"""What pages say of the program, written by the program: `python -m docs.page_facts` writes it into every page.

A page has a place for it between `<!-- facts: KIND [NAME] -->` and `<!-- end of facts -->`. A test compares every
place with what would be written now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from . import agents, commands, errors, events, figures, followed, frameworks, records

ROOT = Path(__file__).parents[2]
FACTS: dict[str, Callable[[str], str]] = {
    "commands": commands.reference,
    "events": events.reference,
    "fields": records.fields,
    "followed": followed.followed,
    "functions": frameworks.functions,
    "options": agents.options,
    "portable": agents.portable_names,
    "rules": records.rule_files,
    "sizing": figures.sizing,
    "store_errors": errors.store_kinds,
    "tools": agents.tools,
}
"""Kinds of facts; each is given the name of what the facts are about."""

_PLACE = re.compile(r"<!-- facts: (.*?) -->\n.*?<!-- end of facts -->", re.S)


def pages() -> Iterator[Path]:
    """The pages with a place for facts."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if _PLACE.search(page.read_text(encoding="utf-8")):
            yield page


def written(page: Path) -> str:
    """The page as it is with today's facts. Raises KeyError for facts that nobody knows."""

    def place(found: re.Match[str]) -> str:
        kind, _, name = found[1].partition(" ")
        return f"<!-- facts: {found[1]} -->\n{FACTS[kind](name)}<!-- end of facts -->"

    return _PLACE.sub(place, page.read_text(encoding="utf-8"))
