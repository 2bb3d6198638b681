"""The tree that a policy is read into from any format, and the report of its problems."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..errors import PolicyError, Problem

HALF_A_CHARACTER = "text has an incomplete character (a lone surrogate)"
MAX_DEPTH = 64
"""How deep lists and mappings may nest."""

MAX_BORROWED = 100_000
"""How many values the aliases of a text may repeat."""

MAX_TEXT = 1_000_000
"""How many characters a text may have."""

MAX_VALUES = 30_000
"""How many values - texts, numbers, lists, mappings - a text, a mapping or a policy may have."""


class TextSpan(NamedTuple):
    """A place in a text; line and column count from 1, 0 is unknown."""

    line: int = 0
    column: int = 0


NOWHERE = TextSpan()


@dataclass(slots=True)
class Scalar:
    """Text, a number, true, false or null; a value of another kind is an error when it is converted."""

    value: Any
    span: TextSpan = NOWHERE
    path: str = ""
    is_boolean_elsewhere: bool = False
    """A word without quotes that other versions of YAML take for true or false."""


@dataclass(slots=True)
class ListNode:
    """A list."""

    items: list[Node]
    span: TextSpan = NOWHERE
    path: str = ""


@dataclass(slots=True)
class MapNode:
    """A mapping; `record` is the class of its record, if it was made in Python."""

    entries: dict[str, Node]
    key_spans: dict[str, TextSpan] = field(default_factory=dict)
    span: TextSpan = NOWHERE
    path: str = ""
    record: type | None = None

    def key_span(self, key: str) -> TextSpan:
        """The span of a key; the mapping's if the key is not there."""
        return self.key_spans.get(key, self.span)


Node: TypeAlias = Scalar | ListNode | MapNode


class Unreadable(Exception):  # noqa: N818 - never leaves this folder
    """The text cannot be read."""

    def __init__(self, message: str, span: TextSpan = NOWHERE, suggestion: str = "") -> None:
        super().__init__(message)
        self.message, self.span, self.suggestion = message, span, suggestion


class EmptyFile(Unreadable):
    """The text has no value."""

    def __init__(self, span: TextSpan) -> None:
        super().__init__("the file is empty", span)


class ProblemReport:
    """Collects the problems of one text and shows each with its line."""

    def __init__(self, file: str = "", text: str = "") -> None:
        self.file = file
        self.lines: Sequence[str] = text.split("\n")
        self.problems: dict[Problem, None] = {}

    def add(self, message: str, span: TextSpan, path: str = "", suggestion: str = "") -> None:
        """Add a problem, unless it is there already, as with an alias used twice."""
        source = self.lines[span.line - 1].rstrip("\r") if 0 < span.line <= len(self.lines) else ""
        problem = Problem(
            message=message,
            path=path,
            file=self.file,
            line=span.line,
            column=span.column,
            source=source,
            suggestion=suggestion,
        )
        self.problems.setdefault(problem)

    def raise_if_any(self) -> None:
        """Raise every problem noted, in the order of the text. Raises PolicyError: if there is one."""
        if self.problems:
            raise PolicyError(sorted(self.problems, key=lambda problem: (problem.line, problem.column)))


def describe(node: Node) -> str:
    """The kind of a value, in the words of an error message."""
    if isinstance(node, MapNode):
        return "a mapping"
    if isinstance(node, ListNode):
        return "a list"
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f"the text `{value if len(value) <= 40 else value[:37] + '...'}`"
    if isinstance(value, int | float):
        shown = repr(value) if isinstance(value, float) or value.bit_length() <= 64 else "too large"
        return f"the number {shown}"
    return f"a value of type `{type(value).__name__}`"


def check_count(values: int, span: TextSpan = NOWHERE) -> None:
    """Raises Unreadable for a source with more than MAX_VALUES values."""
    if values > MAX_VALUES:
        message = f"more than {MAX_VALUES:,} values are more than one policy file may have"
        raise Unreadable(message, span, "split the file, or write globs (`crm_*`) instead of long lists")


def check_size(root: Node) -> None:
    """The same for a tree."""
    waiting, found = [root], 0
    while waiting:
        below = [child for _, child in children(waiting.pop())]
        waiting += below
        found += len(below)
        check_count(found)


def children(node: Node) -> list[tuple[str | int, Node]]:
    """The keys or positions of a node with what they hold."""
    if isinstance(node, MapNode):
        return list(node.entries.items())
    if isinstance(node, ListNode):
        return list(enumerate(node.items))
    return []


def set_paths(root: Node) -> None:
    """Give every node its path in the document, such as `rules[2].tool`."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        for part, child in children(node):
            if not child.path:
                child.path = join(node.path, part)
                waiting.append(child)


def join(path: str, part: str | int) -> str:
    """A path one step further."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    return f"{path}.{part}" if path else part


def node_of(value: Any, depth: int = 0) -> Node:
    """The tree of a value; a record's fields with their default are left out.

    Raises:
        Unreadable: nested beyond measure, a key that is not text, or text with half a character.
    """
    if depth > MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, msgspec.Struct):
        return record_node(value, depth)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise Unreadable(f"a key must be text, not `{key!r}`")
            _check_characters(key)
        return MapNode({key: node_of(item, depth + 1) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return ListNode([node_of(item, depth + 1) for item in value])
    if isinstance(value, str):
        _check_characters(value)
    return Scalar(value)


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unreadable(HALF_A_CHARACTER) from None


def record_node(value: msgspec.Struct, depth: int = 0) -> MapNode:
    """The tree of a record; fields with their default are left out. Raises Unreadable: nested beyond measure."""
    entries: dict[str, Node] = {}
    tag = value.__struct_config__.tag
    if isinstance(tag, str) and value.__struct_config__.tag_field:
        entries[value.__struct_config__.tag_field] = Scalar(tag)
    for each in _fields(type(value)):
        given = getattr(value, each.name)
        if given is not msgspec.UNSET and given is not each.default:
            entries[each.encode_name] = node_of(given, depth + 1)
    return MapNode(entries, record=type(value))


@functools.cache
def _fields(cls: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(cls)
