"""`export` and `import`: the record as lines of JSON, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import click
import msgspec

from ...common import json_option, run_async, store_option
from ...moments import counted
from ...output_file import output_parameter, replaced
from ...terminal.output import note, say, say_json

if TYPE_CHECKING:
    from proctor.supervisor import ImportReport


@click.command("export")
@click.option("--session", metavar="ID", help="Of one session only.")
@output_parameter
@store_option
@json_option
def export(session: str | None, output: str | None, store: str | None, as_json: bool) -> None:
    """Write the record as lines of JSON, byte for byte: `import` reads them. With -o, --json reports how many."""
    from proctor.supervisor.store.paging import closing
    from proctor.supervisor.store.transfer import export_lines

    from ...store_place import opened

    async def exported(file: IO[bytes]) -> int:
        count = -1
        async with opened(store, must_exist=True) as opened_store:
            if session is not None and await opened_store.session(session) is None:
                raise click.UsageError(f"there is no session `{session}`; `proctor runs` lists them")
            async with closing(export_lines(opened_store, session_id=session)) as lines:
                async for line in lines:
                    file.write(line)
                    count += 1
        file.flush()
        return count

    if output is None or output == "-":
        run_async(lambda: exported(sys.stdout.buffer))
        return
    with replaced(output) as file:
        count = run_async(lambda: exported(file))
    if as_json:
        say_json({"lines": count, "file": output})
    else:
        note(f"{count} lines in {output}")


@click.command("import")
@click.argument("file", type=click.File("rb"))
@store_option
@json_option
def import_(file: IO[bytes], store: str | None, as_json: bool) -> None:
    """Store what `export` wrote (FILE, or - for standard input). What is there already stays as it is."""
    from proctor.supervisor.errors import UsageError
    from proctor.supervisor.store.transfer import import_lines

    from ...own_tree import check_outside_runs
    from ...store_place import opened

    check_outside_runs("import")

    async def imported() -> ImportReport:
        async with opened(store) as opened_store:
            return await import_lines(opened_store, _lines(file))

    try:
        report = run_async(imported)
    except UsageError as error:
        raise click.UsageError(f"{file.name}: {error}") from None
    if as_json:
        say_json(msgspec.structs.asdict(report))
    else:
        there = f"; there already: {counted(report.already_there, 'event')}" if report.already_there else ""
        say(f"stored {counted(report.runs, 'run')} and {counted(report.events, 'event')}{there}")


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Its lines, none of which is longer than one that `export` writes. Raises UsageError."""
    from proctor.supervisor.errors import UsageError
    from proctor.supervisor.store.codec import MAX_BYTES

    most = MAX_BYTES + len(b'{"event":}\n')
    while line := file.readline(most + 1):
        if len(line) > most:
            raise UsageError(f"a line is longer than {most} bytes, which no event is; `proctor export` writes none")
        yield line
