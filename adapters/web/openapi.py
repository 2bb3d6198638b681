"""The API described: an OpenAPI document made of the operations themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from .guard import Refusal
from .operations import Operation, without_null

_REFUSALS = {
    400: "The request makes no sense.",
    401: "No token, or one that is not good.",
    403: "The token does not allow it, or another site's page asks.",
    429: "Too many wrong tokens came from this address; `Retry-After` says when to try again.",
    421: "The server is not known by this name.",
    503: "The store cannot be read or written now.",
}
_REFUSALS_TO_ANYBODY = {status: _REFUSALS[status] for status in (400, 503)}
_MISSING = "There is no such thing."
_CONFLICT = "It is too late: it is over, answered, or about another input."
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
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_ABOUT = "Runs of AI agents on one store: seen, answered and ended from any language."


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
    """A default of None only means that the parameter is optional."""
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
