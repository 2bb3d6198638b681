"""Small questions about nodes, shapes and records that converting asks."""

from __future__ import annotations

import math
import re
from typing import Any

from ..language.record import Base
from . import shapes
from .shapes import Shape
from .tree import ListNode, MapNode, Node, Scalar, TextSpan

INVALID: Any = object()
"""Stands for what could not be converted; its problems are reported."""
_LARGEST = 2**63 - 1
_GROUPED = re.compile(r"[0-9]{1,3}(_[0-9]{3}){1,6}")


def own_keys(cls: type[Base]) -> list[str]:
    """The keys that tell a record from others of its union: those it cannot be without."""
    return [field.key for field in shapes.fields_of(cls).values() if field.required]


def place_of(node: Node, where: tuple[str | int, ...]) -> tuple[TextSpan, str]:
    """The place of a part of a node, as far as it is written."""
    for part in where:
        child = None
        if isinstance(node, MapNode) and isinstance(part, str):
            child = node.entries.get(part, node.entries.get(part.rstrip("_")))
        elif isinstance(node, ListNode) and isinstance(part, int) and part < len(node.items):
            child = node.items[part]
        if child is None:
            break
        node = child
    return node.span, node.path


def fits(option: Shape, node: Node) -> bool:
    """Whether a node is of the kind a shape asks for, whatever it holds."""
    if isinstance(node, MapNode):
        return isinstance(option, shapes.OfRecord | shapes.Table | shapes.AnyRule | shapes.Open)
    if isinstance(node, ListNode):
        return isinstance(option, shapes.Items | shapes.Open)
    if isinstance(option, shapes.Choice):
        return any(type(node.value) is type(value) for value in option.values)
    if isinstance(option, shapes.Text):
        return isinstance(node.value, str)
    if isinstance(option, shapes.Truth):
        return isinstance(node.value, bool)
    if isinstance(option, shapes.Number):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return isinstance(option, shapes.Open) or (isinstance(option, shapes.PythonCode) and callable(node.value))


def ungrouped(shape: Shape, node: Node) -> Node:
    """The number that `8_000` is where a number is wanted and no text."""
    options = shape.options if isinstance(shape, shapes.OneOf) else (shape,)
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, str) or not _GROUPED.fullmatch(value):
        return node
    if any(isinstance(option, shapes.Text | shapes.Choice | shapes.Open) for option in options):
        return node
    wanted = any(isinstance(option, shapes.Number) for option in options)
    return Scalar(int(value), node.span, node.path) if wanted else node


def quotes_hint(shape: Shape, node: Node) -> str:
    """Whether quotes are all that is wrong with a scalar, as a suggestion."""
    options = shape.options if isinstance(shape, shapes.OneOf) else (shape,)
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, str) and any(isinstance(option, shapes.Number) for option in options):
        return "remove the quotes" if value.strip().replace(".", "", 1).isdecimal() else ""
    text = any(isinstance(option, shapes.Text) for option in options)
    return "put it in quotes" if text and isinstance(value, bool | int | float) else ""


def number_complaint(shape: shapes.Number, value: float) -> str:
    """What is wrong with a number; empty if nothing is."""
    if not math.isfinite(value):
        return "a number must be finite"
    if abs(value) > _LARGEST and isinstance(value, int):
        return "a whole number must fit in 64 bits"
    if shape.whole and value != int(value):
        return f"expected a whole number, got the number {value}"
    if shape.ge is not None and value < shape.ge:
        return f"must be at least {shape.ge:g}, got {value}"
    if shape.gt is not None and value <= shape.gt:
        return f"must be more than {shape.gt:g}, got {value}"
    if shape.le is not None and value > shape.le:
        return f"must be at most {shape.le:g}, got {value}"
    if shape.lt is not None and value >= shape.lt:
        return f"must be less than {shape.lt:g}, got {value}"
    return ""


def stand_in(shape: Shape) -> Any:
    """A harmless value for a field that is broken, so that the sound fields beside it can be checked."""
    if isinstance(shape, shapes.OneOf):
        return stand_in(shape.options[0])
    if isinstance(shape, shapes.Text):
        return "$"  # a name, a path and a regular expression alike
    if isinstance(shape, shapes.Number):
        return 1
    if isinstance(shape, shapes.Items):
        item = stand_in(shape.item)
        return INVALID if item is INVALID else (item, item)
    return shape.values[0] if isinstance(shape, shapes.Choice) else INVALID
