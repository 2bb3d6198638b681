"""`serve`: the operator's web page and its HTTP API."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import click

from proctor.supervisor.errors import NotInstalledError
from proctor.supervisor.ports.store import Store

from ..exits import EndingSignals
from ..options import beside, is_named, json_option, opened, run_async, store_option
from ..output import NoteHandler, note
from ..persons import check_outside_runs

if TYPE_CHECKING:
    from ...operations.identities import AccessTokens
    from ...web.notify import Recipient
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
    help="The address to listen on. Port 0 picks a free port.",
)
@click.option("--anywhere", is_flag=True, help="Allow an address that other machines can reach. Needs --tokens.")
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="Another URL of this server, for example behind a proxy: https://ops.example.",
)
@click.option("--tokens", metavar="FILE", help="A YAML file with everyone's name, token and roles.")
@click.option("--cert", metavar="FILE", help="Use TLS with this certificate (PEM, with its chain). Needs --key.")
@click.option("--key", metavar="FILE", help="The certificate's private key (PEM).")
@click.option("--proxy", metavar="ADDRESS", help="Trust X-Forwarded-For from the proxy at this address.")
@click.option(
    "--webhook", metavar="URL", help="Send events to this URL, signed with the secret in PROCTOR_WEBHOOK_SECRET."
)
@click.option(
    "--webhook-type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="A type of event to send. [default: approval requests, violations, ends of runs]",
)
@click.option(
    "--config",
    metavar="FILE",
    help="A YAML file that says whom to notify of approval requests. [default: ~/.config/proctor/config.yaml]",
)
@click.option("--phone", is_flag=True, help="Show a QR code that opens the dashboard at --origin on a phone.")
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
    config: str | None,
    phone: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Serve the dashboard and the HTTP API, until Ctrl-C.

    By default it listens on loopback, with one token that allows everything: the one in PROCTOR_WEB_TOKEN, or a new
    one in the printed URL. With --tokens, each person has a token, and their name is recorded.

    \b
    proctor serve
    proctor serve --tokens tokens.yaml --origin https://ops.example
    proctor serve --webhook https://ops.example/hook
    """  # noqa: D301 - click's mark for lines that are kept as they are
    check_outside_runs("serve")
    if anywhere and not tokens:
        raise click.UsageError("`--anywhere` needs `--tokens FILE`, so that everyone who acts has a name")
    for origin in origins:
        _check_origin(origin)
    _check_installed()
    from ...kit.http_server import listening, url_of
    from ...web.server import serve as serve_on

    certificate = _certificate(cert, key)
    _check_proxy(proxy)
    identities, made = _tokens(tokens)
    target = _target(webhook, types)
    if phone:
        _check_phone(origins)
    notified = _recipients(config)
    signals = EndingSignals()
    listener = listening(listen, why="add `--anywhere` to allow that", anywhere=anywhere)
    try:
        url = f"{url_of(listener).replace('http:', 'https:' if certificate else 'http:')}/"
        shown = f"{url}#token={made}" if made else url
        page = f"{origins[0].rstrip('/')}/" if origins else url
        if phone:
            _show_code(f"{page}#phone={made}" if made else page)
        serving = partial(
            serve_on, listener=listener, tokens=identities, origins=origins, certificate=certificate, proxy=proxy
        )
        senders = partial(_senders, target=target, notified=notified, page=page, store=store)
        run_async(lambda: _served(serving, store, shown, senders, signals, as_json=as_json))
    finally:
        listener.close()


async def _served(
    serving: Callable[[Store], Coroutine[Any, Any, None]],
    store: str | None,
    url: str,
    senders: Callable[[Store, AsyncExitStack], Coroutine[Any, Any, list[Sender]]],
    signals: EndingSignals,
    *,
    as_json: bool,
) -> None:
    import anyio

    async with opened(store, must_exist=is_named(store), writes=False) as kept, AsyncExitStack() as stack:
        sending = await senders(kept, stack)
        _echo_warnings()
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                tasks.cancel_scope.cancel()

            async with signals.call(end):
                # Exactly: the token at its end is a secret, and whoever started this has to have it.
                print(f'{{"url":"{url}"}}' if as_json else url, flush=True)
                if not as_json:
                    note("serving until Ctrl-C")
                for sender in sending:
                    tasks.start_soon(sender)
                await serving(kept)
                tasks.cancel_scope.cancel()


Sender: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


async def _senders(
    kept: Store,
    stack: AsyncExitStack,
    *,
    target: Target | None,
    notified: tuple[list[Recipient], str | None],
    page: str,
    store: str | None,
) -> list[Sender]:
    """The senders of events and requests that are configured, each with its position stored.

    Raises UsageError while another process sends, and for a position that the store lacks.
    """
    from ...web.webhook import begin, cursor_of, send

    found: list[Sender] = []
    if target is not None:
        cursor = stack.enter_context(cursor_of(beside(store), target.url))
        await begin(kept, cursor)
        found.append(partial(send, kept, target, cursor))
    recipients, own_page = notified
    for recipient in recipients:
        from ...web.notify import notify

        cursor = stack.enter_context(cursor_of(beside(store), recipient.address, "notify"))
        await begin(kept, cursor)
        found.append(partial(notify, kept, recipient, own_page or page, cursor))
    return found


def _recipients(config: str | None) -> tuple[list[Recipient], str | None]:
    file = config or _default_config()
    if file is None:
        return [], None
    from ...web.notify import Recipient, read_config

    found = read_config(file).notify
    if found.page is not None:
        _check_origin(found.page, "notify.page")
    return [Recipient(address) for address in dict.fromkeys(found.to)], found.page


def _default_config() -> str | None:
    try:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:
        return None
    file = folder / "proctor" / "config.yaml"
    return str(file) if file.exists() else None


def _check_phone(origins: tuple[str, ...]) -> None:
    if not origins or urlsplit(origins[0]).scheme != "https":
        raise click.UsageError(
            "`--phone` needs the address that your phone reaches, with TLS: `--origin https://HOST` of a tunnel"
        )
    if find_spec("segno") is None:
        raise NotInstalledError("the QR code needs segno", "web")


def _show_code(address: str) -> None:
    """The address as a QR code, on standard error: what is printed stays one line."""
    import segno

    segno.make(address, error="l").terminal(sys.stderr, compact=True, border=2)


def _echo_warnings() -> None:
    handler = NoteHandler(logging.WARNING)
    logging.getLogger("proctor").addHandler(handler)


def _tokens(file: str | None) -> tuple[AccessTokens, str | None]:
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
    try:
        ip_address(address or "127.0.0.1")
    except ValueError:
        raise click.UsageError(f"`--proxy {address}` is not an address; use 127.0.0.1, or the proxy's own") from None


def _check_origin(origin: str, what: str = "--origin") -> None:
    try:
        scheme, host, path, *more = urlsplit(origin)
    except ValueError:
        scheme, host, path, more = "", "", "", []
    if scheme not in ("http", "https") or not host or path.strip("/") or any(more):
        raise click.UsageError(f"`{what} {origin}` is not an origin; use https://HOST or http://HOST:PORT")


def _check_installed() -> None:
    if any(find_spec(name) is None for name in _LIBRARIES):
        raise NotInstalledError("the web server is not installed", "web")
