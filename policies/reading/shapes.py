"""The types of the records' fields, in the few kinds that a reader and a JSON Schema tell apart."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from ..language.record import Base
from ..rules.record import Rule
from .suggestions import either


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


class Truth(msgspec.Struct, frozen=True):
    """True or false."""


class Choice(msgspec.Struct, frozen=True):
    """One of a few written values."""

    values: tuple[Any, ...]


class Items(msgspec.Struct, frozen=True):
    """A list."""

    item: Shape


class Table(msgspec.Struct, frozen=True):
    """A mapping from names to values of one shape."""

    value: Shape
    filled_keys: bool = False


class OfRecord(msgspec.Struct, frozen=True):
    """One record."""

    cls: type[Base]


class AnyRule(msgspec.Struct, frozen=True):
    """A rule of whatever family its `type` says."""


class PythonCode(msgspec.Struct, frozen=True):
    """A Python value, which no text can spell."""


class OneOf(msgspec.Struct, frozen=True):
    """Several shapes."""

    options: tuple[Shape, ...]


Shape: TypeAlias = Open | Text | Number | Truth | Choice | Items | Table | OfRecord | AnyRule | PythonCode | OneOf
_SIMPLE: dict[Any, Shape] = {Any: Open(), bool: Truth(), str: Text(), float: Number()}
_SIMPLE[int] = Number(whole=True)
_NOTHING = (type(None), msgspec.UnsetType)


class FieldShape(msgspec.Struct, frozen=True):
    """One field of a record: its name in Python, its key in a text, and what it holds."""

    name: str
    key: str
    shape: Shape
    required: bool


@functools.cache
def fields_of(cls: type[Base]) -> dict[str, FieldShape]:
    """The fields of a record by the key they are written with."""
    return {
        field.encode_name: FieldShape(field.name, field.encode_name, shape_of(field.type), field.required)
        for field in msgspec.structs.fields(cls)
    }


def shape_of(hint: Any) -> Shape:
    """The shape of a type annotation; that a field may be left out is not part of it."""
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
        return Table(shape_of(args[1]), shape_of(args[0]) == Text(filled=True))
    if isinstance(hint, type) and issubclass(hint, Base):
        return AnyRule() if hint is Rule else OfRecord(hint)
    if origin is Callable or callable(hint):
        return PythonCode()
    raise TypeError(f"no policy text can hold a {hint}")


def _bounded(shape: Shape, metas: list[msgspec.Meta]) -> Shape:
    for meta in metas:
        if isinstance(shape, Text) and meta.min_length:
            shape = Text(filled=True)
        elif isinstance(shape, Number):
            shape = Number(shape.whole, meta.ge, meta.gt, meta.le, meta.lt)
    return shape


def wanted(shape: Shape) -> str:
    """What a shape asks for, in the words of an error message."""
    if isinstance(shape, Choice):
        return either(f"`{value}`" for value in shape.values)
    if isinstance(shape, OneOf):
        return either(dict.fromkeys(wanted(option) for option in shape.options))
    if isinstance(shape, Number):
        return "a whole number" if shape.whole else "a number"
    if isinstance(shape, Text):
        return "text"
    if isinstance(shape, Truth):
        return "true or false"
    if isinstance(shape, Items):
        return "a list"
    return "a Python callable" if isinstance(shape, PythonCode) else "a mapping"
