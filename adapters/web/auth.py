"""Decides who may send requests and from where, and sets the headers for browsers, before anything else runs.

No browser adds the token's header by itself, so another site cannot act in a person's name; the Host and Origin
checks stop a page that reaches this server under another name (DNS rebinding).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from ipaddress import IPv6Address, ip_address
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.supervisor.errors import UsageError

if TYPE_CHECKING:
    from ..operations.identities import AccessTokens, Identity


AT_MOST = 20
"""The most wrong tokens from one address in the window."""
WINDOW_S = 60.0
_ADDRESSES = 4096
"""How many addresses are remembered, the latest ones."""


class TooManyTriesError(UsageError):
    """Requests from this address are ignored for `wait_s` seconds."""

    code = "too_many_tries"

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"too many requests with wrong tokens from your address; try again in {wait_s} s")
        self.wait_s = wait_s


class Tries:
    """Finds the holder of a token, and counts invalid tokens by the address they come from.

    A valid token works from every address at any time, so that nobody can lock its holder out of the kill switch with
    wrong ones. Tokens are too long to be guessed (`identities.SHORTEST`); the count keeps a guesser, or a client with
    an old token, from filling the log.

    Args:
        tokens: the valid ones.
        now: the seconds of a monotonic clock.
    """

    def __init__(self, tokens: AccessTokens, now: Callable[[], float] = monotonic) -> None:
        self._tokens = tokens
        self._now = now
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def holder(self, token: str, client: str) -> Identity | None:
        """The holder of a token; None for an invalid one. Raises TooManyTriesError for an invalid token after too
        many from this address.
        """
        found = self._tokens.holder(token)
        if found is not None:
            return found
        wrong = self._wrong_from(_network(client))
        now = self._now()
        while wrong and wrong[0] <= now - WINDOW_S:
            wrong.popleft()
        if len(wrong) >= AT_MOST:
            raise TooManyTriesError(ceil(wrong[0] + WINDOW_S - now))
        wrong.append(now)
        return None

    def _wrong_from(self, network: str) -> deque[float]:
        """The times of invalid tokens from a network."""
        wrong = self._wrong.setdefault(network, deque())
        self._wrong.move_to_end(network)
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)
        return wrong


def _network(client: str) -> str:
    """One client's network: an IPv4 address, or the 64 bits of an IPv6 network."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if not isinstance(address, IPv6Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.exploded[:19]


MAX_BODY = 64 * 1024
"""How many bytes a request's body may have."""
OPEN_PATHS = ("/", "/openapi.json")
"""Paths that need no token, like the page's files, as they show nothing of any run."""
HEALTH = "/healthz"
"""Paths for load balancers' health checks, by whatever name or address they use for this server: the answer is only
well or not."""
ASSETS = "/page/"

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), clipboard-read=()",
    "cache-control": "no-store",
}
"""Headers of every answer: code and style come from this server's own files only, and text never becomes markup."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request is rejected; `code` is for programs."""

    code: str
    message: str


class Guard:
    """Admits requests to one of our own names, from our own page or no page at all, with a valid token; the
    application finds the identity in `scope["state"]["who"]`. `origins` are the URLs under which people reach this
    server.
    """

    def __init__(self, app: ASGIApp, tokens: AccessTokens, origins: Collection[str]) -> None:
        self._app = app
        self._tries = Tries(tokens)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        answer = None if scope["path"] == HEALTH else self._refused(scope, headers)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (answer or self._app)(scope, receive, sent)

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return refused(421, "wrong_host", "this server is not known by that name; see `--origin`")
        origins = headers.getlist("origin")
        if origins and (len(origins) != 1 or origins[0].lower() not in self._origins):
            return refused(403, "wrong_origin", "requests from another site's page are rejected")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and scope["path"] not in OPEN_PATHS:
            return refused(403, "wrong_origin", "requests from another site's page are rejected")
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(ASSETS):
            return None if scope["method"] in ("GET", "HEAD") else refused(405, "bad_method", "this is only read")
        try:
            who = self._holder(headers, scope["client"][0] if scope.get("client") else "")
        except TooManyTriesError as error:
            answer = refused(429, error.code, str(error))
            answer.headers["retry-after"] = str(error.wait_s)
            return answer
        if who is None:
            answer = refused(401, "no_token", "send `Authorization: Bearer TOKEN` with a token of this server")
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        state = scope.setdefault("state", {})
        state["who"] = who
        if "connection" in state:  # of this package's server
            state["connection"].holder = who.name
        return None

    def _holder(self, headers: Headers, client: str) -> Identity | None:
        given = headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return self._tries.holder(token.strip(), client) if scheme.lower() == "bearer" and token.strip() else None


def refused(status: int, code: str, message: str) -> Response:
    """The answer to a rejected request."""
    body = msgspec.json.encode(Refusal(code=code, message=message))
    return Response(body, status_code=status, media_type="application/json")
