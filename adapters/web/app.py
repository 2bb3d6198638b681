"""Page and API as one ASGI application, guarded."""

from __future__ import annotations

import mimetypes
from collections.abc import Collection
from importlib.resources import files
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from proctor.supervisor.log import failure, logger
from proctor.supervisor.ports.adapters import Store

from .api import OPERATIONS
from .api.health import StoreHealth
from .guard import ASSETS, Guard, refused
from .identities import AccessTokens
from .openapi import openapi
from .operations import Endpoint, endpoint
from .queries import WebRecords

PAGE = files(__package__).joinpath("page")


def application(
    store: Store, tokens: AccessTokens, origins: Collection[str], *, closing: anyio.Event | None = None
) -> ASGIApp:
    """The page and the API on a store.

    Args:
        store: holds the runs; whoever opened it closes it.
        tokens: the valid ones.
        origins: the URLs under which people reach this server.
        closing: set to end the streams.
    """
    records = WebRecords(store)
    described = msgspec.json.encode(openapi(OPERATIONS, _version()))

    async def document(request: Request) -> Response:
        return Response(described, media_type="application/json")

    routes = [
        Route("/", _page, methods=["GET"]),
        Route(ASSETS + "{name}", _page, methods=["GET"]),
        Route("/openapi.json", document, methods=["GET"]),
        *(Route(path, _by_method(found), methods=list(found)) for path, found in _endpoints(records).items()),
    ]
    handlers: Any = {404: _unknown, 405: _unknown, Exception: _failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.streams = 0
    app.state.health = StoreHealth(store)
    app.state.closing = closing
    return Guard(app, tokens, origins)


def _endpoints(records: WebRecords) -> dict[str, dict[str, Endpoint]]:
    """What answers, by path and method."""
    found: dict[str, dict[str, Endpoint]] = {}
    for operation in OPERATIONS:
        found.setdefault(operation.path, {})[operation.method] = endpoint(operation, records)
    return found


def _by_method(found: dict[str, Endpoint]) -> Endpoint:
    """One endpoint for all methods of a path, so that a request by another method learns which there are."""

    async def answer(request: Request) -> Response:
        return await found["GET" if request.method == "HEAD" else request.method](request)

    return answer


def _version() -> str:
    import proctor

    return str(getattr(proctor, "__version__", "0"))


_FILES = {each.name: each.read_bytes() for each in PAGE.iterdir() if each.is_file()}
"""The page's files by name: nothing else is ever read for a request."""


async def _page(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    data = _FILES.get(name)
    if data is None:
        return refused(404, "not_found", "there is no such file")
    return Response(data, media_type=mimetypes.guess_type(name)[0] or "application/octet-stream")


async def _unknown(request: Request, error: Any) -> Response:
    code = "not_found" if error.status_code == 404 else "bad_method"
    answer = refused(error.status_code, code, "nothing is here; see /openapi.json")
    answer.headers.update(error.headers or {})  # which methods there are
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    """What went wrong is logged, with the path and nothing of the request else; the answer says no more."""
    logger().error("web.failed", path=request.url.path, **failure(error))
    return refused(500, "error", "this should not have happened; the server's log says more")
