"""The summary of many sessions on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor.adapters.kit.values.printable import printable

from ..tally import RuleTally, Tally

_STATUSES = ("violated", "held", "not_exercised", "pending")


def summary_table(tally: Tally, *, failed_shown: int = 20) -> RenderableType:
    """A table of the rules and one of the sessions that failed, at most `failed_shown` of them.

    Everything it says is in words and figures; colour only repeats it.
    """
    return Group(*_parts(tally, failed_shown))


def _parts(tally: Tally, failed_shown: int) -> Iterator[RenderableType]:
    yield _rules(tally)
    if tally.failed and failed_shown:
        yield Text()
        yield _sessions(tally, failed_shown)
    more = tally.sessions - tally.passed - min(failed_shown, len(tally.failed))
    if more > 0:
        yield Text(f"... and {more} more that failed")
    yield Text()
    yield _verdict(tally)


def _rules(tally: Tally) -> Table:
    table = _table("rules, in sessions")
    table.add_column("rule", overflow="fold")
    for heading in ("violated", "held", "not exercised", "pending", "violations"):
        table.add_column(heading, justify="right")
    for rule in tally.rules.values():
        table.add_row(*_rule_cells(rule))
    return table


def _table(title: str) -> Table:
    return Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")


def _rule_cells(rule: RuleTally) -> list[Text]:
    style = "red" if rule.violations else ""
    counts = [Text(str(rule.sessions[status])) for status in _STATUSES]
    counts[0].style = style
    return [Text(printable(rule.rule), style), *counts, Text(str(rule.violations), style)]


def _sessions(tally: Tally, shown: int) -> Table:
    table = _table("sessions that failed")
    table.add_column("session", overflow="fold", ratio=3)
    table.add_column("rules violated", overflow="fold", ratio=2)
    with_owner = any(failed.whose for failed in tally.failed[:shown])
    if with_owner:
        table.add_column("whose", overflow="fold", ratio=2)
    for failed in tally.failed[:shown]:
        rules = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in failed.rules.items())
        of = [Text(printable(failed.whose))] if with_owner else []
        table.add_row(Text(printable(failed.session)), Text(printable(rules), "red"), *of)
    return table


def _verdict(tally: Tally) -> Text:
    failed = tally.sessions - tally.passed
    text = f"{_counted(tally.sessions, 'session')}: {tally.passed} passed, {failed} failed"
    style = "bold red" if failed else "bold green"
    return Text(f"{text} ({_counted(tally.violations, 'violation')})" if failed else text, style)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
