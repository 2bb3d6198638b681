"""`store`: where the record is, and how much it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from ...common import json_option, run_async, store_option
from ...moments import counted, room
from ...output_file import output_option
from ...terminal.output import note, say, say_json

if TYPE_CHECKING:
    from proctor.supervisor import StoreSize


@click.command("store")
@click.option("--make", is_flag=True, help="Make the store where there is none, and bring an older one up to date.")
@click.option("--backup", metavar="FILE", help="Copy the store to this new file instead, while others write to it.")
@store_option
@output_option
@json_option
def store_(make: bool, backup: str | None, store: str | None, as_json: bool) -> None:
    """Say where the store is, how much it holds and how much space it takes."""
    from proctor.adapters.stores.store_names import shown

    from ...store_place import is_there, opened, store_named

    if backup is not None:
        _copy(store, backup, as_json=as_json)
        return
    path = shown(store_named(store))
    if not make and not is_there(store):
        note(f"there is no store at `{path}`; `proctor store --make` makes one")
        return

    async def look() -> tuple[StoreSize, int]:
        async with opened(store, must_exist=not make) as opened_store:
            return await opened_store.size(), len(await opened_store.approvals(limit=100_000))

    size, waiting = run_async(look)
    if as_json:
        say_json({"path": path, **msgspec.structs.asdict(size), "approvals_waiting": waiting})
        return
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(size.runs.items()))
    free = f", {room(size.free_bytes)} of it free" if size.free_bytes else ""
    say(f"store     {path}")
    say(f"size      {room(size.bytes)}{free}")
    say(f"sessions  {size.sessions:,}")
    say(f"runs      {sum(size.runs.values()):,}{f': {statuses}' if statuses else ''}")
    say(f"events    {size.events:,}")
    say(f"waiting   {counted(waiting, 'approval')}")


def _copy(store: str | None, target: str, *, as_json: bool) -> None:
    """Raises UsageError for a database, which has a tool of its own for that."""
    from pathlib import Path

    from proctor.adapters.stores.sqlite.file.copying import copy_store

    from ...store_place import existing_file

    size = copy_store(existing_file(store), Path(target))
    if as_json:
        say_json({"file": target, "bytes": size})
    else:
        note(f"{room(size)} in {target}")
