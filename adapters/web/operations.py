"""An operation: its role, its parameters and its answer, and the endpoint made of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.policies.errors import PolicyError
from proctor.supervisor.errors import ApprovalError, ProctorError, StoreError, UsageError

from .guard import MOST_BODY, refused
from .identities import Identity, Role
from .queries import ConflictError, MissingError, WebRecords
from .views import View

_encode = msgspec.json.Encoder(enc_hook=str).encode


class NoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request without parameters besides its path."""


class ApiRequest(NamedTuple):
    """One request, parsed and allowed. `http` is for handlers that do not answer in JSON."""

    records: WebRecords
    who: Identity
    path: Mapping[str, str]
    query: Any
    body: Any
    http: Request


Handle: TypeAlias = Callable[[ApiRequest], Coroutine[Any, Any, View | Response]]


class Operation(NamedTuple):
    """One method of one path.

    `role` is what the token must allow, None if no token is needed; `media` is the type of an answer that is
    not JSON; `answer` then only describes it.
    """

    method: str
    path: str
    name: str
    summary: str
    handle: Handle
    answer: type[View]
    role: Role | None = "see"
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    media: str = "application/json"
    conflicts: bool = False
    status: int = 200


def operation(method: str, path: str, answer: type[View], **more: Any) -> Callable[[Handle], Operation]:
    """Makes an operation of its handler, whose name and first line become the operation's."""

    def made(handle: Handle) -> Operation:
        return Operation(method, path, handle.__name__, handle.__doc__ or "", handle, answer, **more)

    return made


class TooLargeError(UsageError):
    """A body beyond its bound."""

    code = "too_large"


_ANYBODY = Identity(name="anybody", roles=())
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def endpoint(operation: Operation, records: WebRecords) -> Endpoint:
    """The ASGI endpoint of an operation."""
    wanted = without_null(operation.query)

    async def answer(request: Request) -> Response:
        who: Identity = request.scope["state"]["who"] if operation.role is not None else _ANYBODY
        if operation.role is not None and not who.may(operation.role):
            return refused(403, "wrong_role", f"the token of `{who.name}` does not allow `{operation.role}`")
        try:
            api_request = ApiRequest(
                records=records,
                who=who,
                path=request.path_params,
                query=_query(request, wanted),
                body=await _body(request, operation.body),
                http=request,
            )
            found = await operation.handle(api_request)
        except ProctorError as error:
            return _error_response(error)
        if isinstance(found, Response):
            return found
        return Response(_encode(found), status_code=operation.status, media_type="application/json")

    return answer


def without_null(query: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same parameters for a URL: one that is not given is absent, and the text `null` is just text."""
    fields = [
        (field.name, _not_null(field.type), msgspec.field(default=field.default))
        for field in msgspec.structs.fields(query)
    ]
    return msgspec.defstruct(query.__name__, fields, frozen=True, kw_only=True, forbid_unknown_fields=True)


def _not_null(kind: Any) -> Any:
    kinds = [one for one in get_args(kind) if one is not NoneType] if NoneType in get_args(kind) else [kind]
    return reduce(or_, kinds)


def _error_response(error: ProctorError) -> Response:
    if isinstance(error, ApprovalError):
        return refused({"unknown": 404, "not_allowed": 403}.get(error.kind, 409), error.kind, str(error))
    statuses = {
        MissingError: 404,
        ConflictError: 409,
        TooLargeError: 413,
        UsageError: 400,
        PolicyError: 422,
        StoreError: 503,
    }
    status = next((status for kind, status in statuses.items() if isinstance(error, kind)), 500)
    return refused(status, error.code, str(error))


def _query(request: Request, wanted: type[msgspec.Struct]) -> Any:
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise UsageError("a parameter is given twice")
    try:
        return msgspec.convert(dict(given), wanted, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from None


async def _body(request: Request, wanted: type[msgspec.Struct] | None) -> Any:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BODY:
            raise TooLargeError(f"a body has at most {MOST_BODY:,} bytes")
    if wanted is None:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UsageError("the body is JSON, with `Content-Type: application/json`")
    try:
        return msgspec.json.decode(bytes(data), type=wanted)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(str(error)) from None
