"""Figures of the page on benchmarks, for pages that reckon with them."""

from __future__ import annotations

import re
from pathlib import Path

from .markdown import table

_PAGE = Path(__file__).parents[1] / "benchmarks.md"
_TABLES = {
    "machine": (
        ("events evaluated and stored in a second", "stream", "16 supervised runs, SQLite store"),
        ("events evaluated in a second, in memory only", "stream", "16 supervised runs, memory store"),
        ("time the gate adds to a call: median", "gate", "gate, SQLite FULL, p50"),
        ("time the gate adds to a call: 99 of 100 calls", "gate", "gate, SQLite FULL, p99"),
        ("memory of a run whose agent is silent", "memory", "one of 10,000 idle supervised runs, 10 rules"),
        ("disk for a million events", "disk", "SQLite file, a million events"),
        ("disk for a million exported events", "disk", "the same events as lines of JSON, a million events"),
    ),
    "databases": (
        ("SQLite, events a second", "postgres", "16 supervised runs, SQLite store"),
        ("PostgreSQL on the same machine, events a second", "postgres", "16 supervised runs, PostgreSQL store"),
    ),
}  # fmt: skip
_ROW = re.compile(r"^\| (?P<work>.+?) \| (?P<figure>[\d,.]+ \S+) \|", re.M)


def sizing(name: str) -> str:
    """What a machine carries, as it was last measured. Raises KeyError for a figure that is not measured any more."""
    page = _PAGE.read_text(encoding="utf-8")
    rows = []
    for what, benchmark, work in _TABLES[name]:
        _, _, measured = page.partition(f"<!-- {benchmark} -->\n")
        measured, _, _ = measured.partition(f"<!-- end of {benchmark} -->")
        figures = {row["work"]: row["figure"] for row in _ROW.finditer(measured)}
        rows.append((what, figures[work]))
    return table(["what", "figure"], rows)
