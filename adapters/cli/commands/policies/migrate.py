"""`migrate` and `schema`: old formats to this one, and what this one is."""

from __future__ import annotations

import click

from proctor.adapters.kit.values.printable import printable

from ...common import json_option, write_document
from ...output_file import output_option, output_parameter, replaced, written_to
from ...terminal.output import note, say_json


@click.command()
@click.argument("file", metavar="FILE|DIR")
@click.option("--write", is_flag=True, help="Change the files instead of printing.")
@output_parameter
@json_option
def migrate(file: str, write: bool, output: str | None, as_json: bool) -> None:
    """Rewrite a policy file, or every one of a directory, in the standard spelling, as YAML; comments are kept."""
    from pathlib import Path

    from proctor.policies.errors import read_each
    from proctor.policies.reading.folders import policy_files
    from proctor.policies.reading.migrating.migrate import migrate as migrated

    from ...inputs import read_text

    if write and output:
        raise click.UsageError("choose one of `--write` and `--output`")
    if write and file == "-":
        raise click.UsageError("standard input cannot be written to; leave out `--write`")
    folder = Path(file).is_dir()
    files = [str(path) for path in policy_files(Path(file))] if folder else [file]

    def rewritten(path: str) -> tuple[str, str, str]:
        text, name = read_text(path)
        return name, text, migrated(text, file=name)

    found = read_each(rewritten, files)
    for path in files if write else ():
        if Path(path).suffix.lower() not in (".yaml", ".yml"):
            raise click.UsageError(f"`{path}` would hold YAML under another name; print it and choose a name")
    with written_to(output):
        for name, text, written in found:
            if write:
                with replaced(name) as whole:
                    whole.write(written.encode())
            if as_json:
                say_json({"file": name, "changed": written != text, "written": write, "text": written})
            elif write:
                note(f"{name}: {'rewritten' if written != text else 'nothing to change'}")
            else:
                write_document(f"--- # {printable(name)}\n{written}" if folder else written)


@click.command()
@output_option
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema of policy files, for editors. With --json on one line."""
    import msgspec

    from proctor.policies.reading.schema import json_schema

    made = msgspec.json.encode(json_schema())
    write_document((made if as_json else msgspec.json.format(made, indent=2)).decode())
