"""`reap`: end the runs whose owner is gone, and those that nobody has started."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from ...common import json_option, run_async, store_option
from ...moments import Age
from ...terminal.output import note, say, say_json

if TYPE_CHECKING:
    from proctor.supervisor.ports.adapters import RunInfo


@click.command()
@click.option(
    "--created-older-than",
    "age",
    type=Age(),
    help="Also withdraw runs that were created longer ago than this and never started (`1d`, `12h`, `30m`).",
)
@store_option
@json_option
def reap(age: timedelta | None, store: str | None, as_json: bool) -> None:
    """End every run whose supervisor is gone: its record says so, what it left running on this machine is ended, and
    its session can go on.
    """
    from ...own_tree import check_person

    check_person("reap", store, "stop")
    from proctor.adapters.kit.processes.remains import end_remains
    from proctor.supervisor.control.reaping import reap as reaped
    from proctor.supervisor.control.reaping import withdraw_created
    from proctor.supervisor.run.orphans import whose

    from ...store_place import is_there_or_said, opened

    async def ended() -> tuple[list[RunInfo], list[RunInfo]]:
        async with opened(store, must_exist=True) as opened_store:
            lost = await reaped(opened_store, remains=end_remains)
            created = [] if age is None else await withdraw_created(opened_store, older_than=age)
        return lost, created

    lost, created = run_async(ended) if is_there_or_said(store) else ([], [])
    for info in [*lost, *created]:
        if as_json:
            status = "failed" if info in lost else "cancelled"
            owner = info.owner if info in lost else None
            say_json({"run_id": info.run_id, "session_id": info.session_id, "status": status, "owner": owner})
        elif info in lost:
            say(f"{info.run_id}: ended; {whose(info.owner)}")
        else:
            say(f"{info.run_id}: withdrawn; created {info.created_at:%Y-%m-%d %H:%M} UTC and never started")
    if not lost and not created and not as_json:
        note("nothing to end: every run that is not over has its supervisor")
