"""`proctor mcp`: a policy-enforcing proxy before any MCP server. Standard output belongs to the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .common import context_option, policy_option, run_async, store_option

if TYPE_CHECKING:
    from proctor.adapters.mcp_proxy.downstream import Downstream
    from proctor.adapters.mcp_proxy.upstream import Upstream

_LIBRARIES = ("mcp", "starlette", "uvicorn")


@click.command("mcp")
@policy_option
@store_option
@context_option
@click.option("--server", metavar="NAME", help="Judge the tools as mcp__NAME__tool, as agents call them.")
@click.option("--url", metavar="URL", help="A server reached over streamable HTTP, instead of COMMAND.")
@click.option("--listen", metavar="HOST:PORT", help="Take agents over streamable HTTP on loopback, not on stdio.")
@click.option("--trust-annotations", is_flag=True, help="Believe what the server says of its tools.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def mcp(
    policies: tuple[str, ...],
    store: str | None,
    context: tuple[str, ...],
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
    from .inputs import read_context, read_policies
    from .places import opened

    known, read = read_context(context), read_policies(policies)
    _check_installed()
    from proctor.adapters.mcp_proxy.serving import Serving, serve

    serving = Serving(
        upstream=_upstream(command, url),
        downstream=_downstream(listen),
        policies=read,
        context=known,
        server=server,
        trust_annotations=trust_annotations,
    )

    async def main() -> None:
        async with opened(store) as kept:
            await serve(kept, serving, warn=_say)

    run_async(main)


def _check_installed() -> None:
    from importlib.util import find_spec

    from proctor.supervisor.errors import ProviderUnavailableError

    if any(find_spec(name) is None for name in _LIBRARIES):
        raise ProviderUnavailableError("the MCP library is not installed; pip install 'proctor[mcp]'")


def _upstream(command: tuple[str, ...], url: str | None) -> Upstream:
    from proctor.adapters.mcp_proxy.upstream import CommandUpstream, UrlUpstream

    return UrlUpstream(url) if url else CommandUpstream(command)


def _downstream(listen: str | None) -> Downstream:
    if listen is None:
        from proctor.adapters.mcp_proxy.downstream import StdioDownstream

        return StdioDownstream()
    from proctor.adapters.mcp_proxy.http import HttpDownstream

    return HttpDownstream(listen, ready=lambda url: _say(f"listening on {url}"))


def _say(text: str) -> None:
    click.echo(f"proctor: {text}", err=True)
