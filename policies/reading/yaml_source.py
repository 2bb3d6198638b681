"""YAML text to nodes."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import yaml

from .tree import (
    HALF_A_CHARACTER,
    MAX_BORROWED,
    MAX_DEPTH,
    EmptyFile,
    ListNode,
    MapNode,
    Node,
    ProblemReport,
    Scalar,
    TextSpan,
    Unreadable,
    check_count,
)

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL_ELSEWHERE = re.compile(r"[-+]?0[0-9]+")
_BOOLEAN_ELSEWHERE = re.compile("yes|no|on|off", re.IGNORECASE).fullmatch
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
_MAX_DIGITS = 400


def resolve(text: str) -> Any:
    """The value of an unquoted word: null, a boolean, a number, or else text; no dates, no base 60. Raises
    Unreadable: the number has too many digits, or begins with 0, as the text of a file's mode does.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _OCTAL_ELSEWHERE.fullmatch(text):
        raise Unreadable(f"a number does not begin with 0; text does in quotes: '{text[:_MAX_DIGITS]}'")
    if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
        return integer(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))
    if text in (".nan", ".NaN", ".NAN"):
        return float("nan")
    return text


def integer(text: str) -> int:
    """The whole number a text spells. Raises Unreadable: it has too many digits."""
    if len(text) > _MAX_DIGITS:
        raise Unreadable("a number has too many digits")
    return int(text, 10 if _INTEGER.fullmatch(text) else 0)


def whole_characters(text: str) -> str:
    """The text with surrogate pairs joined. Raises Unreadable: half a pair stands alone, which no text may hold."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise Unreadable(HALF_A_CHARACTER) from None


_TAG = "tag:yaml.org,2002:"
_GLOB = "put a name that begins with `*` in quotes"
_UNCLOSED = "a bracket or a quote is never closed"
_HINTS = {
    "^while scanning an alias": _GLOB,
    "cannot start any token": "put the text in quotes",
    "^mapping values": "put a text that contains `: ` in quotes, or indent the line like the others",
    "unknown escape character": r"put the text in single quotes, in which `\` stands for itself",
    "<block end>": "indent it like the other lines of its list or mapping",
    "end of stream|stream end": _UNCLOSED,
}
"""What mends an error of the parser, by its words."""
_FAST: Any = getattr(yaml, "CSafeLoader", None)
"""libyaml's parser, if PyYAML has it: the same events, twenty times faster."""

_APART = re.compile(
    r"[\t\x85\u2028\u2029\ufeff\ud800-\udfff]|^%|(?:^|[\s\[{,-])\?(?:\s|$)|[|>][-+0-9]*#|:\s*[],}]", re.MULTILINE
)
"""Text that the two parsers may read differently; the slow one reads it."""


def read_yaml(text: str, report: ProblemReport) -> list[Node]:
    """Read the documents of a YAML text, empty ones left out; duplicate keys go to `report`.

    A text that the fast parser rejects is read again by the slow one, so that all errors are the slow one's. Raises
    Unreadable: not YAML, empty, or nested or repeated beyond measure.
    """
    if _FAST is not None and not _APART.search(text):
        with suppress(yaml.YAMLError, ValueError, Unreadable):
            return _Builder(text, report, _FAST).documents()
        report.problems.clear()
    try:
        return _Builder(text, report, yaml.SafeLoader).documents()
    except (yaml.reader.ReaderError, yaml.MarkedYAMLError, ValueError) as error:
        raise _explained(error, text) from None


def _explained(error: yaml.reader.ReaderError | yaml.MarkedYAMLError | ValueError, text: str) -> Unreadable:
    """An error of the parser in our words, with its place and what mends it."""
    if isinstance(error, yaml.reader.ReaderError):
        at = min(int(error.position), len(text))
        line_start = text.rfind("\n", 0, at) + 1
        span = TextSpan(text.count("\n", 0, at) + 1, at - line_start + 1)
        return Unreadable("the text has a character that YAML does not allow", span)
    if not isinstance(error, yaml.MarkedYAMLError):
        return Unreadable(f"not YAML: {error}")
    message = " ".join(part for part in (error.context, error.problem) if part)
    hint = next((hint for words, hint in _HINTS.items() if re.search(words, message)), "")
    mark = error.problem_mark or error.context_mark
    if "character '\\t'" in message:
        message, hint = "a tab where YAML allows only spaces", "write spaces"
    elif re.search(r"(?m)(^|\s)//", text):
        hint = "a comment begins with `#`"
    elif hint == _UNCLOSED and error.context_mark:
        mark = error.context_mark
    return Unreadable(f"not YAML: {message}", _span(mark), hint)


