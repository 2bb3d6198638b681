"""Figures: what a benchmark returns, the bounds they are held against, and where they are shown and noted."""

from __future__ import annotations

import os
import platform
import re
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import psutil

Unit = Literal["us", "ms", "x", "KiB", "MiB", "ev/s", "/s", "s", "share"]


class Row(NamedTuple):
    """One figure; `bound` is the most it may be, or with `at_least` the least."""

    work: str
    figure: float
    unit: Unit
    bound: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the figure keeps its bound; None where there is none."""
        if self.bound is None:
            return None
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound


class Size(NamedTuple):
    """How much is measured: `quick` only shows that a benchmark works."""

    quick: bool

    def of(self, full: int, quick: int) -> int:
        """One of two amounts."""
        return quick if self.quick else full


def quantile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


_WORK = 52


def on_terminal(results: Mapping[str, list[Row]]) -> str:
    """The table of a terminal 80 columns wide."""
    lines = [f"{'':{_WORK}}{'figure':>12}{'bound':>9}{'met':>7}"]
    for name, rows in results.items():
        lines.append(name)
        for row in rows:
            *above, last = textwrap.wrap(row.work, _WORK - 3, subsequent_indent="  ")
            lines += [f"  {part}" for part in above]
            lines.append(f"  {last:{_WORK - 2}}{_figure(row):>12}{_bound(row):>9}{_met(row):>7}")
    return "\n".join(lines)


def as_table(rows: list[Row]) -> str:
    """The table of a page: where and when, then the figures."""
    lines = [circumstances(), "", "| figure | | bound | met |", "|---|---:|---:|---|"]
    lines += [f"| {row.work} | {_figure(row)} | {_bound(row)} | {_met(row)} |" for row in rows]
    return "\n".join(lines)


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """The page with its tables replaced, each between `<!-- name -->` and `<!-- end of name -->`.

    Raises ValueError for a table that the page has no place for.
    """
    for name, table in tables.items():
        between = re.compile(rf"<!-- {re.escape(name)} -->\n.*?<!-- end of {re.escape(name)} -->", re.DOTALL)
        text = f"<!-- {name} -->\n{table}\n\n<!-- end of {name} -->"
        page, places = between.subn(lambda _, text=text: text, page)  # type: ignore[misc]
        if places != 1:
            raise ValueError(f"the page has {places} places for the table `{name}`")
    return page


def ratios(page: str) -> str:
    """Every ratio and share of the tables of a page, and whether it is within its bound."""
    lines = ["| benchmark | ratio | | bound | met | measured |", "|---|---|---:|---|---|---|"]
    for name, text in re.findall(
        r"^<!-- (?!end of )(.+?) -->\n(.*?)<!-- end of \1 -->", page, re.DOTALL | re.MULTILINE
    ):
        measured = text.partition(",")[0]
        for work, figure, bound, met in re.findall(
            r"^\| (.+?) \| ([\d.,]+(?: x|%)) \| *(.*?) *\| *(.*?) *\|$", text, re.M
        ):
            lines.append(f"| {name} | {work} | {figure} | {bound} | {met} | {measured} |")
    return "\n".join(lines)


def _figure(row: Row) -> str:
    return _amount(row.figure, row)


def _bound(row: Row) -> str:
    if row.bound is None:
        return ""
    return f"{'>=' if row.at_least else '<='} {_amount(row.bound, row).split()[0]}"


def _amount(value: float, row: Row) -> str:
    if row.unit == "share":
        return f"{value:.0%}"
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{text} {row.unit}"


def _met(row: Row) -> str:
    return {True: "yes", False: "NO", None: ""}[row.met]


LOG = Path(__file__).parent / "history.jsonl"


def noted(results: Mapping[str, list[Row]]) -> None:
    """Append the figures of a run, with the Python and the kind of machine."""
    line = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": machine(),
        "figures": {name: {row.work: round(row.figure, 4) for row in rows} for name, rows in results.items()},
    }
    with LOG.open("ab") as log:
        log.write(msgspec.json.encode(line) + b"\n")


def machine() -> dict[str, Any]:
    """What kind of machine this is, and how busy it was; nothing that names it."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "load": round(os.getloadavg()[0], 1),
    }


def circumstances() -> str:
    """When, where and how undisturbed, in one line."""
    where = machine()
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {where['system']} "
        f"{where['architecture']}, {where['cpus']} processors, load {where['load']}"
    )
