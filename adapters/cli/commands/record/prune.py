"""`prune`: sessions that ended long ago are removed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from ...common import json_option, run_async, store_option
from ...moments import Age, counted, room
from ...terminal.output import note, say, say_json

if TYPE_CHECKING:
    from proctor.supervisor import PruneReport


@click.command()
@click.option(
    "--older-than",
    type=Age(),
    required=True,
    metavar="AGE",
    help="Only sessions with nothing stored for this long: 90d, 12h.",
)
@click.option("--keep-violations", is_flag=True, help="Keep sessions in which a rule was broken.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--by", metavar="WHO", help="Who removes them. [default: your login name]")
@store_option
@json_option
def prune(
    older_than: timedelta, keep_violations: bool, dry_run: bool, by: str | None, store: str | None, as_json: bool
) -> None:
    """Remove sessions that ended long ago, and free their space. A session with an unfinished run is never
    removed.

    One event stays for each session, `record_pruned`, so that numbering continues and digests can be checked.
    """
    from proctor.adapters.kit.values.login_name import login_name
    from proctor.supervisor.store.retention import prune

    from ...own_tree import check_outside_runs
    from ...store_place import is_there_or_said, opened

    check_outside_runs("prune")
    if not is_there_or_said(store):
        note("no runs")
        return

    async def pruned() -> tuple[PruneReport, int, int]:
        async with opened(store, must_exist=True) as opened_store:
            before = (await opened_store.size()).bytes
            report = await prune(
                opened_store,
                older_than=older_than,
                keep_violations=keep_violations,
                by=by or login_name(),
                dry_run=dry_run,
            )
            return report, before, (await opened_store.size()).bytes

    report, before, after = run_async(pruned)
    if as_json:
        say_json({**msgspec.structs.asdict(report), "dry_run": dry_run, "bytes_before": before, "bytes_after": after})
        return
    would = "would remove" if dry_run else "removed"
    what = f"{counted(report.runs, 'run')}, {counted(report.events, 'event')}"
    say(f"{would} {counted(report.sessions, 'session')}: {what}")
    if report.kept_going_on:
        say(f"kept {report.kept_going_on} in which a run is not over (`proctor reap` ends those without an owner)")
    if report.kept_with_violations:
        say(f"kept {report.kept_with_violations} with violations")
    if not dry_run:
        say(f"the store took {room(before)}, it takes {room(after)}")
