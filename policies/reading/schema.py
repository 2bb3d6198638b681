"""The JSON Schema of a policy file, made from the records."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from ..limits import BUDGETS, LIMITS, PART, PERCENT, spellings
from ..policy import Policy
from ..rules import RULES
from ..rules.rule import Rule
from ..values.model_base import Base

SYNONYMS = {
    "halt": "cancel",
    "stop": "cancel",
    "block": "deny",
    "ask": "request_approval",
    "approve": "request_approval",
    "log": "warn",
    "tell_llm": "tell_model",
    "message": "tell_model",
    "max_tokens": "max_total_tokens",
    "max_calls": "max_tool_calls",
    "max_cost": "max_cost_usd",
    "title": "name",
    "eq": "equals",
    "ne": "not_equals",
    "ge": "gte",
    "le": "lte",
    "matches": "regex",
    "pattern": "regex",
    "field": "path",
    "rationale": "description",
    "comment": "description",
}

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A suggestion for a misspelt word; empty if no known word is similar."""
    names = list(candidates)
    plain = snake_case(word)
    for guess in (plain, SYNONYMS.get(plain, "")):
        if guess in names:
            return f"did you mean `{guess}`?"
    from difflib import get_close_matches  # needed for a misspelt word only, and slow to import

    near = get_close_matches(plain, names, n=1, cutoff=0.6)
    near = near or [name for name in names if len(plain) > 3 and (plain in name or name in plain)]
    return f"did you mean `{near[0]}`?" if near else ""


def is_near(word: str, names: Collection[str]) -> bool:
    """Whether a word is one of these, or one of them with a letter or two wrong."""
    from difflib import get_close_matches

    return word in names or bool(get_close_matches(word, names, n=1, cutoff=0.8))


def snake_case(word: str) -> str:
    """A word as the language writes it: `maxPerSession` and `max-per-session` are `max_per_session`."""
    return _HUMP.sub("_", word).replace("-", "_").replace("__", "_").lower()