class _Builder:
    """Builds the trees from a parser's events, and counts the nodes of each anchor."""

    def __init__(self, text: str, report: ProblemReport, loader: Any) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=loader))
        self._report = report
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._open: set[str] = set()
        self._count = 0
        self._borrowed = 0

    def documents(self) -> list[Node]:
        """Every document that is not empty."""
        next(self._events)
        found: list[Node] = []
        empty = TextSpan(1, 1)
        while not isinstance(next(self._events), yaml.StreamEndEvent):
            root = self._node(next(self._events), 0)
            if root == Scalar(None, root.span):
                empty = root.span
            else:
                found.append(root)
            self._anchors.clear()
            next(self._events)
        if not found:
            raise EmptyFile(empty)
        return found

    def _node(self, event: Any, depth: int) -> Node:
        span = _span(event.start_mark)
        if depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH} levels", span)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), span)
        anchor, before = event.anchor, self._count
        self._count += 1
        check_count(self._count - self._borrowed, span)
        if anchor is not None:
            self._open.add(anchor)
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = _scalar(event, span)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._list(event, depth)
        else:
            node = self._mapping(event, depth)
        if anchor is not None:
            self._open.discard(anchor)
            self._anchors[anchor] = node, self._count - before
        return node

    def _alias(self, name: str, span: TextSpan) -> Node:
        if name in self._open:
            raise Unreadable(f"`*{name}` stands inside itself", span)
        if name not in self._anchors:
            raise Unreadable(f"no `&{name}` comes before `*{name}`", span, f"{_GLOB}: `'*{name}'`")
        node, size = self._anchors[name]
        self._count += size
        self._borrowed += size
        if self._borrowed > MAX_BORROWED:
            raise Unreadable("the aliases of this file stand for too much text", span)
        return node

    def _list(self, start: Any, depth: int) -> ListNode:
        _check_tag(start, "seq")
        items: list[Node] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return ListNode(items, _span(start.start_mark))

    def _mapping(self, start: Any, depth: int) -> MapNode:
        """A mapping, with what its `<<` keys merge; a key that is given twice is reported."""
        _check_tag(start, "map")
        node = MapNode({}, {}, _span(start.start_mark))
        merged: list[MapNode] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            span = _span(event.start_mark)
            key_node = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if isinstance(event, yaml.ScalarEvent):
                key = whole_characters(event.value)
            elif isinstance(key_node, Scalar) and isinstance(key_node.value, str):
                key = key_node.value
            else:
                raise Unreadable("a key must be text", span)
            if key == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                merged += _merged(value, span)
            elif key in node.entries:
                first = node.key_spans[key]
                self._report.add(f"the key `{key}` is given twice, first on line {first.line}", span)
            else:
                node.entries[key], node.key_spans[key] = value, span
        for other in merged:
            for key, value in other.entries.items():
                if key not in node.entries:
                    node.entries[key], node.key_spans[key] = value, other.key_span(key)
        return node


def _merged(value: Node, span: TextSpan) -> list[MapNode]:
    """The mappings that a `<<` key merges."""
    found = value.items if isinstance(value, ListNode) else [value]
    mappings = [node for node in found if isinstance(node, MapNode)]
    if len(mappings) != len(found):
        raise Unreadable("`<<` takes a mapping, or a list of mappings", span)
    return mappings


def _scalar(event: Any, span: TextSpan) -> Scalar:
    try:
        text = whole_characters(event.value)
        if event.tag is None or event.tag == "!":
            plain = event.implicit[0] and event.tag is None
            return Scalar(resolve(text) if plain else text, span, "", plain and _BOOLEAN_ELSEWHERE(text) is not None)
        _check_tag(event, "str", "int", "float", "bool", "null")
        return Scalar(text if event.tag == _TAG + "str" else resolve(text), span)
    except Unreadable as error:
        raise Unreadable(error.message, span) from None


def _check_tag(event: Any, *allowed: str) -> None:
    if event.tag not in (None, "!", *(_TAG + name for name in allowed)):
        shown = event.tag.replace(_TAG, "!!")
        raise Unreadable(f"the tag `{shown}` is not known here", _span(event.start_mark))


def _span(mark: Any) -> TextSpan:
    return TextSpan(mark.line + 1, mark.column + 1) if mark is not None else TextSpan()
