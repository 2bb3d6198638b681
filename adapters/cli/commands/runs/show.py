"""`show`: the events of a stored run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...common import json_option, run_async, store_option
from ...moments import amount, counted, dollars, took
from ...output_file import output_option

if TYPE_CHECKING:
    from proctor.supervisor.ports.adapters import RunInfo


@click.command()
@click.argument("run", metavar="RUN")
@store_option
@output_option
@json_option
def show(run: str, store: str | None, as_json: bool) -> None:
    """Show a stored run, event by event. RUN is an id, the beginning of one, or `last`."""
    from proctor.supervisor.store.paging import closing

    from ...run_lookup import run_named
    from ...store_place import opened
    from ...terminal.live import Live

    live = Live(as_json=as_json, numbered=True)

    async def read() -> None:
        async with opened(store, must_exist=True) as opened_store:
            info = await run_named(opened_store, run)
            count = 0
            async with closing(opened_store.read(info.session_id, run_id=info.run_id)) as events:
                async for event in events:
                    live(event)
                    count += 1
                    if live.unread:
                        return
            if not as_json:
                live.print(f"\n{_summary(info, count)}")

    run_async(read)


def _summary(info: RunInfo, count: int) -> str:
    """How the run ended, what it did and used."""
    parts = [info.status if info.duration_ms is None else f"{info.status} in {took(info.duration_ms)}"]
    if info.status == "lost":
        parts[0] = f"lost (its supervisor{f', {info.owner},' if info.owner else ''} is gone: `proctor reap` ends it)"
    parts += [counted(count, "event"), f"{counted(info.calls, 'call')} ran", counted(info.violations, "violation")]
    if info.usage.total_tokens:
        parts.append(f"{amount(info.usage.total_tokens)} tokens")
    if info.usage.cost_usd:
        parts.append(dollars(info.usage.cost_usd))
    return f"{info.run_id}: {', '.join(parts)}, session {info.session_id}"
