"""`adapters`: what each adapter can do, and which can be used here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import structs

from ...common import json_option
from ...output_file import output_option, output_parameter, written_to
from ...terminal.output import console, say, say_json

if TYPE_CHECKING:
    from proctor.adapters.agents.acp.probe import ProbeReport
    from proctor.adapters.matrix import Row

_SHORT: Final = {"after a refusal": "refusal", "cancel ends children": "children"}
"""Titles as a terminal has room for them; a cancel ends the children, or not."""
PROBED: Final = ("claude", "codex", "acp", "amp")


@click.group(invoke_without_command=True)
@output_parameter
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="The table as the documentation has it.")
@click.pass_context
def adapters(ctx: click.Context, output: str | None, as_json: bool, as_markdown: bool) -> None:
    """Show what each adapter can do, what is missing here, and how to install it.

    With --json also the parts of a policy that become launch options.
    """
    if ctx.invoked_subcommand is None:
        with written_to(output):
            _shown(as_json=as_json, as_markdown=as_markdown)
    elif output is not None:
        raise click.UsageError(f"`-o` stands behind `{ctx.invoked_subcommand}`")


def _shown(*, as_json: bool, as_markdown: bool) -> None:
    from proctor.adapters.matrix import markdown, matrix

    rows = matrix()
    if as_markdown:
        say(markdown(rows).rstrip())
    elif as_json:
        for row in rows:
            say_json(_as_json(row))
    else:
        _table(rows)


@adapters.command(short_help="Find out what an agent asks about before it acts.")
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@output_option
@json_option
def probe(name: str, command: tuple[str, ...], as_json: bool) -> None:
    """Have an agent act twice in an empty folder, and say what it asked about. It uses the agent's own model.

    NAME is claude, codex or acp; COMMAND starts an ACP agent: proctor adapters probe acp -- opencode acp
    """
    from ...common import run_async
    from ...inputs import with_command

    options = with_command(name, command, {})
    report = run_async(partial(_probed, name, options))
    if as_json:
        say_json({"adapter": name, "gate": report.gate, **structs.asdict(report)})
        return
    say(f"gate: {report.gate}")
    say(f"asked about: {', '.join(report.asked) or 'nothing'}")
    say(f"done unasked: {', '.join(report.unasked) or 'nothing'}")
    say(f"a refusal held: {_yes_no(report.refusal_held)}")
    say(f"the agent went on after it: {_yes_no(report.went_on_after_refusal)}")


async def _probed(name: str, options: dict[str, Any]) -> ProbeReport:
    from tempfile import TemporaryDirectory

    from proctor.adapters.agents.acp.probe import probe as probing
    from proctor.adapters.agents.registry import adapter_named

    if name not in PROBED:
        names = ", ".join(f"`{one}`" for one in PROBED)
        raise click.UsageError(f"`{name}` cannot be probed; {names} can, the others do as their table says")
    with TemporaryDirectory(prefix="proctor-probe-") as folder:
        return await probing(lambda cwd: adapter_named(name, cwd=cwd, **options), Path(folder))


def _yes_no(value: bool | None) -> str:
    return "not seen" if value is None else "yes" if value else "no"


def _as_json(row: Row) -> dict[str, object]:
    import msgspec

    from proctor.adapters.matrix import missing

    declared = msgspec.to_builtins(row.declared)
    for name in ("tools", "model"):
        del declared[name]
    lack = missing(row.subject)
    return {
        "adapter": row.subject.name,
        "about": row.subject.about,
        "installed": lack is None,
        "missing": lack,
        "install": row.subject.install or None,
        "capabilities": declared,
        "shown": list(row.shown),
        "denied_call": row.level,
    }


def _table(rows: Sequence[Row]) -> None:
    from rich.table import Table

    from proctor.adapters.matrix import missing
    from proctor.adapters.matrix.tables import COLUMNS, cells

    titles = ["adapter", *(_SHORT.get(title, title) for title, _, _ in COLUMNS)]
    lines = [[row.subject.name, *cells(row)] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for title, *column in zip(titles, *lines, strict=True):
        table.add_column(title, min_width=max(len(word) for cell in (title, *column) for word in cell.split()))
    for line in lines:
        table.add_row(*line)
    out = console()
    out.print(table)
    out.print("\n* declared, and shown by no test of the conformance suite")
    lacking = [(row.subject, lack) for row in rows if (lack := missing(row.subject))]
    if lacking:
        out.print("\nnot here:")
    for subject, lack in lacking:
        out.print(f"  {subject.name}: {lack}; {subject.install}")
