"""Values made in Python - dicts, lists, records - to the same tree a text gives, without places."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from .tree import MAX_DEPTH, ListNode, MapNode, Node, Scalar, Unreadable


def node_of(value: Any, depth: int = 0) -> Node:
    """The tree of a value; a field that holds its default is left out of a record's mapping.

    Raises:
        Unreadable: nested beyond measure, or a key that is not text.
    """
    if depth > MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, msgspec.Struct):
        return record_node(value, depth)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise Unreadable(f"a key must be text, not `{key!r}`")
        return MapNode({key: node_of(item, depth + 1) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return ListNode([node_of(item, depth + 1) for item in value])
    return Scalar(value)


def record_node(value: msgspec.Struct, depth: int = 0) -> MapNode:
    """The tree of a record; a field that holds its default is left out.

    Raises:
        Unreadable: nested beyond measure.
    """
    entries: dict[str, Node] = {}
    tag = value.__struct_config__.tag
    if isinstance(tag, str) and value.__struct_config__.tag_field:
        entries[value.__struct_config__.tag_field] = Scalar(tag)
    for field in _fields(type(value)):
        given = getattr(value, field.name)
        if given is not msgspec.UNSET and not (given is None and field.default is None):
            entries[field.encode_name] = node_of(given, depth + 1)
    return MapNode(entries, record=type(value))


@functools.cache
def _fields(cls: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(cls)
