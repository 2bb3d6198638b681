"""`fleet`: the workers on a Ray cluster that execute runs put down in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from proctor.policies.values.amounts import counted

from ..exits import FAILED, FINE
from ..options import json_option, run_async, store_named, store_option, wait_option
from ..output import echo_rows, output_option
from ..persons import check_outside_runs

if TYPE_CHECKING:
    from ...fleet import WorkerStatus

_POLL_S = 0.2
address_option = click.option(
    "--address", metavar="HOST:PORT", help="The Ray cluster. [default: RAY_ADDRESS, else this machine's]"
)
name_option = click.option("--name", default="fleet", show_default=True, help="The fleet's name.")


@click.group("fleet")
def fleet() -> None:
    """Manage workers on a Ray cluster that execute the runs queued in a store.

    Ray places the workers and restarts them. Queue runs from Python; `runs`, `approvals` and `kill` work as usual.
    Needs the extra `ray`.
    """


@fleet.command("up", short_help="Start workers.")
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), default=2, show_default=True, help="Workers in all."
)
@click.option(
    "--max-running",
    metavar="N",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="The most runs at once in each new worker.",
)
@wait_option(60)
@name_option
@address_option
@store_option
@json_option
def up(
    workers: int, max_running: int, wait_s: float, name: str, address: str | None, store: str | None, as_json: bool
) -> int:
    """Start workers until there are this many, spread over the nodes, and wait until they are ready.

    Workers that already run are kept. Every node must reach the store; a SQLite file serves one machine. Exit code
    3: a worker isn't ready in time.
    """
    check_outside_runs("fleet up")
    import anyio

    from ...fleet import Fleet

    async def done() -> list[WorkerStatus]:
        async with Fleet(store_named(store), name=name, address=address) as fleet:
            found = await fleet.up(workers, max_running=max_running)
            with anyio.move_on_after(wait_s):
                while any(one.state != "working" for one in found):
                    await anyio.sleep(_POLL_S)
                    found = await fleet.status()
            return found

    found = run_async(done)
    _print_workers(found, as_json=as_json)
    return FINE if all(one.state == "working" for one in found) else FAILED


@fleet.command("status", short_help="List the workers.")
@name_option
@address_option
@output_option
@json_option
def status(name: str, address: str | None, as_json: bool) -> None:
    """List the workers: where each one is, how many runs it has, whether it is healthy."""
    from proctor.supervisor import MemoryStore

    from ...fleet import Fleet

    async def found() -> list[WorkerStatus]:
        async with Fleet(MemoryStore(), name=name, address=address) as fleet:
            return await fleet.status()

    none = f"no workers of the fleet `{name}` on this cluster; `proctor fleet up` starts some"
    _print_workers(run_async(found), as_json=as_json, none=none)


@fleet.command("drain", short_help="Let workers finish their runs, then remove them.")
@click.option("--node", metavar="ID", help="Only the workers on this Ray node.")
@wait_option(3600)
@name_option
@address_option
@json_option
def drain(node: str | None, wait_s: float, name: str, address: str | None, as_json: bool) -> int:
    """Stop workers from claiming runs, wait until their runs have ended, and remove them.

    Queued runs stay in the store. Exit code 3: a worker still has runs when the time is up. It finishes them, and
    the next `drain` removes it.
    """
    check_outside_runs("fleet drain")
    from proctor.supervisor import MemoryStore

    from ...fleet import Fleet

    async def done() -> list[WorkerStatus]:
        async with Fleet(MemoryStore(), name=name, address=address) as fleet:
            return await fleet.drain(node=node, timeout_s=wait_s)

    left = run_async(done)
    _print_workers(left, as_json=as_json)
    return FINE if all(one.state == "drained" for one in left) else FAILED


def _print_workers(workers: list[WorkerStatus], *, as_json: bool, none: str = "") -> None:
    echo_rows(((one, _in_words(one)) for one in workers), as_json=as_json, none=none)


def _in_words(one: WorkerStatus) -> str:
    place = f" on {one.host}, node {one.node}" if one.node else ""
    most = counted(one.max_running, "run")
    runs = f": {one.running} of {most}, {one.finished} over" if one.max_running else ""
    return f"{one.name}: {one.state}{place}{runs}{f': {one.error}' if one.error else ''}"
