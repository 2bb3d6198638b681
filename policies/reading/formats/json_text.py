"""JSON text to nodes."""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from ..tree import MAX_DEPTH, ListNode, MapNode, Node, ProblemReport, Scalar, TextSpan, Unreadable
from .scalars import integer, whole_characters

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_DECODER = json.JSONDecoder()
_COMMENTS = ("//", "/*")
_WORDS = (("true", True), ("false", False), ("null", None))


class CommentInJsonError(Unreadable):
    """A comment stands where JSON takes none."""


def read_json(text: str, report: ProblemReport) -> Node:
    """Read a JSON text; duplicate keys go to `report`.

    Raises:
        Unreadable: not JSON, empty, or nested beyond measure.
    """
    return _Reader(text, report).document()


class _Reader:
    """A cursor over the text."""

    def __init__(self, text: str, report: ProblemReport) -> None:
        self._text = text
        self._at = 0
        self._report = report
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def document(self) -> Node:
        self._skip()
        if self._at == len(self._text):
            raise Unreadable("the file is empty", TextSpan(1, 1), "a policy is a mapping with at least a `name`")
        root = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise Unreadable("not JSON: something follows the value", self._span())
        return root

    def _span(self, at: int | None = None) -> TextSpan:
        at = self._at if at is None else at
        line = bisect_right(self._line_starts, at)
        return TextSpan(line, at - self._line_starts[line - 1] + 1)

    def _skip(self) -> None:
        match = _BLANK.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        if self._text.startswith(_COMMENTS, self._at):
            raise CommentInJsonError(
                "not JSON: it has no comments", self._span(), "leave it out, or write YAML with `#`"
            )

    def _take(self, wanted: str) -> bool:
        """Step over a mark, and the blanks before it, if it is there."""
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
        if self._take("{"):
            return self._mapping(span, depth)
        if self._take("["):
            return self._list(span, depth)
        if self._text.startswith('"', self._at):
            return Scalar(self._string(), span)
        return Scalar(self._word(span), span)

    def _word(self, span: TextSpan) -> bool | int | float | None:
        for word, value in _WORDS:
            if self._take(word):
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
        if self._take("]"):
            return node
        while True:
            node.items.append(self._value(depth + 1))
            if self._take("]"):
                return node
            self._expect(",", "`,` or `]`")

    def _mapping(self, span: TextSpan, depth: int) -> MapNode:
        node = MapNode({}, {}, span)
        if self._take("}"):
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
            if self._take("}"):
                return node
            self._expect(",", "`,` or `}`")

    def _expect(self, mark: str, wanted: str) -> None:
        if not self._take(mark):
            raise Unreadable(f"not JSON: expected {wanted}", self._span())
