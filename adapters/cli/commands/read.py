"""`show` and `tail`: the events that the store holds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..common import json_option, run_async, store_option
from ..terminal.output import note

if TYPE_CHECKING:
    from proctor.policies import Event
    from proctor.supervisor.ports import RunInfo, Store


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
