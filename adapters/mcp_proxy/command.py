"""`proctor mcp`: the command's options, and what it says when it cannot go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .downstream import Downstream
    from .upstream import Upstream

INSTALL = "pip install 'proctor[mcp]'"
REFUSED, BAD_USAGE, FAILED = 1, 2, 3


@click.command("mcp")
@click.option("--policy", "files", multiple=True, required=True, metavar="FILE", help="A policy; may be repeated.")
@click.option("--store", metavar="FILE", envvar="PROCTOR_STORE", help="Where the run is recorded.")
@click.option("--server", metavar="NAME", help="Judge the tools as mcp__NAME__tool, as agents call them.")
@click.option("--url", metavar="URL", help="A server reached over streamable HTTP, instead of COMMAND.")
@click.option("--listen", metavar="HOST:PORT", help="Take agents over streamable HTTP on loopback, not on stdio.")
@click.option("--trust-annotations", is_flag=True, help="Believe what the server says of its tools.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def mcp(
    context: click.Context,
    files: tuple[str, ...],
    store: str | None,
    server: str | None,
    url: str | None,
    listen: str | None,
    trust_annotations: bool,
    command: tuple[str, ...],
) -> None:
    """Stand between agents and an MCP server, and enforce policies on its tools.

    COMMAND starts the server: proctor mcp --policy FILE -- npx some-server
    """
    if bool(command) == bool(url):
        raise click.UsageError("say either `-- COMMAND...` or `--url URL`")
    import anyio

    from proctor.supervisor.errors import PolicyError, PolicyViolationError, ProctorError, UsageError

    async def main() -> None:
        from proctor.policies import load_policies

        from ..stores.sqlite import SQLiteStore
        from .serving import Serving, serve

        policies = [policy for file in files for policy in load_policies(file)]
        kept = SQLiteStore(store or default_store())
        try:
            serving = Serving(
                upstream=_upstream(command, url),
                downstream=_downstream(listen),
                policies=policies,
                server=server,
                trust_annotations=trust_annotations,
            )
            await serve(kept, serving, warn=_say)
        finally:
            await kept.aclose()

    try:
        anyio.run(main)
    except PolicyViolationError as error:
        _say(str(error))
        context.exit(REFUSED)
    except (PolicyError, UsageError) as error:
        _say(str(error))
        context.exit(BAD_USAGE)
    except ProctorError as error:
        _say(str(error))
        context.exit(FAILED)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "uvicorn", "starlette"):
            raise
        _say(f"the MCP library is not installed; {INSTALL}")
        context.exit(FAILED)


def default_store() -> Path:
    """The store of this user, its folder made if it is not there."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(base) / "proctor"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / "proctor.db"


def _upstream(command: tuple[str, ...], url: str | None) -> Upstream:
    from .upstream import CommandUpstream, UrlUpstream

    return UrlUpstream(url) if url else CommandUpstream(command)


def _downstream(listen: str | None) -> Downstream:
    if listen is None:
        from .downstream import StdioDownstream

        return StdioDownstream()
    from .http import HttpDownstream

    return HttpDownstream(listen, ready=lambda url: _say(f"listening on {url}"))


def _say(text: str) -> None:
    """Tell the operator; standard output belongs to the protocol."""
    click.echo(f"proctor: {text}", err=True)
