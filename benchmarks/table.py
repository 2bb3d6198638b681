"""The figures as a table: 80 columns on a terminal, Markdown in the documentation."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

from .rows import Row

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


def rewritten(page: str, name: str, rows: list[Row], circumstances: str) -> str:
    """A page with the table of one benchmark replaced. Raises ValueError when it has no place for it."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no `{begin}` ... `{end}` to write between")
    lines = [begin, circumstances, "", "| figure | | bound | met |", "|---|---:|---:|---|"]
    lines += [f"| {row.work} | {_figure(row)} | {_bound(row)} | {_met(row)} |" for row in rows]
    between = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return between.sub(lambda _: "\n".join([*lines, "", end]), page)


def ratios(page: str) -> str:
    """Every ratio and share of a page as `rewritten` leaves it, and whether it is within its bound."""
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
