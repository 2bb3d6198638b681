"""Records: their fields, with type, default and meaning."""

from __future__ import annotations

import datetime
import importlib
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import FieldInfo
from msgspec.structs import fields as fields_of

from proctor.policies import Rule, ToolWhere

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


_RULE = [field.encode_name for field in fields_of(Rule)]


def fields(name: str) -> str:
    """The fields of a record by its public name, as `policies.Limit`; of a rule, those that not every rule has.

    `policies.Limit besides Rule` leaves out those that mean the same on every rule.
    """
    public, _, besides = name.partition(" besides ")
    folder, _, attribute = public.rpartition(".")
    record = getattr(importlib.import_module(f"proctor.{folder}"), attribute)
    if besides:
        meanings, of_rules = described_fields(record), described_fields(Rule)
        return field_table(record, [field for field in meanings if meanings[field] == of_rules.get(field)])
    shared = _RULE if record is not Rule and issubclass(record, Rule) else ()
    return field_table(record, shared)


TITLES = ("field", "is", "default", "meaning")


def field_table(record: type[msgspec.Struct], left_out: Collection[str] = ()) -> str:
    """The fields of a record in their order."""
    return table(TITLES, field_rows(record, left_out))


def field_rows(record: type[msgspec.Struct], left_out: Collection[str] = ()) -> list[list[str]]:
    """A row for each field of a record, in their order."""
    meanings = described_fields(record)
    hints = typing.get_type_hints(record, include_extras=False)
    return [
        [code(each.encode_name), spelt(hints[each.name]), _default(each), meanings.get(each.name, "")]
        for each in fields_of(record)
        if each.encode_name not in left_out
    ]


def spelt(hint: Any) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is typing.Literal:
        return codes(arguments)
    if ToolWhere in arguments or any(ToolWhere in typing.get_args(each) for each in arguments):
        return "tools"
    if origin in (types.UnionType, typing.Union):
        said = dict.fromkeys(spelt(each) for each in arguments if each is not msgspec.UnsetType)
        return "anything" if "anything" in said else " or ".join(said)
    if origin in (tuple, list, frozenset, Sequence):
        inner = dict.fromkeys(spelt(each) for each in arguments if each is not Ellipsis)
        return f"a list: {', '.join(inner)}" if inner else "a list"
    if origin in (dict, Mapping):
        return "an object"
    return code(hint.__name__) if isinstance(hint, type) else "a callable"


def _default(field: FieldInfo) -> str:
    given = field.default if field.default is not msgspec.NODEFAULT else None
    if field.default_factory is not msgspec.NODEFAULT or given in (None, "", msgspec.UNSET, (), {}):
        return "" if not field.required else "required"
    return code(msgspec.json.encode(given, enc_hook=str).decode())