def either(words: Iterable[str]) -> str:
    """Words as a choice: a, b or c."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


class Open(msgspec.Struct, frozen=True):
    """Any JSON value."""


class Text(msgspec.Struct, frozen=True):
    """Text; `filled` if it must hold more than blanks."""

    filled: bool = False


class Number(msgspec.Struct, frozen=True):
    """A number within bounds."""

    whole: bool = False
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None


class Boolean(msgspec.Struct, frozen=True):
    """True or false."""


class Choice(msgspec.Struct, frozen=True):
    """One of a few written values."""

    values: tuple[Any, ...]


class Items(msgspec.Struct, frozen=True):
    """A list; `filled` if it must hold something."""

    item: Shape
    filled: bool = False


class MapOf(msgspec.Struct, frozen=True):
    """A mapping from names to values of one shape."""

    value: Shape
    filled_keys: bool = False


class OfRecord(msgspec.Struct, frozen=True):
    """One record."""

    cls: type[Base]


class AnyRule(msgspec.Struct, frozen=True):
    """A rule of the family that its `type` names."""


class PythonCode(msgspec.Struct, frozen=True):
    """A Python value, which no text can spell."""


class OneOf(msgspec.Struct, frozen=True):
    """Several shapes."""

    options: tuple[Shape, ...]


Shape: TypeAlias = Open | Text | Number | Boolean | Choice | Items | MapOf | OfRecord | AnyRule | PythonCode | OneOf
_SIMPLE: dict[Any, Shape] = {Any: Open(), bool: Boolean(), str: Text(), float: Number()}
_SIMPLE[int] = Number(whole=True)
_NOTHING = (type(None), msgspec.UnsetType)


class FieldShape(msgspec.Struct, frozen=True):
    """One field of a record: its name in Python, its key in a text, and its shape."""

    name: str
    key: str
    shape: Shape
    required: bool


@functools.cache
def fields_of(cls: type[Base]) -> dict[str, FieldShape]:
    """The fields of a record by their written keys."""
    return {
        field.encode_name: FieldShape(field.name, field.encode_name, shape_of(field.type), field.required)
        for field in msgspec.structs.fields(cls)
    }


def shape_of(hint: Any) -> Shape:
    """The shape of a type annotation, whether or not the field may be left out."""
    try:
        if hint in _SIMPLE:
            return _SIMPLE[hint]
    except TypeError:
        pass
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(shape_of(args[0]), [meta for meta in args[1:] if isinstance(meta, msgspec.Meta)])
    if origin is Literal:
        return Choice(args)
    if origin in (Union, types.UnionType):
        options = tuple(dict.fromkeys(shape_of(arg) for arg in args if arg not in _NOTHING))
        return options[0] if len(options) == 1 else OneOf(options)
    if origin in (tuple, list, Sequence):
        return Items(shape_of(args[0]))
    if origin in (dict, Mapping):
        return MapOf(shape_of(args[1]), shape_of(args[0]) == Text(filled=True))
    if isinstance(hint, type) and issubclass(hint, Base):
        return AnyRule() if hint is Rule else OfRecord(hint)
    if origin is Callable or callable(hint):
        return PythonCode()
    raise TypeError(f"no policy text can hold a {hint}")


def _bounded(shape: Shape, metas: list[msgspec.Meta]) -> Shape:
    for meta in metas:
        if isinstance(shape, Text) and meta.min_length:
            shape = Text(filled=True)
        elif isinstance(shape, Items) and meta.min_length:
            shape = Items(shape.item, filled=True)
        elif isinstance(shape, Number):
            shape = Number(shape.whole, meta.ge, meta.gt, meta.le, meta.lt)
    return shape


def wanted(shape: Shape) -> str:
    """A shape in the words of an error message."""
    if isinstance(shape, Choice):
        return either(f"`{value}`" for value in shape.values)
    if isinstance(shape, OneOf):
        return either(dict.fromkeys(wanted(option) for option in shape.options))
    if isinstance(shape, Number):
        return "a whole number" if shape.whole else "a number"
    if isinstance(shape, Text):
        return "text"
    if isinstance(shape, Boolean):
        return "true or false"
    if isinstance(shape, Items):
        return "a list"
    return "a Python callable" if isinstance(shape, PythonCode) else "a mapping"


_FILLED = {"type": "string", "pattern": r"\S"}
LARGEST = 2**63 - 1
"""The largest whole number that a policy may have."""
_DURATION = {"type": "string", "pattern": rf"^\s*(?:{PART}\s*)+$"}
_PERCENT = {"type": "string", "pattern": f"^{PERCENT}$"}
_FIELD = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.M)
"""A field in a docstring, with its continuation lines."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that every policy in the standard spelling meets."""
    definitions: dict[str, Any] = {}
    policy = _of_record(Policy, definitions)
    definitions["Limits"]["properties"] |= {name: _duration(definitions) for name in spellings(LIMITS)}
    of_budget = definitions["Budget"]["properties"]
    of_budget |= {name: {"anyOf": [of_budget[name], _PERCENT]} for name in BUDGETS}
    of_budget |= dict.fromkeys(spellings(BUDGETS), _DURATION)
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
    """The JSON Schema of a shape; those of records are added to the definitions."""
    if isinstance(shape, Text):
        return dict(_FILLED) if shape.filled else {"type": "string"}
    if isinstance(shape, Number):
        return _number(shape)
    if isinstance(shape, Boolean):
        return {"type": "boolean"}
    if isinstance(shape, Choice):
        return {"enum": list(shape.values)} if len(shape.values) > 1 else {"const": shape.values[0]}
    if isinstance(shape, Items):
        least = {"minItems": 1} if shape.filled else {}
        return {"type": "array", "items": _schema(shape.item, definitions), **least}
    if isinstance(shape, MapOf):
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
    bounds = {"minimum": shape.ge, "exclusiveMinimum": shape.gt, "maximum": shape.le, "exclusiveMaximum": shape.lt}
    kind = {"type": "integer", "maximum": LARGEST} if shape.whole else {"type": "number"}
    return {**kind, **{word: bound for word, bound in bounds.items() if bound is not None}}


def _of_record(cls: type[Base], definitions: dict[str, Any]) -> dict[str, Any]:
    """A reference to the record's definition, which is added if missing."""
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
    """The descriptions of a record's fields by name, from its docstring and those of its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        described = _docstring(base).partition("\nAttributes:\n")[2]
        found |= {name: " ".join(text.split()) for name, text in _FIELD.findall(described)}
    return found


def _docstring(cls: type) -> str:
    return inspect.cleandoc(cls.__dict__.get("__doc__") or "")


def _any_rule(definitions: dict[str, Any]) -> dict[str, Any]:
    """A rule, whose `type` selects its definition, so that errors concern that one only."""
    picks = [
        {"if": {"properties": {"type": {"const": tag}}, "required": ["type"]}, "then": _of_record(cls, definitions)}
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
