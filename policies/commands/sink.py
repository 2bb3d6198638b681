"""Who is told of what a line does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .words import Word


class Sink(Protocol):
    """Told of what a line does."""

    def mark(self) -> int:
        """How much has been told."""

    def command(self, words: Sequence[Word], source: str, *, at: int) -> None:
        """A simple command; it comes before all that was told since `at`."""

    def test(self, words: Sequence[Word], source: str, *, at: int) -> None:
        """A conditional, in the same place."""

    def write(self, target: Word, source: str) -> None:
        """A redirection that writes."""

    def dynamic(self, reason: str, source: str) -> None:
        """A place where what runs cannot be seen."""
