"""Figures of the page on benchmarks, for pages that reckon with them."""

from __future__ import annotations

import re
from pathlib import Path

from .markdown import table

_PAGE = Path(__file__).parents[1] / "benchmarks.md"
_SIZING = (
    ("events a second that one process judges and records durably, SQLite", "16 supervised runs, SQLite store"),
    ("the same in memory only, so what judging alone allows", "16 supervised runs, memory store"),
    ("what the gate adds to a call with a durable record, half of all calls", "gate, SQLite FULL, p50"),
    ("the same, 99 of 100 calls", "gate, SQLite FULL, p99"),
    ("memory of a run whose agent is silent, its record in memory", "one of 10,000 idle supervised runs, 10 rules"),
    ("disk for a million events, SQLite", "SQLite file, a million events"),
    ("disk for a million events as exported", "the same events as lines of JSON, a million events"),
)
_ROW = re.compile(r"^\| (?P<work>.+?) \| (?P<figure>[\d,.]+ \S+) \|", re.M)


def sizing(_: str) -> str:
    """What a machine carries, as it was last measured. Raises KeyError for a figure that is not measured any more.

    The first row of a name counts: a later table repeats it for comparison with another store.
    """
    rows = list(_ROW.finditer(_PAGE.read_text(encoding="utf-8")))
    measured = {row["work"]: row["figure"] for row in reversed(rows)}
    return table(["what", "figure"], [(what, measured[work]) for what, work in _SIZING])
