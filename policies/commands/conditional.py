"""Bash's `[[ ... ]]`."""

from __future__ import annotations

import re
from collections.abc import Callable

from .scanner import Scanner
from .words import Word, literal

_UNARY = re.compile(r"-[a-hknoprstuwxzGLNOS]")
_BINARY = ("=", "==", "!=", "=~", "-nt", "-ot", "-ef", "<", ">")
_NUMERIC = ("-eq", "-ne", "-lt", "-le", "-gt", "-ge")
_EVALUATING = ("-v", "-R")


def read_conditional(scan: Scanner, dynamic: Callable[[str, str], None]) -> list[Word]:
    """The words of a conditional, from its `[[` to behind its `]]`; `dynamic` is told of what it evaluates."""
    return _Conditional(scan, dynamic).read()


class _Conditional:
    def __init__(self, scan: Scanner, dynamic: Callable[[str, str], None]) -> None:
        self._scan = scan
        self._dynamic = dynamic
        self._words = [literal("[[")]

    def read(self) -> list[Word]:
        self._scan.take("[[")
        self._either()
        if self._word().source != "]]":
            self._scan.fail("`]]` is missing")
        return self._words

    def _either(self) -> None:
        self._term()
        while self._take("&&") or self._take("||"):
            self._term()

    def _term(self) -> None:
        if self._take("("):
            self._either()
            if not self._take(")"):
                self._scan.fail("`)` is missing")
            return
        first = self._word()
        if first.source == "!":
            self._term()
        elif first.source == "]]":
            self._scan.fail("a condition is missing")
        elif first.source in _EVALUATING:
            self._evaluated(self._word())
        elif _UNARY.fullmatch(first.source):
            self._word()
        elif not self._ends():
            self._binary(first)

    def _binary(self, left: Word) -> None:
        operator = self._operator()
        right = self._word()
        if operator in _NUMERIC:
            if not all(re.fullmatch("-?[0-9]+", word.text or "") for word in (left, right)):
                self._evaluated(right)
        elif operator not in _BINARY:
            self._scan.fail("this condition is not understood")

    def _operator(self) -> str:
        self._blanks()
        for operator in "<>":
            if self._scan.peek(2) not in ("<(", ">(") and self._take(operator):
                return operator
        return self._word().source

    def _evaluated(self, word: Word) -> None:
        self._dynamic("the value of a variable is evaluated", word.source)

    def _ends(self) -> bool:
        self._blanks()
        return self._scan.peek(2) in ("&&", "||", "]]") or self._scan.peek() == ")"

    def _blanks(self) -> None:
        self._scan.skip_blanks()

    def _take(self, operator: str) -> bool:
        self._blanks()
        if not self._scan.take(operator):
            return False
        self._words.append(literal(operator))
        return True

    def _word(self) -> Word:
        self._blanks()
        word = self._scan.word()
        self._words.append(word)
        return word
