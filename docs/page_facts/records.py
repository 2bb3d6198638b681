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
from proctor.policies.rules import RULES

from .docstrings import described_fields
from .markdown import code, codes, entries, table

_PLAIN = {Any: "anything", bool: "boolean", datetime.datetime: "time", float: "number", int: "integer", str: "text"}


_NOTHING = (type(None), msgspec.UnsetType)

_RULE = [field.encode_name for field in fields_of(Rule)]


def fields(name: str) -> str:
    """The fields of what a user writes, by its public name, as `policies.Limit`; of a rule, those that not every rule
    has.

    `policies.Limit besides Rule` leaves out those that mean the same on every rule.
    """
    public, _, besides = name.partition(" besides ")
    record = _public(public)
    if besides:
        meanings, of_rules = described_fields(record), described_fields(Rule)
        left_out = [field for field in meanings if meanings[field] == of_rules.get(field)]
    else:
        left_out = _RULE if record is not Rule and issubclass(record, Rule) else []
    needed = {field.encode_name for field in fields_of(record) if field.required}
    rows = [
        [name, ", ".join(filter(None, (kind, "required"))) if name.strip("`") in needed else kind, meaning]
        for name, kind, meaning in field_rows(record, left_out)
    ]
    return entries(rows)


def rule_files(_: str) -> str:
    """Each file of a rule family, with the `type`s that it holds."""
    held: dict[str, list[str]] = {}
    for kind, record in RULES.items():
        held.setdefault(record.__module__.removeprefix("proctor.").replace(".", "/"), []).append(kind)
    return table(["file", "`type`"], [[code(file), codes(kinds)] for file, kinds in sorted(held.items())])


def _public(name: str) -> type[msgspec.Struct]:
    folder, _, attribute = name.rpartition(".")
    record: type[msgspec.Struct] = getattr(importlib.import_module(f"proctor.{folder}"), attribute)
    return record


def field_rows(record: type[msgspec.Struct], left_out: Collection[str] = ()) -> list[list[str]]:
    """An entry for each field of a record, in their order."""
    meanings = described_fields(record)
    hints = typing.get_type_hints(record, include_extras=False)
    return [
        [code(each.encode_name), _typed(hints[each.name], each, meaning), meaning]
        for each in fields_of(record)
        for meaning in [meanings.get(each.name, "")]
        if each.encode_name not in left_out
    ]


def _typed(hint: Any, field: FieldInfo, meaning: str) -> str:
    """The type of a field if it is not text, and its default if that says more than that nothing is given."""
    values = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    named = bool(values) and all(code(value) in meaning for value in values)
    default = _default(field)
    kind = "" if named or spelt(hint) == "text" else spelt(hint)
    return ", ".join(filter(None, (kind, f"default {default}" if default else "")))


def spelt(hint: Any) -> str:
    """A type in words; a field that is not there, or null, is none of its values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is typing.Literal:
        return codes(arguments)
    if ToolWhere in arguments or any(ToolWhere in typing.get_args(each) for each in arguments):
        return "tools"
    if origin in (types.UnionType, typing.Union):
        said = dict.fromkeys(spelt(each) for each in arguments if each not in _NOTHING)
        return "anything" if "anything" in said else " or ".join(said)
    if origin in (tuple, list, frozenset, Sequence):
        inner = dict.fromkeys(spelt(each) for each in arguments if each is not Ellipsis)
        return f"list of {', '.join(inner)}" if inner else "list"
    if origin in (dict, Mapping):
        return "object"
    return code(hint.__name__) if isinstance(hint, type) else "callable"


def _default(field: FieldInfo) -> str:
    """What is left out stands for this; nothing for none, zero, false and what is empty."""
    given = field.default if field.default is not msgspec.NODEFAULT else None
    if isinstance(given, msgspec.Struct) or given in (None, "", 0, False, msgspec.UNSET, (), {}):
        return ""
    return code(msgspec.json.encode(given, enc_hook=str).decode())
