"""Simple commands: assignments, words, redirections."""

from __future__ import annotations

import re

from .redirections import Redirections
from .scanner import Scanner
from .sink import Sink
from .variables import steers, steers_programs
from .words import Word, literal, split

RESERVED = split("if then else elif fi case in esac for select while until do done function { } [[ ]] ! time coproc")
_RESERVED_WORD = re.compile(r"(?:[a-z]+|!|\{|\}|\[\[|\]\])(?=[ \t\n;&|()<>]|\Z)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[0-9]+\])?(\+?)=")
_ARRAY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=\(")
_SUBSCRIPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_ELEMENT = re.compile(r"\[[\w$]+\]=")
_DECLARING = ("declare", "typeset", "local", "readonly", "export")


def reserved(scan: Scanner) -> str | None:
    """The reserved word that stands here, unquoted and alone."""
    found = _RESERVED_WORD.match(scan.text, scan.pos)
    return found[0] if found and found[0] in RESERVED else None


class SimpleCommands:
    """Reads simple commands.

    Args:
        scan: the text.
        sink: told of them.
        redirections: reads those among their words.
    """

    def __init__(self, scan: Scanner, sink: Sink, redirections: Redirections) -> None:
        self._scan = scan
        self._sink = sink
        self._redirections = redirections

    def read(self, prefix: str | None = None) -> None:
        """The command here; `prefix` is a reserved word that stands before it."""
        start, at = self._scan.pos, self._sink.mark()
        words: list[Word] = []
        assigned: list[tuple[str, str | None]] = []
        if prefix is not None:
            self._scan.take(prefix)
            self._scan.skip_blanks()
            words.append(literal(prefix))
        began = False
        while self._scan.peek() not in ("", "\n", ";", "&", "|", ")") or self._scan.peek(2) == "&>":
            began = True
            if self._redirections.take() or (not words and self._assignment(assigned)):
                continue
            if self._scan.peek() == "(":
                self._scan.fail()
            if len(words) < (4 if prefix else 1) and (word := reserved(self._scan)) is not None:
                self._scan.fail(f"`{word}` is where a command is expected")
            if words and words[0].text in _DECLARING and self._declared():
                words.append(self._array_word())
                continue
            words.append(self._redirections.word())
            self._scan.skip_blanks()
        if not began and prefix is None:
            self._scan.fail()
        if words:
            for name, value in assigned:
                if steers_programs(name, value) and not steers(name, value):
                    self._sink.dynamic(f"`{name}` is set", self._scan.text[start : self._scan.pos].rstrip())
            self._sink.command(words, self._scan.text[start : self._scan.pos].rstrip(), at=at)

    def _declared(self) -> bool:
        """Whether an array is declared here."""
        if _SUBSCRIPTED.match(self._scan.text, self._scan.pos):
            self._scan.fail("this subscript is not understood")
        return _ARRAY.match(self._scan.text, self._scan.pos) is not None

    def _array_word(self) -> Word:
        start = self._scan.pos
        self._assignment([])
        source = self._scan.text[start : self._scan.pos].rstrip()
        return Word(source, source, is_array=True)

    def _assignment(self, assigned: list[tuple[str, str | None]]) -> bool:
        """Go past an assignment, if one stands here; what it sets is appended."""
        start = self._scan.pos
        array = self._scan.match(_ARRAY)
        found = array or _ASSIGNMENT.match(self._scan.text, start)
        if found is None:
            if _SUBSCRIPTED.match(self._scan.text, start):
                self._scan.fail("this subscript is not understood")
            return False
        if array is not None or found[2] or "[" in found[0]:
            self._scan.only_bash(found[0])
        value = None
        if array is not None:
            self._array_elements()
        else:
            value = self._value(found)
        assigned.append((found[1], value))
        if steers(found[1], value):
            self._sink.dynamic(f"`{found[1]}` is set", self._scan.text[start : self._scan.pos])
        self._scan.skip_blanks()
        return True

    def _value(self, found: re.Match[str]) -> str | None:
        word = self._redirections.word()
        if word.text is None or found[2] or "[" in found[0]:
            return None
        return word.text.partition("=")[2]

    def _array_elements(self) -> None:
        if self._redirections.pending:
            self._scan.fail("a here-document before an array")
        self._array_blanks()
        while not self._scan.take(")"):
            if self._scan.peek() == "[":
                self._subscripted_element()
            self._redirections.word()
            self._array_blanks()
        if self._scan.peek() not in ("", *" \t\n;&|)<>"):
            self._scan.fail("put a blank after an array")

    def _subscripted_element(self) -> None:
        found = _ELEMENT.match(self._scan.text, self._scan.pos)
        if found is None:
            self._scan.fail("this subscript is not understood")
        self._sink.dynamic("the value of a variable is evaluated", found[0])

    def _array_blanks(self) -> None:
        self._scan.skip_blanks()
        while self._scan.take("\n"):
            self._scan.skip_blanks()
