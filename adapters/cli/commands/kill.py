"""`kill`: end runs by way of the store, whatever process they are in."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isnan
from typing import TYPE_CHECKING

import click

from ..common import json_option, run_async, store_option
from ..exits import FAILED, FINE
from ..terminal.output import note, say, say_json

if TYPE_CHECKING:
    from proctor.supervisor.ports import RunInfo, Store

GOING_ON = ("running", "lost")


@click.command()
@click.option("--run", metavar="RUN", help="This run.")
@click.option("--session", metavar="ID", help="The run of this session.")
@click.option("--tenant", metavar="NAME", help="Every run of this tenant.")
@click.option("--all", "everything", is_flag=True, help="Every run.")
@click.option("--reason", default="killed by an operator", show_default=True, metavar="TEXT", help="Recorded.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=30, show_default=True, metavar="SECONDS", help="At most."
)
@store_option
@json_option
def kill(
    run: str | None,
    session: str | None,
    tenant: str | None,
    everything: bool,
    reason: str,
    wait: float,
    store: str | None,
    as_json: bool,
) -> int:
    """End runs and wait until they have ended. Exit code 3 when one has not in time: nobody seems to own it."""
    from ..own_tree import check_outside_runs

    check_outside_runs("kill")
    if isnan(wait):
        raise click.UsageError("`--wait SECONDS`: `nan` is not a number")
    if sum((bool(run), bool(session), bool(tenant), everything)) != 1:
        raise click.UsageError("say what to end with one of `--run`, `--session`, `--tenant` and `--all`")
    from ..places import opened

    async def killed() -> tuple[list[RunInfo], list[RunInfo]]:
        async with opened(store, must_exist=True) as opened_store:
            wanted = await _wanted(opened_store, run, session, tenant)
            if wanted:
                await _post(opened_store, wanted, reason, run, session, tenant)
            return wanted, await _left(opened_store, wanted, wait)

    wanted, left = run_async(killed)
    _report(wanted, left, as_json=as_json)
    return FAILED if left else FINE


async def _wanted(store: Store, run: str | None, session: str | None, tenant: str | None) -> list[RunInfo]:
    """The runs to end, of those that are running."""
    from proctor.supervisor.errors import UsageError
    from proctor.supervisor.store.paging import all_runs

    from ..stored import run_named

    if run:
        named = await run_named(store, run)
        if named.status not in GOING_ON:
            raise UsageError(f"run `{named.run_id}` is not running: it is {named.status}")
        return [named]
    if session and not await store.runs(limit=1, session_id=session):
        raise UsageError(f"there is no session `{session}`; `proctor runs` lists them")
    going = [info async for info in all_runs(store, session_id=session) if info.status in GOING_ON]
    if tenant:
        return [info for info in going if info.spec.get("context", {}).get("tenant") == tenant]
    return going


async def _post(
    store: Store, wanted: list[RunInfo], reason: str, run: str | None, session: str | None, tenant: str | None
) -> None:
    import getpass

    import msgspec

    from proctor.supervisor.facts import Cancel

    named: dict[str, str | None] = {"run": run and wanted[0].run_id, "session": session, "tenant": tenant, "all": ""}
    scope, value = next((scope, value) for scope, value in named.items() if value is not None)
    order = {"scope": scope, "value": value, "by": getpass.getuser(), "reason": reason, "at": datetime.now(UTC)}
    await store.instruct(msgspec.convert(order, Cancel))


async def _left(store: Store, wanted: list[RunInfo], seconds: float) -> list[RunInfo]:
    """Those that have not ended when the time is up."""
    import anyio

    from proctor.adapters.kit.remains import end_remains
    from proctor.supervisor.control.reaping import reap_run

    left, token = wanted, 0
    with anyio.move_on_after(seconds):
        while left:
            token = await store.wait(token, 0.5)
            now = [await store.run(info.run_id) for info in left]
            left = [info for info in now if info is not None and info.status in GOING_ON]
            for info in left:
                if info.status == "lost":
                    await reap_run(store, info, remains=end_remains)
    return left


def _report(wanted: list[RunInfo], left: list[RunInfo], *, as_json: bool) -> None:
    alive = {info.run_id for info in left}
    for info in wanted:
        ended = info.run_id not in alive
        if as_json:
            say_json({"run_id": info.run_id, "session_id": info.session_id, "ended": ended})
        else:
            say(f"{info.run_id}: {'ended' if ended else 'has not ended; no process seems to own it'}")
    if not wanted and not as_json:
        note("nothing to end: none of these runs is still running")
