"""`tail`: the latest events, and those that come."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ...common import json_option, run_async, store_option
from ...terminal.output import note

if TYPE_CHECKING:
    from proctor.supervisor.ports.adapters import Store

    from ...terminal.live import Live


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Follow new events, until Ctrl-C.")
@click.option("--run", metavar="RUN", help="Only this run; following ends when it ends.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="How many earlier events to show.",
)
@store_option
@json_option
def tail(follow: bool, run: str | None, lines: int, store: str | None, as_json: bool) -> None:
    """Show the latest events of all runs, in any process, grouped by run."""
    from ...store_place import is_there_or_said, opened
    from ...terminal.live import Live

    live = Live(as_json=as_json, clock=True, named=run is None)
    if not is_there_or_said(store) and not follow and not run:
        note("no runs")
        return

    async def read() -> None:
        async with opened(store, must_exist=not follow) as opened_store:
            await _tail(opened_store, live, run, lines, follow=follow)

    try:
        run_async(read)
    except KeyboardInterrupt:
        sys.stdout.flush()


async def _tail(store: Store, live: Live, name: str | None, lines: int, *, follow: bool) -> None:
    from proctor.supervisor.store.paging import closing

    from ...run_lookup import run_named
    from ...terminal.latest import Latest, following

    run = await run_named(store, name) if name else None
    before = Latest(lines, live.shows)
    for event in await (before.of_run(store, run) if run else before.of_all(store)):
        live(event)
    if not follow:
        return
    async with closing(following(store, run, before.cursor)) as events:
        async for event in events:
            live(event)
            if live.unread:
                return
