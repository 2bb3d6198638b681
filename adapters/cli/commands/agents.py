"""`adapters` and `mcp`: what each adapter can do here, and the proxy in front of an MCP server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import structs

from proctor.policies import RunContext
from proctor.supervisor.errors import NotInstalledError

from ...kit.display_text import encoded
from ..exits import EndingSignals
from ..options import (
    check_standard_input,
    context_option,
    json_option,
    opened,
    policy_option,
    read_policies,
    run_async,
    store_option,
    with_command,
)
from ..output import console, echo, echo_hanging, echo_json, note, output_option, output_parameter, written_to

if TYPE_CHECKING:
    from ...agents.acp.probe import ProbeReport
    from ...matrix import Row
    from ...mcp_proxy.downstream import Downstream, Upstream


_SHORT: Final = {"after a denial": "denial", "cancel ends children": "children"}
"""Titles as a terminal has room for them; a cancel ends the children, or not."""


@click.group(invoke_without_command=True)
@output_parameter
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table as Markdown.")
@click.pass_context
def adapters(ctx: click.Context, output: str | None, as_json: bool, as_markdown: bool) -> None:
    """Show what each adapter can do, what is missing here, and how to install it.

    --json also lists the parts of a policy that become settings of the agent.
    """
    if ctx.invoked_subcommand is None:
        with written_to(output):
            _shown(as_json=as_json, as_markdown=as_markdown)
    elif output is not None:
        raise click.UsageError(f"`-o` goes after `{ctx.invoked_subcommand}`")


def _shown(*, as_json: bool, as_markdown: bool) -> None:
    from ...matrix import markdown, matrix

    rows = matrix()
    if as_markdown:
        echo(markdown(rows).rstrip())
    elif as_json:
        for row in rows:
            echo_json(_as_json(row))
    else:
        _table(rows)


@adapters.command(short_help="Test what an agent asks about before it acts.")
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@output_option
@json_option
def probe(name: str, command: tuple[str, ...], as_json: bool) -> None:
    """Let an agent act twice in an empty folder, and report what it asked about. This uses the agent's model.

    NAME is claude, codex or acp. COMMAND starts an ACP agent: `proctor adapters probe acp -- opencode acp`.
    """
    options = with_command(name, command, {})
    report = run_async(partial(_probed, name, options))
    if as_json:
        echo_json({"adapter": name, "gate": report.gate, **structs.asdict(report)})
        return
    echo(f"gate: {report.gate}")
    echo(f"asked about: {', '.join(report.asked) or 'nothing'}")
    echo(f"done unasked: {', '.join(report.unasked) or 'nothing'}")
    echo(f"the denied call stayed denied: {_yes_no(report.refusal_held)}")
    echo(f"the agent continued after it: {_yes_no(report.went_on_after_refusal)}")


async def _probed(name: str, options: dict[str, Any]) -> ProbeReport:
    from tempfile import TemporaryDirectory

    from ...agents.acp.probe import probe as probing
    from ...agents.catalog import ADAPTERS, SPECS, adapter_named

    if name not in ADAPTERS or not ADAPTERS[name].probed:
        names = ", ".join(f"`{spec.name}`" for spec in SPECS if spec.probed)
        raise click.UsageError(f"`{name}` cannot be probed; only {names} can")
    with TemporaryDirectory(prefix="proctor-probe-") as folder:
        return await probing(lambda cwd: adapter_named(name, cwd=cwd, **options), Path(folder))


def _yes_no(value: bool | None) -> str:
    return "not seen" if value is None else "yes" if value else "no"


def _as_json(row: Row) -> dict[str, object]:
    from ...matrix import missing

    declared = msgspec.to_builtins(row.declared)
    for name in ("tools", "model"):
        del declared[name]
    lack = missing(row.spec)
    return {
        "adapter": row.spec.name,
        "about": row.spec.about,
        "installed": lack is None,
        "missing": lack,
        "install": row.spec.install or None,
        "capabilities": declared,
        "shown": list(row.shown),
        "denied_call": row.level,
    }


def _table(rows: Sequence[Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ...matrix import COLUMNS, cells, missing

    titles = ["adapter", *(_SHORT.get(title, title) for title, _, _ in COLUMNS)]
    lines = [[row.spec.name, *cells(row)] for row in rows]
    columns = [[title, *column] for title, *column in zip(titles, *lines, strict=True)]
    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    widths = {column[0]: max(map(len, column)) for column in columns}
    for column in sorted(columns, key=lambda column: -widths[column[0]]):
        if sum(widths.values()) + len(widths) > out.width:  # the widest columns are wrapped first
            widths[column[0]] = max(len(word) for cell in column for word in cell.split())
    if sum(widths.values()) + len(widths) > out.width:
        for name, *line in lines:
            values = ", ".join(f"{title} {cell}" for title, cell in zip(titles[1:], line, strict=True))
            echo_hanging(out, Text(f"{name}: {values}"), 4)
    else:
        for title, width in widths.items():
            table.add_column(title, width=width)
        for line in lines:
            table.add_row(*line)
        out.print(table)
    out.print("\n* declared by the adapter; no test has shown it")
    lacking = [(row.spec, lack) for row in rows if (lack := missing(row.spec))]
    if lacking:
        out.print("\nmissing on this machine:")
    for spec, lack in lacking:
        out.print(f"  {spec.name}: {lack}; {spec.install}")


_LIBRARIES = ("mcp", "starlette", "uvicorn")


@click.command("mcp")
@policy_option
@store_option
@context_option
@click.option("--server", metavar="NAME", help="Name the tools mcp__NAME__tool in rules, as agents do.")
@click.option("--url", metavar="URL", help="Connect to a server over streamable HTTP, instead of COMMAND.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve agents over streamable HTTP on loopback, instead of standard input and output.",
)
@click.option("--trust-annotations", is_flag=True, help="Trust the server's annotations of its tools.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@json_option
def mcp(
    policies: tuple[str, ...],
    store: str | None,
    context: RunContext | None,
    server: str | None,
    url: str | None,
    listen: str | None,
    trust_annotations: bool,
    command: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a proxy in front of an MCP server that enforces policies on its tools.

    COMMAND starts the server: `proctor mcp --policy FILE -- npx some-server`. Standard output belongs to the agent;
    messages, also those of --json, go to standard error.

    \b
    proctor mcp --policy policy.yaml --server files -- npx -y some-server
    proctor mcp --policy policy.yaml --url https://mcp.example/mcp
    """  # noqa: D301 - click's mark for lines that are kept as they are
    if bool(command) == bool(url):
        raise click.UsageError("use either `-- COMMAND...` or `--url URL`")

    check_standard_input(*policies, None if listen else "-")
    signals = EndingSignals()
    echo = _echo_json if as_json else _echo
    read = read_policies(policies)
    _check_installed()
    _silence_library()
    from ...mcp_proxy.adapter import Serving, serve

    serving = Serving(
        upstream=_upstream(command, url, echo),
        downstream=_downstream(listen, echo),
        policies=read,
        context=context or RunContext(),
        server=server,
        trust_annotations=trust_annotations,
    )

    async def main() -> None:
        async with opened(store) as kept:
            await serve(kept, serving, warn=echo, signals=signals.call)

    run_async(main)


def _check_installed() -> None:
    if any(find_spec(name) is None for name in _LIBRARIES):
        raise NotInstalledError("the MCP library is not installed", "mcp")


def _silence_library() -> None:
    """The proxy reports an error in one line; the library would log it with a traceback."""
    logger = logging.getLogger("mcp")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


def _upstream(command: tuple[str, ...], url: str | None, echo: Callable[[str], None]) -> Upstream:
    from ...mcp_proxy.downstream import CommandUpstream, UrlUpstream

    if url and not url.startswith(("http://", "https://")):
        raise click.UsageError(f"`--url {url}` is not an address; use http://HOST/PATH or https://HOST/PATH")
    return UrlUpstream(url, warn=echo) if url else CommandUpstream(command, on_stderr=echo)


def _downstream(listen: str | None, echo: Callable[[str], None]) -> Downstream:
    if listen is None:
        from ...mcp_proxy.downstream import StdioClient

        return StdioClient()
    from ...mcp_proxy.downstream import HttpDownstream

    return HttpDownstream(listen, ready=lambda url: echo(f"listening on {url}"))


def _echo(text: str) -> None:
    note(f"proctor: {text}")


def _echo_json(text: str) -> None:
    note(encoded({"message": text}))
