"""Records: their fields, with type, default and meaning."""

from __future__ import annotations

import datetime
import importlib
import types
import typing
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import FieldInfo
from msgspec.structs import fields as fields_of

from .docstrings import described_fields
from .markdown import code, codes, table

_PLAIN = {
    Any: "anything",
    bool: "true or false",
    datetime.datetime: "a time, UTC",
    float: "a number",
    int: "a whole number",
    str: "text",
    type(None): "null",
}


def fields(name: str) -> str:
    """The fields of a record by its public name, as `policies.Count`; those after it in the text are left out."""
    path, *left_out = name.split()
    folder, _, attribute = path.rpartition(".")
    return field_table(getattr(importlib.import_module(f"proctor.{folder}"), attribute), left_out)


def field_table(record: type[msgspec.Struct], left_out: Collection[str] = ()) -> str:
    """The fields of a record in their order."""
    meanings = described_fields(record)
    hints = typing.get_type_hints(record, include_extras=False)
    rows = [
        [code(each.encode_name), spelt(hints[each.name]), _default(each), meanings.get(each.name, "")]
        for each in fields_of(record)
        if each.encode_name not in left_out
    ]
    return table(["field", "is", "default", "meaning"], rows)


def spelt(hint: Any) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is typing.Literal:
        return codes(arguments)
    if origin in (types.UnionType, typing.Union):
        said = dict.fromkeys(spelt(each) for each in arguments if each is not msgspec.UnsetType)
        return "anything" if "anything" in said else " or ".join(said)
    if origin in (tuple, list, frozenset) or hint in (tuple, list):
        inner = dict.fromkeys(spelt(each) for each in arguments if each is not Ellipsis)
        return f"a list: {', '.join(inner)}" if inner else "a list"
    if origin is dict or hint is dict:
        return "an object"
    return f"a {hint.__name__}" if isinstance(hint, type) else str(hint)


def _default(field: FieldInfo) -> str:
    given = field.default if field.default is not msgspec.NODEFAULT else None
    if field.default_factory is not msgspec.NODEFAULT or given in (None, "", msgspec.UNSET, (), {}):
        return "" if not field.required else "required"
    return code(msgspec.json.encode(given, enc_hook=str).decode())
