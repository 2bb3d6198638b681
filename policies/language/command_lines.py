"""`runs`: which commands a command line would run, and whether a policy names them.

Where a condition permits, every command must be named by its first words, as they stand. Where it refuses, one is
enough: options before a later word are passed over, and what nobody can tell before the line runs is a match.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import UnjudgeableLineError
from ..values.equality import texts_in
from .facts import Facts
from .operators import Reading

if TYPE_CHECKING:
    from ..commands.sink import LinePart

Words: TypeAlias = Sequence[str | None]
"""The words of a command; None where only the shell knows one."""

_UNKNOWN: tuple[str | None, ...] = (None,)
_REDEFINES = {"git": ("-c", "--config-env", "--exec-path")}
"""Options that give a command's own words another meaning."""


def would_run(named: str | Sequence[str], reading: Reading) -> Callable[[Any, Facts], bool]:
    """The test of one value: of a list nobody knows whether it is one command or several lines."""
    commands = NamedCommands(named)

    def holds(value: Any, facts: Facts) -> bool:
        if reading.permits:
            return type(value) is str and commands.admit(value)
        lines = texts_in(value) if reading.loose or type(value) is str else []
        if isinstance(value, list | tuple) and all(type(item) is str for item in value):
            lines = [*lines, shlex.join(value)]
        return not lines or any(map(commands.reach, lines))

    return holds


class NamedCommands:
    """The commands that a `runs` names, each by its first words."""

    __slots__ = ("_named",)

    def __init__(self, named: str | Sequence[str]) -> None:
        self._named = [text.split() for text in ([named] if isinstance(named, str) else named)]

    def admit(self, line: str) -> bool:
        """Whether every command that a line would run is known and named."""
        found = commands_of(line)
        return bool(found) and all(self._names(given) for given in found)

    def _names(self, given: Words) -> bool:
        return any(list(given[: len(words)]) == words for words in self._named)

    def reach(self, line: str) -> bool:
        """Whether a line would run a command that is named, or nobody can tell."""
        return any(_may_begin(given, words) for given in commands_of(line) for words in self._named)


@lru_cache(maxsize=256)
def commands_of(line: str) -> tuple[Words, ...]:
    """The words of each command that a line would run; `redirect` stands for a file that it writes."""
    from ..commands.parse import parse_line
    from ..commands.sink import DYNAMIC

    if not line.strip():
        return ()
    try:
        parts = parse_line(line)
    except UnjudgeableLineError:
        return (_UNKNOWN,)
    by_path = {(part.command, part.argv) for part in parts if "/" in part.name}
    return tuple(
        _UNKNOWN if part.name == DYNAMIC else _words(part)
        for part in parts
        if part.name == DYNAMIC or "/" in part.name or (part.command, part.argv) not in by_path
    )


def _words(part: LinePart) -> Words:
    behind = (None if n in part.unknown else word for n, word in enumerate(part.argv[1:], start=1))
    return (part.name, *behind)


def _may_begin(given: Words, words: Sequence[str]) -> bool:
    name = given[0]
    if name is None:
        return True
    named = {name.casefold(), name.rpartition("/")[2].casefold()}  # some file systems take `RM` for `rm`
    return words[0].casefold() in named and _may_follow(given[1:], words[1:], _REDEFINES.get(words[0], ()))


def _may_follow(given: Words, wanted: Sequence[str], redefining: tuple[str, ...]) -> bool:
    """Whether words follow in their order; options, and one word behind an option, may stand between."""
    left = list(wanted)
    may_be_argument = False
    for word in given:
        if not left:
            return True
        if word is None or (redefining and word.startswith(redefining)):
            return True
        if word == left[0]:
            left.pop(0)
            may_be_argument = False
        elif word.startswith("-"):
            may_be_argument = True
        elif may_be_argument:
            may_be_argument = False
        else:
            return False
    return not left
