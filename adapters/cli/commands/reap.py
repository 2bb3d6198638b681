"""`reap`: end the runs whose owner is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..common import json_option, run_async, store_option
from ..terminal.output import note, say, say_json

if TYPE_CHECKING:
    from proctor.supervisor.ports import RunInfo


@click.command()
@store_option
@json_option
def reap(store: str | None, as_json: bool) -> None:
    """End every run whose supervisor is gone: its record says so, what it left running on this machine is ended, and
    its session can go on.
    """
    from ..own_tree import check_outside_runs

    check_outside_runs("reap")
    from proctor.adapters.kit.remains import end_remains
    from proctor.supervisor.control.reaping import reap as reaped

    from ..places import is_there, opened

    async def ended() -> list[RunInfo]:
        async with opened(store, must_exist=True) as opened_store:
            return await reaped(opened_store, remains=end_remains)

    found = run_async(ended) if is_there(store) else []
    for info in found:
        if as_json:
            say_json({"run_id": info.run_id, "session_id": info.session_id, "owner": info.owner})
        else:
            say(f"{info.run_id}: ended; its supervisor, {info.owner}, is gone")
    if not found and not as_json:
        note("nothing to end: every run that goes on has its supervisor")
