"""TOML text to nodes: `tomllib` gives the values, a second look at the text their places."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import Any, TypeAlias

from ..tree import MAX_DEPTH, ListNode, MapNode, Node, Scalar, TextSpan, Unreadable

_Place: TypeAlias = tuple[str | int, ...]
_AT_LINE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL)
_WORD = re.compile(r"[^\s,\]}#]+(?: [0-9][^\s,\]}#]*)?")
_OPENING = re.compile(r"[\[{]")


def read_toml(text: str) -> Node:
    """Read a TOML text.

    Raises:
        Unreadable: not TOML, or nested beyond measure.
    """
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
        raise Unreadable("the file is empty", TextSpan(1, 1), "a policy is a mapping with at least a `name`")
    _check_depth(values, 0)
    places = _Places(text)
    places.find()
    return _node(values, (), places)


def _check_depth(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels", TextSpan(1, 1))
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, depth + 1)


def _node(value: Any, place: _Place, places: _Places) -> Node:
    span = places.values.get(place, places.keys.get(place, TextSpan(1, 1) if not place else TextSpan()))
    if isinstance(value, dict):
        entries = {key: _node(item, (*place, key), places) for key, item in value.items()}
        keys = {key: places.keys.get((*place, key), span) for key in value}
        return MapNode(entries, keys, span)
    if isinstance(value, list):
        return ListNode([_node(item, (*place, n), places) for n, item in enumerate(value)], span)
    return Scalar(value, span)


class _Places:
    """Where the keys and values of a valid TOML text stand."""

    def __init__(self, text: str) -> None:
        self.keys: dict[_Place, TextSpan] = {}
        self.values: dict[_Place, TextSpan] = {}
        self._text = text
        self._at = 0
        self._lengths: dict[_Place, int] = {}
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def find(self) -> None:
        """Walk the text from its start to its end."""
        table: _Place = ()
        while True:
            self._skip(_GAP)
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
        """The last table of a list of tables; any other place is itself."""
        return (*place, self._lengths[place] - 1) if place in self._lengths else place

    def _key(self) -> list[tuple[str, TextSpan]]:
        """A dotted key, part by part, with the blanks around it."""
        parts: list[tuple[str, TextSpan]] = []
        while True:
            self._skip(_BLANK)
            span = self._span()
            bare = self._skip(_BARE_KEY)
            if bare:
                parts.append((bare, span))
            else:
                quoted = self._skip(_STRING)
                parts.append((next(iter(tomllib.loads(f"{quoted} = 1"))), span))
            self._skip(_BLANK)
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
        self._skip(_BLANK)
        self.values[place] = self._span()
        if not _OPENING.match(self._text, self._at):
            if not self._skip(_STRING):
                self._skip(_WORD)
            return
        closing = "]" if self._text[self._at] == "[" else "}"
        self._at += 1
        position = 0
        while True:
            self._skip(_GAP)
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

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _span(self) -> TextSpan:
        line = bisect_right(self._line_starts, self._at)
        return TextSpan(line, self._at - self._line_starts[line - 1] + 1)
