"""Reads text, bytes or a mapping into one tree of nodes."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .tree import (
    MAX_DEPTH,
    MAX_TEXT,
    NOWHERE,
    EmptyFile,
    ListNode,
    MapNode,
    Node,
    ProblemReport,
    Scalar,
    TextSpan,
    Unreadable,
    check_count,
    check_size,
    describe,
    node_of,
    set_paths,
)
from .yaml_source import integer, read_yaml, whole_characters

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_DECODER = json.JSONDecoder()
_COMMENTS = ("//", "/*")
_WORDS = (("true", True), ("false", False), ("null", None))


class CommentInJsonError(Unreadable):
    """A JSON text has a comment."""


def read_json(text: str, report: ProblemReport) -> Node:
    """Read a JSON text; duplicate keys go to `report`. Raises Unreadable: not JSON, empty, or nested too deep."""
    return _JsonReader(text, report).document()


class _Cursor:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def _span(self, at: int | None = None) -> TextSpan:
        at = self._at if at is None else at
        line = bisect_right(self._line_starts, at)
        return TextSpan(line, at - self._line_starts[line - 1] + 1)

    def _step_over(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]


class _JsonReader(_Cursor):
    def __init__(self, text: str, report: ProblemReport) -> None:
        super().__init__(text)
        self._report = report
        self._count = 0

    def document(self) -> Node:
        self._skip()
        if self._at == len(self._text):
            raise EmptyFile(TextSpan(1, 1))
        root = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise Unreadable("not JSON: something follows the value", self._span())
        return root

    def _skip(self) -> None:
        self._step_over(_BLANK)
        if self._text.startswith(_COMMENTS, self._at):
            raise CommentInJsonError(
                "not JSON: it has no comments", self._span(), "leave it out, or write YAML with `#`"
            )

    def _accept(self, wanted: str) -> bool:
        """Step over a mark and the blanks before it, if it is there."""
        self._skip()
        if self._text.startswith(wanted, self._at):
            self._at += len(wanted)
            return True
        return False

    def _value(self, depth: int) -> Node:
        self._skip()
        span = self._span()
        if depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH} levels", span)
        self._count += 1
        check_count(self._count, span)
        if self._accept("{"):
            return self._mapping(span, depth)
        if self._accept("["):
            return self._list(span, depth)
        if self._text.startswith('"', self._at):
            return Scalar(self._string(), span)
        return Scalar(self._word(span), span)

    def _word(self, span: TextSpan) -> bool | int | float | None:
        for word, value in _WORDS:
            if self._accept(word):
                return value
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise Unreadable("not JSON: expected a value", span)
        self._at = match.end()
        if match[1] or match[2]:
            return float(match[0])
        try:
            return integer(match[0])
        except Unreadable as error:
            raise Unreadable(error.message, span) from None

    def _string(self) -> str:
        span = self._span()
        try:
            text, self._at = _DECODER.raw_decode(self._text, self._at)
            return whole_characters(text)
        except json.JSONDecodeError as error:
            raise Unreadable(f"not JSON: {error.msg.lower()}", self._span(error.pos)) from None
        except Unreadable as error:
            raise Unreadable(error.message, span) from None

    def _list(self, span: TextSpan, depth: int) -> ListNode:
        node = ListNode([], span)
        if self._accept("]"):
            return node
        while True:
            node.items.append(self._value(depth + 1))
            if self._accept("]"):
                return node
            self._expect(",", "`,` or `]`")

    def _mapping(self, span: TextSpan, depth: int) -> MapNode:
        node = MapNode({}, {}, span)
        if self._accept("}"):
            return node
        while True:
            self._skip()
            key_span = self._span()
            if not self._text.startswith('"', self._at):
                raise Unreadable("not JSON: expected a key in double quotes", key_span)
            key = self._string()
            self._expect(":", "`:`")
            value = self._value(depth + 1)
            if key in node.entries:
                first = node.key_spans[key]
                self._report.add(f"the key `{key}` is given twice, first on line {first.line}", key_span)
            else:
                node.entries[key], node.key_spans[key] = value, key_span
            if self._accept("}"):
                return node
            self._expect(",", "`,` or `}`")

    def _expect(self, mark: str, wanted: str) -> None:
        if not self._accept(mark):
            raise Unreadable(f"not JSON: expected {wanted}", self._span())


SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
RECORDINGS = (".jsonl", ".ndjson")
"""How the names of files end that hold recorded sessions, a line each; also with `.gz`."""


def read_source(
    source: object,
    report: ProblemReport,
    file: str,
    format: str | None,
    wanted: str = "a policy is a mapping with at least a `name`",
) -> tuple[list[MapNode], ProblemReport]:
    """Read a policy source into the trees of its documents; the returned report has the text's lines. `wanted` says
    what an empty one lacks.

    Raises:
        PolicyError: the source cannot be read at all.
    """
    try:
        if isinstance(source, Mapping):
            roots = [node_of(source)]
            check_size(roots[0])
        elif file.removesuffix(".gz").endswith(RECORDINGS):
            raise Unreadable(
                "recorded sessions, not a policy", TextSpan(1, 1), "`proctor eval --policy FILE` reads them"
            )
        else:
            text = _text(source)
            report = ProblemReport(file, text)
            roots = read_text(text, report, format)
        mappings = [_mapping(root) for root in roots]
    except Unreadable as error:
        report.problems.clear()  # the text as a whole is the one thing to say
        report.add(error.message, error.span, suggestion=wanted if isinstance(error, EmptyFile) else error.suggestion)
        report.raise_if_any()
        raise
    for mapping in mappings:
        set_paths(mapping)
    return mappings, report


def read_text(text: str, report: ProblemReport, format: str | None) -> list[Node]:
    """Read text in a format: `yaml`, `json` or `toml`; with None, JSON if it is JSON, else YAML. Raises Unreadable:
    it is not text of that format, or no such format.
    """
    if len(text) > MAX_TEXT:
        raise Unreadable(f"the file is longer than {MAX_TEXT:,} characters", TextSpan(1, 1), "split it")
    readers: dict[str, Callable[[], list[Node]]] = {
        "json": lambda: [read_json(text, report)],
        "toml": lambda: [read_toml(text)],
        "yaml": lambda: _read_yaml_or_json(text, report),
    }
    if format is not None and format not in readers:
        raise Unreadable(f"the format `{format}` is not known", suggestion="use `yaml`, `json` or `toml`")
    return readers[format or "yaml"]()


def _read_yaml_or_json(text: str, report: ProblemReport) -> list[Node]:
    """Read JSON as JSON, and anything else as YAML: YAML contains JSON except for a few escapes and tabs."""
    begins = text.lstrip()[:1]
    if begins not in ("{", "[", "/"):
        return read_yaml(text, report)
    found = ProblemReport()
    try:
        root = read_json(text, found)
    except CommentInJsonError:
        raise
    except Unreadable as as_json:
        try:
            return read_yaml(text, report)
        except Unreadable as as_yaml:
            raise (as_json if text.lstrip()[1:].lstrip()[:1] in ('"', "{", "}", "") else as_yaml) from None
    for problem in found.problems:
        report.add(problem.message, TextSpan(problem.line, problem.column))
    return [root]


def _text(source: object) -> str:
    if isinstance(source, bytes | bytearray | memoryview):
        source = _decoded(bytes(source))
    if not isinstance(source, str):
        kind = type(source).__name__
        raise Unreadable(f"a policy is text or a mapping, not a value of type `{kind}`", NOWHERE)
    return source.removeprefix("\ufeff")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line_start = data.rfind(b"\n", 0, error.start) + 1
        column = len(data[line_start : error.start].decode("utf-8", "replace")) + 1
        span = TextSpan(data.count(b"\n", 0, error.start) + 1, column)
        raise Unreadable("the text is not UTF-8", span, "save the file as UTF-8") from None


def _mapping(root: Node) -> MapNode:
    if isinstance(root, MapNode):
        return root
    hint = "list several policies under `policies:`" if isinstance(root, ListNode) else ""
    if isinstance(root, Scalar) and str(root.value).endswith(tuple(SUFFIXES)):
        hint = "`load_policies(path)` reads a file"
    if root == Scalar(None, root.span):
        raise EmptyFile(root.span)
    raise Unreadable(f"a policy is a mapping, not {describe(root)}", root.span, hint)


_Place: TypeAlias = tuple[str | int, ...]
_AT_LINE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TOML_TEXT_BLANK = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL)
_WORD = re.compile(r"[^\s,\]}#]+(?: [0-9][^\s,\]}#]*)?")
_OPENING = re.compile(r"[\[{]")


def read_toml(text: str) -> Node:
    """Read a TOML text. Raises Unreadable: not TOML, or nested beyond measure."""
    import tomllib  # few policies are in it, and every command would read it in

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _AT_LINE.search(str(error))
        end = TextSpan(text.count("\n") + 1, len(text) - text.rfind("\n"))
        span = TextSpan(int(match[1]), int(match[2])) if match and match[1] else end
        message = _AT_LINE.sub("", str(error))
        raise Unreadable(f"not TOML: {message[:1].lower()}{message[1:]}", span) from None
    except (RecursionError, ValueError):
        message = "not TOML: nested too deeply, or a number with too many digits"
        raise Unreadable(message, TextSpan(1, 1)) from None
    if not values:
        raise EmptyFile(TextSpan(1, 1))
    _check_values(values, 0, [0])
    places = _Places(text, tomllib.loads)
    places.find()
    return _node(values, (), places)


def _check_values(value: Any, depth: int, count: list[int]) -> None:
    count[0] += 1
    check_count(count[0], TextSpan(1, 1))
    if depth > MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels", TextSpan(1, 1))
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_values(item, depth + 1, count)


def _node(value: Any, place: _Place, places: _Places) -> Node:
    span = places.values.get(place, places.keys.get(place, TextSpan(1, 1) if not place else TextSpan()))
    if isinstance(value, dict):
        entries = {key: _node(item, (*place, key), places) for key, item in value.items()}
        keys = {key: places.keys.get((*place, key), span) for key in value}
        return MapNode(entries, keys, span)
    if isinstance(value, list):
        return ListNode([_node(item, (*place, n), places) for n, item in enumerate(value)], span)
    return Scalar(value, span)


class _Places(_Cursor):
    """Finds the places of keys and values in a valid TOML text; `read` reads one."""

    def __init__(self, text: str, read: Callable[[str], dict[str, Any]]) -> None:
        super().__init__(text)
        self._read = read
        self.keys: dict[_Place, TextSpan] = {}
        self.values: dict[_Place, TextSpan] = {}
        self._lengths: dict[_Place, int] = {}

    def find(self) -> None:
        table: _Place = ()
        while True:
            self._step_over(_GAP)
            if self._at >= len(self._text):
                return
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> _Place:
        """`[table]` or `[[list of tables]]`: the place of the keys that follow."""
        many = self._text.startswith("[[", self._at)
        start = self._span()
        self._at += 2 if many else 1
        place: _Place = ()
        for key, span in self._key():
            place = (*self._last(place), key)
            self.keys.setdefault(place, span)
        self._at += 2 if many else 1
        if not many:
            place = self._last(place)
            self.values.setdefault(place, start)
            return place
        self._lengths[place] = self._lengths.get(place, 0) + 1
        self.values.setdefault(place, start)
        self.values[self._last(place)] = start
        return self._last(place)

    def _last(self, place: _Place) -> _Place:
        """The last table of a list of tables; anything else as it is."""
        return (*place, self._lengths[place] - 1) if place in self._lengths else place

    def _key(self) -> list[tuple[str, TextSpan]]:
        """A dotted key, part by part, with the blanks around it."""
        parts: list[tuple[str, TextSpan]] = []
        while True:
            self._step_over(_TOML_TEXT_BLANK)
            span = self._span()
            bare = self._step_over(_BARE_KEY)
            if bare:
                parts.append((bare, span))
            else:
                quoted = self._step_over(_STRING)
                parts.append((next(iter(self._read(f"{quoted} = 1"))), span))
            self._step_over(_TOML_TEXT_BLANK)
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _pair(self, table: _Place) -> None:
        place = table
        for key, span in self._key():
            place = (*place, key)
            self.keys.setdefault(place, span)
        self._at += 1
        self._value(place)

    def _value(self, place: _Place) -> None:
        self._step_over(_TOML_TEXT_BLANK)
        self.values[place] = self._span()
        if not _OPENING.match(self._text, self._at):
            if not self._step_over(_STRING):
                self._step_over(_WORD)
            return
        closing = "]" if self._text[self._at] == "[" else "}"
        self._at += 1
        position = 0
        while True:
            self._step_over(_GAP)
            if self._text.startswith(closing, self._at):
                self._at += 1
                return
            if self._text.startswith(",", self._at):
                self._at += 1
            elif closing == "]":
                self._value((*place, position))
                position += 1
            else:
                self._pair(place)
