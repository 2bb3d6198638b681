"""The comments of a YAML text, each kept with the line it speaks of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import yaml


class _Comment(NamedTuple):
    line: int
    text: str
    alone: bool


class Comments:
    """Hands out the comments of a text, each once.

    A comment on a line of its own speaks of the next line that is still written, one at the end of a line
    of that line.
    """

    def __init__(self, text: str, lines: Iterable[int]) -> None:
        numbers = sorted(set(lines))
        found = _comments(text)
        first = numbers[0] if numbers else 0
        self.heading = [c.text for c in found if c.line < first]
        self._alone: dict[int, list[str]] = {}
        self._beside: dict[int, list[str]] = {}
        self._rest: list[str] = []
        for comment in found[len(self.heading) :]:
            line = next((line for line in numbers if line >= comment.line), None)
            if line is None:
                self._rest.append(comment.text)
            elif line == comment.line and not comment.alone:
                self._beside.setdefault(line, []).append(comment.text)
            else:
                self._alone.setdefault(line, []).append(comment.text)

    def above(self, lines: Iterable[int]) -> list[str]:
        """The comments to write above what stood on these lines; the first line's own end is not one."""
        first, *others = sorted(set(lines)) or [0]
        found = self._alone.pop(first, [])
        for line in others:
            found += self._alone.pop(line, []) + self._beside.pop(line, [])
        return found

    def beside(self, line: int) -> str:
        """The comment to write at the end of a line, with the blanks before it."""
        return "".join(f"  {text}" for text in self._beside.pop(line, []))

    def left(self) -> list[str]:
        """What nobody asked for."""
        waiting = [*self._alone.values(), *self._beside.values()]
        return [text for texts in waiting for text in texts] + self._rest


def _comments(text: str) -> list[_Comment]:
    """The comments between the tokens of a YAML text."""
    found = []
    at = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        start, end = token.start_mark.index, token.end_mark.index
        if start > at:
            found += _comments_in(text, at, start)
        at = max(at, end)
    return found + _comments_in(text, at, len(text))


def _comments_in(text: str, start: int, end: int) -> list[_Comment]:
    found = []
    at = start
    for part in text[start:end].splitlines(keepends=True):
        mark = part.find("#")
        if mark >= 0:
            position = at + mark
            before = text[text.rfind("\n", 0, position) + 1 : position]
            line = text.count("\n", 0, position) + 1
            found.append(_Comment(line, part[mark:].rstrip(), not before.strip()))
        at += len(part)
    return found
