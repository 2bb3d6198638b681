"""What takes in the parts of a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .words import Word


class Sink(Protocol):
    """Takes in what a line does, part by part."""

    def mark(self) -> int:
        """How many parts it has taken in."""

    def command(self, words: Sequence[Word], source: str, *, at: int) -> None:
        """A simple command; it goes before every part taken in since `at`."""

    def test(self, words: Sequence[Word], source: str, *, at: int) -> None:
        """A conditional, in the same place."""

    def write(self, target: Word, source: str) -> None:
        """A redirection that writes."""

    def dynamic(self, reason: str, source: str) -> None:
        """A place where what runs cannot be seen."""
