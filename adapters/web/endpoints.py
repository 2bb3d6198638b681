"""An operation: its role, parameters and answer, and the endpoint made of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.policies.errors import PolicyError, ProctorError
from proctor.policies.reading.schema import did_you_mean
from proctor.policies.values.json_values import NOT_JSON, json_words
from proctor.supervisor.errors import ApprovalError, StoreError, UsageError

from ..operations.identities import Identity, Role
from ..operations.service import ConflictError, MissingError, OperatorService
from .auth import MAX_BODY, Refusal, refused

_encode = msgspec.json.Encoder(enc_hook=str).encode


class NoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request without parameters besides its path."""


class ApiRequest(NamedTuple):
    """One request, parsed and allowed. `http` is for handlers that do not answer in JSON."""

    service: OperatorService
    who: Identity
    path: Mapping[str, str]
    query: Any
    body: Any
    http: Request


Handler: TypeAlias = Callable[[ApiRequest], Coroutine[Any, Any, msgspec.Struct | Response]]


class Operation(NamedTuple):
    """One method of one path.

    `role` is what the token must allow, None if no token is needed; `media` is the type of an answer that is
    not JSON; `answer` then only describes it.
    """

    method: str
    path: str
    name: str
    summary: str
    handle: Handler
    answer: type[msgspec.Struct]
    role: Role | None = "see"
    query: type[msgspec.Struct] = NoParameters
    body: type[msgspec.Struct] | None = None
    media: str = "application/json"
    conflicts: bool = False
    status: int = 200


def operation(method: str, path: str, answer: type[msgspec.Struct], **more: Any) -> Callable[[Handler], Operation]:
    """Make an operation of its handler, whose name and docstring become the operation's."""

    def made(handle: Handler) -> Operation:
        return Operation(method, path, handle.__name__, handle.__doc__ or "", handle, answer, **more)

    return made


class TooLargeError(UsageError):
    """A body beyond its bound."""

    code = "too_large"


_ANYBODY = Identity(name="anybody", roles=())
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def endpoint(operation: Operation, service: OperatorService) -> Endpoint:
    """The ASGI endpoint of an operation."""
    wanted = without_null(operation.query)

    async def answer(request: Request) -> Response:
        who: Identity = request.scope["state"]["who"] if operation.role is not None else _ANYBODY
        if operation.role is not None and not who.may(operation.role):
            return refused(403, "wrong_role", f"the token of `{who.name}` does not allow `{operation.role}`")
        try:
            api_request = ApiRequest(
                service=service,
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
    """The same parameters for a URL, in which a missing one is absent and `null` is text."""
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
        raise _malformed(error, wanted) from None


async def _body(request: Request, wanted: type[msgspec.Struct] | None) -> Any:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise TooLargeError(f"a body has at most {MAX_BODY:,} bytes")
    if wanted is None:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UsageError("the body is JSON, with `Content-Type: application/json`")
    try:
        return msgspec.json.decode(bytes(data), type=wanted)
    except NOT_JSON as error:
        raise _malformed(error, wanted) from None


def _malformed(error: Exception, wanted: type[msgspec.Struct]) -> UsageError:
    words = json_words(error)
    if unknown := re.fullmatch("unknown key `(.*)`", words):
        words += _suggestion(unknown[1], wanted.__struct_fields__)
    elif unknown := re.fullmatch(r"unknown value `(.*)` at `\$\.(\w+)`", words):
        words += _suggestion(unknown[1], values_of(get_type_hints(wanted)[unknown[2]]))
    return UsageError(words)


def _suggestion(unknown: str, names: Sequence[str]) -> str:
    """What could be meant, or else everything that there is."""
    listed = ", ".join(f"`{name}`" for name in names) or "none"
    return f"; {did_you_mean(unknown, names) or f'there are {listed}'}"


def values_of(kind: Any) -> tuple[str, ...]:
    """The words that a field of this type can be."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(value for each in get_args(kind) for value in values_of(each))


_REFUSALS = {
    400: "The request is malformed.",
    401: "No token, or an invalid one.",
    403: "The token does not allow it, or the request is from another site's page.",
    429: "Too many wrong tokens came from this address; `Retry-After` says when to try again.",
    421: "The server does not have this name.",
    503: "The store cannot be read or written now.",
}
_REFUSALS_TO_ANYBODY = {status: _REFUSALS[status] for status in (400, 503)}
_MISSING = "Not found."
_CONFLICT = "Too late: the run has ended, the request is answered, or the input is another."
_TOO_LARGE = "The body is too large."
_UNTOLD = "The policies were written by another version."


def openapi(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """The document, version 3.1 of OpenAPI."""
    types = [op.answer for op in operations] + [op.body for op in operations if op.body is not None]
    _, components = msgspec.json.schema_components([*types, Refusal], ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "proctor", "version": version, "description": _ABOUT},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


_ABOUT = "Runs of AI agents on one store: read them, answer approvals and cancel runs from any language."


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Needs the role `{operation.role}`." if operation.role else "Needs no token.",
        "parameters": [*_in_path(operation.path), *_in_query(operation)],
        "responses": {str(operation.status): _answer(operation), **_refusals(operation)},
    }
    if operation.role is None:
        described["security"] = []
    if operation.media == "text/event-stream":
        described["parameters"].append({"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}})
    if operation.body is not None:
        content = {"application/json": {"schema": _reference(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _in_path(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(operation: Operation) -> list[dict[str, Any]]:
    wanted = without_null(operation.query)
    _, found = msgspec.json.schema_components([wanted])
    fields: dict[str, Any] = found[wanted.__name__].get("properties", {})
    return [{"name": name, "in": "query", "schema": _given(schema)} for name, schema in fields.items()]


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without defaults of None, which only mean that a parameter is optional."""
    return {key: value for key, value in schema.items() if (key, value) != ("default", None)}


def _answer(operation: Operation) -> dict[str, Any]:
    events = operation.media == "text/event-stream"
    schema = {"type": "string"} if events else _reference(operation.answer)
    about = (operation.answer.__doc__ or "").strip().splitlines()[0]
    return {"description": about, "content": {operation.media: {"schema": schema}}}


def _refusals(operation: Operation) -> dict[str, Any]:
    found = dict(_REFUSALS if operation.role else _REFUSALS_TO_ANYBODY)
    if "{" in operation.path:
        found[404] = _MISSING
        found[422] = _UNTOLD
    if operation.conflicts:
        found[409] = _CONFLICT
    if operation.body is not None:
        found[413] = _TOO_LARGE
    content = {"application/json": {"schema": _reference(Refusal)}}
    return {str(status): {"description": text, "content": content} for status, text in sorted(found.items())}


def _reference(of: type) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{of.__name__}"}
