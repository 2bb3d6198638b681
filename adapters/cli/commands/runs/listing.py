"""`runs`: the stored runs, newest first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ...common import json_option, run_async, store_option
from ...moments import Moment, amount, dollars, took
from ...output_file import output_option
from ...terminal.output import console, note, say_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.text import Text

    from proctor.supervisor.ports.adapters import RunFilter, RunInfo

_STATUSES = ("created", "running", "lost", "completed", "failed", "cancelled")
_PROMPT_ROOM = 20
"""A prompt with less room than this beside its run goes below it."""


@click.command()
@click.option("--status", "statuses", multiple=True, type=click.Choice(_STATUSES), help="Only runs with this status.")
@click.option("--session", metavar="ID", help="Only runs of this session.")
@click.option("--tenant", metavar="NAME", help="Only runs of this tenant.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only runs with this label.")
@click.option("--agent", metavar="NAME", help="Only runs of this agent, named as in the list.")
@click.option(
    "--since",
    type=Moment(),
    metavar="WHEN",
    help="Only runs that began at this time or later: 2026-01-31T08:00, 2h ago.",
)
@click.option("--until", type=Moment(), metavar="WHEN", help="Only runs that began before this time.")
@click.option("--before", metavar="RUN", help="Only runs older than this one: the next page.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Show at most this many."
)
@store_option
@output_option
@json_option
def runs(
    statuses: tuple[Any, ...],
    session: str | None,
    tenant: str | None,
    labels: tuple[str, ...],
    agent: str | None,
    since: datetime | None,
    until: datetime | None,
    before: str | None,
    limit: int,
    store: str | None,
    as_json: bool,
) -> None:
    """List the stored runs, newest first: how they ended, how long they took, what they did and used."""
    from proctor.supervisor.ports.adapters import RunFilter

    where = RunFilter(
        status=frozenset(statuses),
        tenant=tenant,
        labels=dict(_label(text) for text in labels),
        provider=agent,
        since=since,
        until=until,
    )
    found, more = _found(store, where, session, before, limit)
    if as_json:
        for info in found:
            say_json(_as_data(info))
        return
    if not found:
        note("no runs")
        return
    out = console()
    for line in _lines(found, out.width):
        out.print(line, no_wrap=True, overflow="ignore", crop=False)
    if more:
        note(f"older ones: `--before {found[-1].run_id}`, or a larger `--limit`")


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"`--label NAME=VALUE`: `{text}` is not a name with a value")
    return name, value


def _found(
    store: str | None, where: RunFilter, session: str | None, before: str | None, limit: int
) -> tuple[list[RunInfo], bool]:
    """The runs, and whether there are more."""
    from ...run_lookup import run_named
    from ...store_place import is_there_or_said, opened

    async def listed() -> list[RunInfo]:
        async with opened(store, must_exist=True) as opened_store:
            than = (await run_named(opened_store, before)).run_id if before else None
            return await opened_store.runs(limit=limit + 1, session_id=session, before=than, where=where)

    found = run_async(listed) if is_there_or_said(store) else []
    return found[:limit], len(found) > limit


def _as_data(info: RunInfo) -> dict[str, Any]:
    import msgspec

    return {**msgspec.structs.asdict(info), "duration_ms": info.duration_ms}


_COLUMNS: dict[str, Callable[[RunInfo], str]] = {
    "run": lambda info: info.run_id,
    "status": lambda info: info.status,
    "agent": lambda info: info.provider,
    "tenant": lambda info: info.tenant or "",
    "started (UTC)": lambda info: f"{began:%Y-%m-%d %H:%M}" if (began := info.started_at or info.created_at) else "",
    "took": lambda info: _took(info),
    "calls": lambda info: str(info.calls or ""),
    "violations": lambda info: str(info.violations or ""),
    "tokens": lambda info: amount(info.usage.total_tokens) if info.usage.total_tokens else "",
    "cost": lambda info: dollars(info.usage.cost_usd) if info.usage.cost_usd else "",
}
"""Each column with its text for every run; a column that is empty for all is left out."""
_LESS = ("calls", "tokens", "violations", "tenant", "cost", "took")
"""What is left to `--json` and to wider terminals where a line has no room, the first of these first."""
_RIGHT = frozenset(("took", "calls", "violations", "tokens", "cost"))


def _took(info: RunInfo) -> str:
    if info.status == "running" and info.started_at is not None:
        return f"{took(max(0, round((datetime.now(UTC) - info.started_at).total_seconds() * 1000)))}.."
    return took(info.duration_ms) if info.duration_ms is not None else ""


def _lines(found: list[RunInfo], width: int) -> Iterator[Text]:
    """What there is room for, whole; a prompt beside it, or below where there is no room, is cut to the width."""
    from rich.text import Text

    from proctor.adapters.kit.values.printable import printable

    columns = [[title, *(printable(cell(info)) for info in found)] for title, cell in _COLUMNS.items()]
    cells_by_column = {column[0]: _aligned(column) for column in columns if any(column[1:])}
    for name in _LESS:
        if sum(len(column[0]) + 2 for column in cells_by_column.values()) - 2 > width:
            cells_by_column.pop(name, None)
    left = ["  ".join(cells) for cells in zip(*cells_by_column.values(), strict=True)]
    prompts = ["prompt", *(printable(str(info.spec.get("prompt", ""))) for info in found)]
    beside = width - len(left[0]) - 2 >= _PROMPT_ROOM
    for n, (line, prompt) in enumerate(zip(left, prompts, strict=True)):
        style = "" if n else "bold"
        shown = Text(prompt, style)
        shown.truncate(max(width - (len(left[0]) + 2 if beside else 2), 10), overflow="ellipsis")
        if beside:
            yield Text(f"{line}  ", style) + shown
        else:
            yield Text(line.rstrip(), style)
            if prompt:
                yield Text("  ") + shown


def _aligned(column: list[str]) -> list[str]:
    from rich.cells import cell_len

    widest = max(map(cell_len, column))
    gaps = [" " * (widest - cell_len(cell)) for cell in column]
    right = column[0] in _RIGHT
    return [gap + cell if right else cell + gap for cell, gap in zip(column, gaps, strict=True)]
