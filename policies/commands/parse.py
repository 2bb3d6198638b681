"""A command line taken apart: every simple command it can run, however deep, before any of it runs."""

from __future__ import annotations

import os.path
from collections.abc import Sequence

import msgspec

from ..errors import UnjudgeableLineError
from .builtins import evaluates
from .cursor import Shell, check_characters, check_depth
from .grammar import Grammar
from .programs.table import nested_in
from .words import Word

DYNAMIC = "dynamic"
"""The name of a command that is known only when it runs."""
REDIRECT = "redirect"
"""The name of a redirection that writes a file."""

_STANDARD_PLACES = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")


class LinePart(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a line does: a simple command, or a file it writes.

    `exact` is false when words of it are worked out by the shell; `argv` then shows them as written, and `unknown`
    says which they are: each may become several words, or none. `reason` says why nobody can see what is dynamic.
    """

    name: str
    command: str
    argv: tuple[str, ...] = ()
    exact: bool = True
    unknown: tuple[int, ...] = ()
    reason: str = ""


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """What a line would run: `parts`, and more that nobody can see, where `dynamic` says why."""

    parts: tuple[LinePart, ...] = ()
    dynamic: str | None = None


def read_commands(line: str, shell: Shell = "bash") -> Commands:
    """What a command line would run, found without running it.

    Args:
        line: the text.
        shell: what reads it: `bash`, or `sh`, which may be dash or bash; where those differ, it is dynamic.
    """
    try:
        parts = parse_line(line, shell)
    except UnjudgeableLineError as error:
        return Commands(dynamic=str(error))
    return Commands(parts=tuple(parts), dynamic=next((part.reason for part in parts if part.name == DYNAMIC), None))


def parse_line(line: str, shell: Shell = "bash") -> list[LinePart]:
    """Every part of a command line, in the order of the text, those of nested lines included.

    Raises:
        UnjudgeableLineError: the line cannot be taken apart with certainty, so it must not run.
    """
    parts: list[LinePart] = []
    try:
        _Lines(parts, shell, depth=0).read(line)
    except RecursionError:
        raise UnjudgeableLineError("the command line is nested too deep") from None
    if not parts:
        raise UnjudgeableLineError("the command line holds no command")
    return parts


class _Lines:
    """Takes what a text does; commands that are given lines have them read one deeper."""

    def __init__(self, parts: list[LinePart], shell: Shell, depth: int) -> None:
        self._parts = parts
        self._shell: Shell = shell
        self._depth = depth

    def read(self, line: str) -> None:
        """Read one command line."""
        check_depth(self._depth)
        check_characters(line)
        Grammar(line, self._shell, self, self._depth).read()

    def mark(self) -> int:
        return len(self._parts)

    def command(self, words: Sequence[Word], source: str, *, at: int) -> None:
        later = self._parts[at:]
        del self._parts[at:]
        self._simple(words, source, direct=True)
        self._parts.extend(later)

    def test(self, words: Sequence[Word], source: str, *, at: int) -> None:
        self._parts.insert(at, _part("test", source, words))

    def write(self, target: Word, source: str) -> None:
        self._parts.append(_part(REDIRECT, source, [target]))

    def dynamic(self, reason: str, source: str) -> None:
        self._parts.append(LinePart(name=DYNAMIC, command=source, exact=False, reason=reason))

    def _simple(self, words: Sequence[Word], source: str, *, direct: bool = False) -> None:
        path = words[0].text
        if not path or path.startswith("=") or not path.isascii():  # zsh looks `=rm` up; file systems fold letters
            self._dynamic_words(words, source, "its name is known only when it runs")
            return
        name = os.path.basename(path) or path
        self._parts.append(_part("test" if path == "[" else name, source, words))
        if "/" in path and os.path.dirname(path) not in _STANDARD_PLACES:
            self._parts.append(_part(path, source, words))
        reason = evaluates(name, words[1:], self._shell, direct=direct)
        if reason is not None:
            self._dynamic_words(words, source, reason)
        for nested in nested_in(name, words[1:], self._shell):
            if nested.unknown is not None:
                self._dynamic_words(words, source, f"what `{name}` runs is known only when it runs: {nested.unknown}")
            elif nested.line is not None:
                _Lines(self._parts, nested.shell, self._depth + 1).read(nested.line)
            else:
                self._simple(nested.words, " ".join(word.source for word in nested.words))

    def _dynamic_words(self, words: Sequence[Word], source: str, reason: str) -> None:
        self._parts.append(msgspec.structs.replace(_part(DYNAMIC, source, words), exact=False, reason=reason))


def _part(name: str, source: str, words: Sequence[Word]) -> LinePart:
    return LinePart(
        name=name,
        command=source,
        argv=tuple(word.shown for word in words),
        exact=all(word.text is not None for word in words),
        unknown=tuple(n for n, word in enumerate(words) if word.text is None),
    )
