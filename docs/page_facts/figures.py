"""Figures of the page on benchmarks, for pages that reckon with them."""

from __future__ import annotations

import re
from pathlib import Path

from .markdown import table

_PAGE = Path(__file__).parents[1] / "benchmarks.md"
_TABLES = {
    "machine": (
        ("events a second, judged and recorded durably, SQLite", "stream", "16 supervised runs, SQLite store"),
        ("the same in memory only, so what judging alone allows", "stream", "16 supervised runs, memory store"),
        ("what the gate adds to a call with a durable record, half of all calls", "gate", "gate, SQLite FULL, p50"),
        ("the same, 99 of 100 calls", "gate", "gate, SQLite FULL, p99"),
        ("memory of a run whose agent is silent", "memory", "one of 10,000 idle supervised runs, 10 rules"),
        ("disk for a million events, SQLite", "disk", "SQLite file, a million events"),
        ("disk for a million events as exported", "disk", "the same events as lines of JSON, a million events"),
    ),
    "databases": (
        ("SQLite, events a second", "postgres", "16 supervised runs, SQLite store"),
        ("PostgreSQL on the same machine, events a second", "postgres", "16 supervised runs, PostgreSQL store"),
    ),
}  # fmt: skip
_ROW = re.compile(r"^\| (?P<work>.+?) \| (?P<figure>[\d,.]+ \S+) \|", re.M)


def sizing(name: str) -> str:
    """What a machine carries, as it was last measured, and the load meanwhile. Raises KeyError for a figure that is
    not measured any more.
    """
    page = _PAGE.read_text(encoding="utf-8")
    rows = []
    for what, benchmark, work in _TABLES[name]:
        _, _, measured = page.partition(f"<!-- {benchmark} -->\n")
        measured, _, _ = measured.partition(f"<!-- end of {benchmark} -->")
        figures = {row["work"]: row["figure"] for row in _ROW.finditer(measured)}
        load = measured.partition("\n")[0].rpartition("load ")[2]
        rows.append((what, figures[work], load))
    return table(["what", "figure", "load of the machine meanwhile"], rows)
