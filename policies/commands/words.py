"""A word of a command line: its text, where that is known before the line runs, or else what it can become."""

from __future__ import annotations

import re

import msgspec

ANYTHING = "(?s:.*)"
NUMBER = "[0-9]*"
"""What `$?`, `$#`, `$$` and `$!` become."""


class Word(msgspec.Struct, frozen=True):
    """A word as written, and what is known of it.

    Args:
        source: what is written.
        text: what the program gets; None where the shell works it out.
        shape: a regular expression for each of the words it becomes.
        start: what each of them starts with, as far as that is known.
        single: whether it becomes exactly one word.
        is_array: whether it gives an array its elements: `x=(a b)`.
    """

    source: str
    text: str | None
    shape: str = ANYTHING
    start: str = ""
    single: bool = True
    is_array: bool = False

    @property
    def shown(self) -> str:
        """The text, or else what is written."""
        return self.source if self.text is None else self.text

    def could_be(self, *texts: str) -> bool:
        """Whether one of the words it becomes can be one of these."""
        if self.text is not None:
            return self.text in texts
        return any(re.fullmatch(self.shape, text) for text in texts)

    def could_be_option(self) -> bool:
        """Whether one of the words it becomes can start with a dash."""
        start = self.start if self.text is None else self.text or "."
        return start[:1] in ("", "-")


UNSEEN = Word("...", None, single=False)
"""The words that a program adds to a command by itself."""


def literal(text: str) -> Word:
    """A word whose text is known."""
    return Word(text, text, re.escape(text), text)


def split(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset(text.split())


class WordBuilder:
    """Puts a word together, piece by piece."""

    def __init__(self) -> None:
        self._shapes: list[str] = []
        self._texts: list[str] = []
        self._start: str | None = None
        self._exact = True
        self._single = True
        self._splits = False

    def add(self, text: str) -> None:
        """A piece whose text is known."""
        self._texts.append(text)
        self._shapes.append(re.escape(text))

    def add_unknown(self, shape: str = ANYTHING, *, single: bool = True, splits: bool = False) -> None:
        """A piece that the shell works out; `splits` when blanks in it end the word."""
        if self._exact:
            self._start = "".join(self._texts) or ("0" if shape == NUMBER else "")
        self._exact = False
        self._single = self._single and single and not splits
        self._splits = self._splits or splits
        self._shapes.append(shape)

    def build(self, source: str) -> Word:
        """The word."""
        if self._exact:
            return Word(source, text := "".join(self._texts), re.escape(text), text)
        if self._splits:
            return Word(source, None, single=False)
        return Word(source, None, "".join(self._shapes), self._start or "", self._single)
