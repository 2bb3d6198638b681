"""`serve`: the operator's web page and its HTTP API."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from ..options import json_option, run_async, store_option
from ..output import NoteHandler, note, say, say_json

if TYPE_CHECKING:
    from anyio import CancelScope

    from proctor.supervisor.ports.store import Store

    from ...operations.identities import AccessTokens
    from ...web.server import Certificate
    from ...web.webhook import Target

_LIBRARIES = ("starlette", "uvicorn", "sse_starlette", "httpx", "tenacity")
SECRET = "PROCTOR_WEBHOOK_SECRET"
"""Names the variable that holds the webhook's secret."""
DEFAULT = "127.0.0.1:8700"


@click.command()
@click.option(
    "--listen",
    default=DEFAULT,
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 picks a free one.",
)
@click.option("--anywhere", is_flag=True, help="Allow a HOST that other machines can reach. Needs --tokens.")
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="Another address of this server, as behind a proxy: https://ops.example.",
)
@click.option("--tokens", metavar="FILE", help="Who may see, answer and stop: names, tokens, roles, in YAML.")
@click.option("--cert", metavar="FILE", help="Speak TLS with this certificate (PEM, with its chain). Needs --key.")
@click.option("--key", metavar="FILE", help="The certificate's private key (PEM).")
@click.option("--proxy", metavar="ADDRESS", help="Trust the proxy at this address to say who asks (X-Forwarded-For).")
@click.option("--webhook", metavar="URL", help="Send events there, signed with the secret in PROCTOR_WEBHOOK_SECRET.")
@click.option(
    "--webhook-type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Send events of this type. [default: approvals requested, violations, ends of runs]",
)
@store_option
@json_option
def serve(
    listen: str,
    anywhere: bool,
    origins: tuple[str, ...],
    tokens: str | None,
    cert: str | None,
    key: str | None,
    proxy: str | None,
    webhook: str | None,
    types: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Serve the operators' page and the HTTP API, until Ctrl-C.

    On loopback, with a token that allows everything: the one in PROCTOR_WEB_TOKEN, else a new one, which is part
    of the printed URL. With --tokens everybody has a token of their own, and it is their name that is recorded.
    """
    from ..persons import check_outside_runs

    check_outside_runs("serve")
    if anywhere and not tokens:
        raise click.UsageError("`--anywhere` needs `--tokens FILE`, so that whoever acts from elsewhere has a name")
    for origin in origins:
        _check_origin(origin)
    _check_installed()
    from ...kit.http_server import listening, url_of
    from ...web.server import serve as serve_on

    certificate = _certificate(cert, key)
    _check_proxy(proxy)
    identities, made = _tokens(tokens)
    target = _target(webhook, types)
    listener = listening(
        listen, why="whoever can connect could try; use `--anywhere` if you mean it", anywhere=anywhere
    )
    try:
        url = f"{url_of(listener).replace('http:', 'https:' if certificate else 'http:')}/"
        shown = f"{url}#token={made}" if made else url
        serving = partial(
            serve_on, listener=listener, tokens=identities, origins=origins, certificate=certificate, proxy=proxy
        )
        run_async(lambda: _served(serving, store, shown, target, as_json=as_json))
    finally:
        listener.close()


async def _served(
    serving: Callable[[Store], Coroutine[Any, Any, None]],
    store: str | None,
    url: str,
    target: Target | None,
    *,
    as_json: bool,
) -> None:
    import anyio

    from ..options import VARIABLE, opened

    async with opened(store, must_exist=bool(store or os.environ.get(VARIABLE))) as kept, AsyncExitStack() as stack:
        sending = _sending(kept, target, store, stack)
        _say_warnings()
        if as_json:
            say_json({"url": url})
        else:
            say(url)
            sys.stdout.flush()
            note("serving until Ctrl-C")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_signal, tasks.cancel_scope)
            if sending is not None:
                tasks.start_soon(sending)
            await serving(kept)
            tasks.cancel_scope.cancel()


def _sending(
    kept: Store, target: Target | None, store: str | None, stack: AsyncExitStack
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """What sends events, if anything does; raises UsageError while another process sends them there."""
    if target is None:
        return None
    from ...web.webhook import cursor_of, send
    from ..options import beside

    cursor = stack.enter_context(cursor_of(beside(store), target.url))
    return partial(send, kept, target, cursor)


def _say_warnings() -> None:
    """An event that cannot be read or sent is reported on standard error."""
    handler = NoteHandler(logging.WARNING)
    logging.getLogger("proctor").addHandler(handler)


async def _until_signal(scope: CancelScope) -> None:
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


def _tokens(file: str | None) -> tuple[AccessTokens, str | None]:
    """The tokens that are good, and the one to print."""
    from ...operations.identities import from_environment, one_token, read_tokens

    if file is not None:
        return read_tokens(file), None
    given = from_environment()
    tokens, made = one_token(given)
    return tokens, None if given else made


def _target(url: str | None, types: tuple[str, ...]) -> Target | None:
    if url is None:
        if types:
            raise click.UsageError("`--webhook-type` needs `--webhook URL`")
        return None
    from ...web.webhook import target_of

    return target_of(url, os.environ.pop(SECRET, None), types)


def _certificate(file: str | None, key: str | None) -> Certificate | None:
    from ...web.server import Certificate

    if file is None and key is None:
        return None
    if file is None or key is None:
        raise click.UsageError("`--cert FILE` and `--key FILE` go together")
    certificate = Certificate(file=file, key=key)
    certificate.check()
    return certificate


def _check_proxy(address: str | None) -> None:
    from ipaddress import ip_address

    try:
        ip_address(address or "127.0.0.1")
    except ValueError:
        raise click.UsageError(f"`--proxy {address}` is not an address; use 127.0.0.1, or the proxy's own") from None


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise click.UsageError(f"`--origin {origin}` is not an origin; use https://HOST or http://HOST:PORT")


def _check_installed() -> None:
    from importlib.util import find_spec

    from proctor.supervisor.errors import UsageError, install_of

    if any(find_spec(name) is None for name in _LIBRARIES):
        raise UsageError(f"the web server is not installed; {install_of('web')}")
