"""`proctor mcp`: a policy-enforcing proxy before any MCP server. Standard output belongs to the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ...common import context_option, json_option, policy_option, run_async, store_option
from ...terminal.output import note

if TYPE_CHECKING:
    from proctor.adapters.mcp_proxy.downstream.connections import Downstream
    from proctor.adapters.mcp_proxy.upstream import Upstream

_LIBRARIES = ("mcp", "starlette", "uvicorn")


@click.command("mcp")
@policy_option
@store_option
@context_option
@click.option("--server", metavar="NAME", help="Judge the tools as mcp__NAME__tool, as agents call them.")
@click.option("--url", metavar="URL", help="A server reached over streamable HTTP, instead of COMMAND.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Serve agents over streamable HTTP on loopback, instead of stdio."
)
@click.option("--trust-annotations", is_flag=True, help="Trust what the server says about its tools.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@json_option
def mcp(
    policies: tuple[str, ...],
    store: str | None,
    context: tuple[str, ...],
    server: str | None,
    url: str | None,
    listen: str | None,
    trust_annotations: bool,
    command: tuple[str, ...],
    as_json: bool,
) -> None:
    """Stand between agents and an MCP server, and enforce policies on its tools.

    COMMAND starts the server: proctor mcp --policy FILE -- npx some-server. Standard output is the agent's;
    messages to people, or with --json to programs, go to standard error.
    """
    if bool(command) == bool(url):
        raise click.UsageError("use either `-- COMMAND...` or `--url URL`")
    from ...inputs import check_standard_input, read_context, read_policies
    from ...store_place import opened

    check_standard_input(*policies, None if listen else "-")
    say = _say_as_json if as_json else _say
    run_context, read = read_context(context), read_policies(policies)
    _check_installed()
    _hush("mcp")
    from proctor.adapters.mcp_proxy.serving import Serving, serve

    serving = Serving(
        upstream=_upstream(command, url),
        downstream=_downstream(listen, say),
        policies=read,
        context=run_context,
        server=server,
        trust_annotations=trust_annotations,
    )

    async def main() -> None:
        async with opened(store) as kept:
            await serve(kept, serving, warn=say)

    run_async(main)


def _check_installed() -> None:
    from importlib.util import find_spec

    from proctor.supervisor.errors import ProviderUnavailableError

    if any(find_spec(name) is None for name in _LIBRARIES):
        raise ProviderUnavailableError("the MCP library is not installed; pip install 'proctor[mcp]'")


def _hush(library: str) -> None:
    """The proxy reports an error in one line; the library would log it with a traceback."""
    import logging

    logger = logging.getLogger(library)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


def _upstream(command: tuple[str, ...], url: str | None) -> Upstream:
    from proctor.adapters.mcp_proxy.upstream import CommandUpstream, UrlUpstream

    if url and not url.startswith(("http://", "https://")):
        raise click.UsageError(f"`--url {url}` is not an address; use http://HOST/PATH or https://HOST/PATH")
    return UrlUpstream(url) if url else CommandUpstream(command)


def _downstream(listen: str | None, say: Callable[[str], None]) -> Downstream:
    if listen is None:
        from proctor.adapters.mcp_proxy.downstream.stdio import StdioClient

        return StdioClient()
    from proctor.adapters.mcp_proxy.downstream.http import HttpDownstream

    return HttpDownstream(listen, ready=lambda url: say(f"listening on {url}"))


def _say(text: str) -> None:
    note(f"proctor: {text}")


def _say_as_json(text: str) -> None:
    from proctor.adapters.kit.values.printable import encoded

    note(encoded({"message": text}))
