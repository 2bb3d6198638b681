"""`migrate` and `schema`: old formats to this one, and what this one is."""

from __future__ import annotations

import click

from ...common import json_option, write_document
from ...output_file import output_option, output_parameter, replaced, written_to
from ...terminal.output import note, say_json


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--write", is_flag=True, help="Change the file instead of printing.")
@output_parameter
@json_option
def migrate(file: str, write: bool, output: str | None, as_json: bool) -> None:
    """Rewrite a policy file in the standard spelling, as YAML; comments are kept."""
    from pathlib import Path

    from proctor.policies.reading.migrating.migrate import migrate as migrated

    from ...inputs import read_text

    if write and output:
        raise click.UsageError("choose one of `--write` and `--output`")
    text, name = read_text(file)
    written = migrated(text, file=name)
    if write and file == "-":
        raise click.UsageError("standard input cannot be written to; leave out `--write`")
    if write and Path(file).suffix.lower() not in (".yaml", ".yml"):
        raise click.UsageError(f"`{file}` would hold YAML under another name; print it and choose a name")
    if write:
        with replaced(file) as whole:
            whole.write(written.encode())
    with written_to(output):
        if as_json:
            say_json({"file": name, "changed": written != text, "written": write, "text": written})
        elif write:
            note(f"{name}: {'rewritten' if written != text else 'nothing to change'}")
        else:
            write_document(written)


@click.command()
@output_option
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema of policy files, for editors. With --json on one line."""
    import msgspec

    from proctor.policies.reading.schema import json_schema

    made = msgspec.json.encode(json_schema())
    write_document((made if as_json else msgspec.json.format(made, indent=2)).decode())
