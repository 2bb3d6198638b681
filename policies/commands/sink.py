"""What takes in the parts of a line."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from .builtins import evaluates
from .cursor import Shell
from .programs.table import nested_in
from .words import Word

DYNAMIC = "dynamic"
"""The name of a command that is known only when it runs."""
REDIRECT = "redirect"
"""The name of a redirection."""

_STANDARD_PLACES = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")


class LinePart(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a line does: a simple command, or a redirection, whose `direction` says what becomes of the file.

    `exact` is false when words of it are worked out by the shell; `argv` then shows them as written, and `unknown`
    says which they are: each may become several words, or none. `reason` says why nobody can see what is dynamic;
    `among_words` that what it runs, if anything, is among its words.
    """

    name: str
    command: str
    argv: tuple[str, ...] = ()
    exact: bool = True
    unknown: tuple[int, ...] = ()
    reason: str = ""
    direction: Literal["", "read", "write"] = ""
    among_words: bool = False


class Sink:
    """Takes in what a line does, part by part.

    Args:
        parts: grows by them.
        shell: what runs the line.
        read: has a line that a command is given read by that shell.
    """

    def __init__(self, parts: list[LinePart], shell: Shell, read: Callable[[str, Shell], None]) -> None:
        self._parts = parts
        self._shell: Shell = shell
        self._read = read

    def mark(self) -> int:
        """How many parts it has taken in."""
        return len(self._parts)

    def command(self, words: Sequence[Word], source: str, *, at: int) -> None:
        """A simple command; it goes before every part taken in since `at`."""
        later = self._parts[at:]
        del self._parts[at:]
        self._simple(words, source, direct=True)
        self._parts.extend(later)

    def test(self, words: Sequence[Word], source: str, *, at: int) -> None:
        """A conditional, in the same place."""
        self._parts.insert(at, _part("test", source, words))

    def redirect(self, target: Word, source: str, direction: Literal["read", "write"]) -> None:
        """A redirection of a file, or of a descriptor (`&3`)."""
        self._parts.append(msgspec.structs.replace(_part(REDIRECT, source, [target]), direction=direction))

    def dynamic(self, reason: str, source: str) -> None:
        """A place where what runs cannot be seen."""
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
                reason = f"what `{name}` runs is known only when it runs: {nested.unknown}"
                self._dynamic_words(words, source, reason, among_words=nested.among_words)
            elif nested.line is not None:
                self._read(nested.line, nested.shell)
            else:
                self._simple(nested.words, " ".join(word.source for word in nested.words))

    def _dynamic_words(self, words: Sequence[Word], source: str, reason: str, *, among_words: bool = False) -> None:
        part = _part(DYNAMIC, source, words)
        self._parts.append(msgspec.structs.replace(part, exact=False, reason=reason, among_words=among_words))


def _part(name: str, source: str, words: Sequence[Word]) -> LinePart:
    return LinePart(
        name=name,
        command=source,
        argv=tuple(word.shown for word in words),
        exact=all(word.text is not None for word in words),
        unknown=tuple(n for n, word in enumerate(words) if word.text is None),
    )
