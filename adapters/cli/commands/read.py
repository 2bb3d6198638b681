"""`runs`, `show` and `tail`: what the store holds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..common import json_option, run_async, store_option
from ..terminal.output import console, note, say_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from proctor.policies import Event
    from proctor.supervisor.ports import RunInfo, Store

_TITLES = ("run", "status", "agent", "started (UTC)", "prompt")
_PROMPT_ROOM = 20
"""A prompt with less room than this beside its run goes below it."""


@click.command()
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="At most so many."
)
@click.option("--session", metavar="ID", help="Those of one session.")
@store_option
@json_option
def runs(limit: int, session: str | None, store: str | None, as_json: bool) -> None:
    """List the stored runs, newest first."""
    from ..places import is_there, opened

    async def listed() -> list[RunInfo]:
        async with opened(store, must_exist=True) as opened_store:
            return await opened_store.runs(limit=limit, session_id=session)

    found = run_async(listed) if is_there(store) else []
    if as_json:
        for info in found:
            say_json(info)
    elif found:
        out = console()
        for line in _lines(found, out.width):
            out.print(line, no_wrap=True, overflow="ignore", crop=False)
    else:
        note("no runs")


def _lines(found: list[RunInfo], width: int) -> Iterator[Text]:
    """Everything but the prompts, whole; a prompt beside it, or below where there is no room, is cut to the width."""
    from rich.cells import cell_len
    from rich.text import Text

    from proctor.adapters.kit.printable import printable

    rows = [[printable(cell) for cell in _cells(info)] for info in found]
    widest = [max(map(cell_len, column)) for column in list(zip(_TITLES, *rows, strict=True))[:-1]]
    left = sum(widest) + 2 * len(widest)
    beside = width - left >= _PROMPT_ROOM
    for n, (*cells, prompt) in enumerate((_TITLES, *rows)):
        style = "" if n else "bold"
        line = "".join(cell + " " * (wide + 2 - cell_len(cell)) for cell, wide in zip(cells, widest, strict=True))
        shown = Text(prompt, style)
        shown.truncate(max(width - (left if beside else 2), 10), overflow="ellipsis")
        if beside:
            yield Text(line, style) + shown
        else:
            yield Text(line.rstrip(), style)
            yield Text("  ") + shown


def _cells(info: RunInfo) -> tuple[str, ...]:
    at = f"{info.created_at:%Y-%m-%d %H:%M}" if info.created_at else ""
    return (info.run_id, info.status, info.provider, at, str(info.spec.get("prompt", "")))


@click.command()
@click.argument("run", metavar="RUN")
@store_option
@json_option
def show(run: str, store: str | None, as_json: bool) -> None:
    """Show a stored run, event by event. RUN is an id, the beginning of one, or `last`."""
    from ..places import opened
    from ..stored import run_named
    from ..terminal.live import Live

    async def read() -> tuple[RunInfo, list[Event]]:
        async with opened(store, must_exist=True) as opened_store:
            info = await run_named(opened_store, run)
            return info, [event async for event in opened_store.read(info.session_id, run_id=info.run_id)]

    info, events = run_async(read)
    live = Live(as_json=as_json, numbered=True)
    for event in events:
        live(event)
    if not as_json:
        live.print(f"\n{info.run_id}: {info.status}, {len(events)} events, session {info.session_id}")


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on as events come, until Ctrl-C.")
@click.option("--run", metavar="RUN", help="Of this run only; following ends with it.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="So many from before.",
)
@store_option
@json_option
def tail(follow: bool, run: str | None, lines: int, store: str | None, as_json: bool) -> None:
    """Show the latest events of all runs, whatever process they are in."""
    from ..places import is_there, opened
    from ..terminal.live import Live

    live = Live(as_json=as_json, clock=True)
    if not is_there(store) and not follow and not run:
        note("no runs")
        return

    async def read() -> None:
        async with opened(store, must_exist=not follow) as opened_store:
            await _tail(opened_store, live, run, lines, follow=follow)

    try:
        run_async(read)
    except KeyboardInterrupt:
        sys.stdout.flush()


async def _tail(store: Store, live: Any, run: str | None, lines: int, *, follow: bool) -> None:
    from ..stored import run_named
    from ..terminal.following import Follower

    only = await run_named(store, run) if run else None
    follower = Follower(store, only)
    before = await follower.new()
    shown = sum(1 for event in before if live.shows(event))
    for event in before:
        shown -= live.shows(event)
        if shown < lines:
            live(event)
        else:
            live.know(event)
    token = 0
    while follow and not follower.over and not live.unread:
        seen, token = token, await store.wait(token, 1.0)
        for event in await follower.new() if token != seen else ():
            live(event)
