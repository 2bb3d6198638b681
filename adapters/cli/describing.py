"""`adapters`: what each adapter can do, and which can be used here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .common import json_option
from .output import console, say, say_json

if TYPE_CHECKING:
    from proctor.adapters.matrix import Row


@click.group(invoke_without_command=True)
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="The table as the documentation has it.")
@click.pass_context
def adapters(ctx: click.Context, as_json: bool, as_markdown: bool) -> None:
    """Show what each adapter can do, what is missing here, and how to install it."""
    if ctx.invoked_subcommand is not None:
        return
    from proctor.adapters.matrix import markdown, matrix

    rows = matrix()
    if as_markdown:
        say(markdown(rows).rstrip())
    elif as_json:
        for row in rows:
            say_json(_as_json(row))
    else:
        _table(rows)


@adapters.command()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def probe(command: Sequence[str]) -> None:
    """Start an ACP agent and say what it can do: proctor adapters probe opencode acp."""
    from proctor.adapters.matrix.probing import probed

    from .common import run_async

    async def main() -> None:
        say_json(await probed(command))

    run_async(main)


def _as_json(row: Row) -> dict[str, object]:
    import msgspec

    from proctor.adapters.matrix import missing

    told = msgspec.to_builtins(row.declared)
    for name in ("tools", "model"):
        del told[name]
    lack = missing(row.subject)
    return {
        "adapter": row.subject.name,
        "about": row.subject.about,
        "installed": lack is None,
        "missing": lack,
        "install": row.subject.install or None,
        "capabilities": told,
        "shown": list(row.shown),
        "denied_call": row.level,
    }


def _table(rows: Sequence[Row]) -> None:
    from rich.table import Table

    from proctor.adapters.matrix import missing
    from proctor.adapters.matrix.tables import COLUMNS, cells

    table = Table(box=None, pad_edge=False)
    for title in ("adapter", "here", *(title for title, name, _ in COLUMNS if name != "compiles")):
        table.add_column(title, overflow="fold")
    lacking = [(row, lack) for row in rows if (lack := missing(row.subject))]
    without = {row.subject.name for row, _ in lacking}
    for row in rows:
        table.add_row(row.subject.name, "no" if row.subject.name in without else "yes", *cells(row)[:-1])
    console().print(table)
    say("\n* declared, and shown by no test of the conformance suite; `--json` has the launch options")
    for row, lack in lacking:
        say(f"{row.subject.name}: {lack}; {row.subject.install}")
