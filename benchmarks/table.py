"""The figures as a table: 80 columns on a terminal, Markdown in the documentation."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

from .rows import Row

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
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


def in_markdown(results: Mapping[str, list[Row]]) -> str:
    """The table of the documentation."""
    lines = ["| benchmark | figure | bound | met |", "|---|---:|---:|---|"]
    for name, rows in results.items():
        lines += [f"| {name}: {row.work} | {_figure(row)} | {_bound(row)} | {_met(row)} |" for row in rows]
    return "\n".join(lines)


def rewritten(page: str, table: str) -> str:
    """A page with its table replaced. Raises ValueError when it has no place for one."""
    if BEGIN not in page or END not in page:
        raise ValueError(f"the page has no `{BEGIN}` ... `{END}` to write between")
    between = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return between.sub(lambda _: f"{BEGIN}\n{table}\n{END}", page)


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
