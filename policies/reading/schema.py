"""The JSON Schema of a policy file, made from the records."""

from __future__ import annotations

import inspect
import re
from typing import Any

from ..language.record import Base
from ..policy import Policy
from ..rules import RULES
from ..values.durations import PART
from .dialects.durations import DURATIONS
from .shapes import AnyRule, Choice, Items, Number, OfRecord, OneOf, Open, Shape, Table, Text, Truth, fields_of

_FILLED = {"type": "string", "pattern": r"\S"}
_LARGEST = 2**63 - 1
_DURATION = {"type": "string", "pattern": rf"^\s*(?:{PART}\s*)+$"}
_FIELD = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.M)
"""A field in a docstring, with the lines that go on with it."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that every policy in the standard spelling meets."""
    definitions: dict[str, Any] = {}
    policy = _of_record(Policy, definitions)
    definitions["Limits"]["properties"] |= {name: _duration(definitions) for name in DURATIONS}
    definitions["Budget"]["properties"]["max_duration"] = _DURATION
    several = {
        "type": "object",
        "properties": {"policies": {"type": "array", "items": policy, "minItems": 1}},
        "required": ["policies"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A policy, or several",
        "if": {"type": "object", "properties": {"policies": True}, "required": ["policies"]},
        "then": several,
        "else": policy,
        "$defs": dict(sorted(definitions.items())),
    }


def _duration(definitions: dict[str, Any]) -> dict[str, Any]:
    """A duration with its unit, or a limit whose `max` is one."""
    limit = definitions["Limit"]
    return {"anyOf": [_DURATION, {**limit, "properties": {**limit["properties"], "max": _DURATION}}]}


def _schema(shape: Shape, definitions: dict[str, Any]) -> dict[str, Any]:
    if isinstance(shape, Text):
        return dict(_FILLED) if shape.filled else {"type": "string"}
    if isinstance(shape, Number):
        return _number(shape)
    if isinstance(shape, Truth):
        return {"type": "boolean"}
    if isinstance(shape, Choice):
        return {"enum": list(shape.values)} if len(shape.values) > 1 else {"const": shape.values[0]}
    if isinstance(shape, Items):
        return {"type": "array", "items": _schema(shape.item, definitions)}
    if isinstance(shape, Table):
        names = {"propertyNames": {"pattern": r"\S"}} if shape.filled_keys else {}
        return {"type": "object", "additionalProperties": _schema(shape.value, definitions), **names}
    if isinstance(shape, OfRecord):
        return _of_record(shape.cls, definitions)
    if isinstance(shape, AnyRule):
        return _any_rule(definitions)
    if isinstance(shape, OneOf):
        return {"anyOf": [_schema(option, definitions) for option in shape.options]}
    return {} if isinstance(shape, Open) else {"not": {}}


def _number(shape: Number) -> dict[str, Any]:
    bounds = {
        "minimum": shape.ge,
        "exclusiveMinimum": shape.gt,
        "maximum": shape.le,
        "exclusiveMaximum": shape.lt,
    }
    kind = {"type": "integer", "maximum": _LARGEST} if shape.whole else {"type": "number"}
    return {**kind, **{word: bound for word, bound in bounds.items() if bound is not None}}


def _of_record(cls: type[Base], definitions: dict[str, Any]) -> dict[str, Any]:
    """A reference to the record's definition, which is made on the way."""
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        definitions[cls.__name__] = _definition(cls, definitions)
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _definition(cls: type[Base], definitions: dict[str, Any]) -> dict[str, Any]:
    fields = fields_of(cls).values()
    meanings = _meanings(cls)
    properties = {
        field.key: {**_schema(field.shape, definitions), **({"description": text} if text else {})}
        for field in fields
        for text in [meanings.get(field.name)]
    }
    required = [field.key for field in fields if field.required]
    config = cls.__struct_config__
    if config.tag_field and isinstance(config.tag, str):
        properties = {config.tag_field: {"const": config.tag}, **properties}
        required = [config.tag_field, *required]
    return {
        "description": _docstring(cls).partition("\n\nAttributes:\n")[0],
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _meanings(cls: type) -> dict[str, str]:
    """What the docstrings of a record, and of those it is made of, say of its fields by name."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        described = _docstring(base).partition("\nAttributes:\n")[2]
        found |= {name: " ".join(text.split()) for name, text in _FIELD.findall(described)}
    return found


def _docstring(cls: type) -> str:
    return inspect.cleandoc(cls.__dict__.get("__doc__") or "")


def _any_rule(definitions: dict[str, Any]) -> dict[str, Any]:
    """A rule: its `type` picks the one definition it must meet, so that errors speak of that one."""
    picks = [
        {
            "if": {"properties": {"type": {"const": tag}}, "required": ["type"]},
            "then": _of_record(cls, definitions),
        }
        for tag, cls in RULES.items()
    ]
    definitions["Rule"] = {
        "description": "A rule of the family that its `type` names.",
        "type": "object",
        "properties": {"type": {"enum": list(RULES)}},
        "required": ["type"],
        "allOf": picks,
    }
    return {"$ref": "#/$defs/Rule"}
