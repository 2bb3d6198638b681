"""A place in a text, and the steps that lead on from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

from ..errors import UnjudgeableLineError

Shell: TypeAlias = Literal["bash", "sh"]

BLANKS: Final = " \t"
MAX_DEPTH: Final = 20
_ODD_CONTINUATION = re.compile(r"[$&|;<>(){}!=]\\\n")


def check_depth(depth: int) -> None:
    """Refuse what is nested too deep."""
    if depth > MAX_DEPTH:
        raise UnjudgeableLineError(f"the command line is nested more than {MAX_DEPTH} deep")


def check_characters(text: str) -> None:
    """Refuse characters, and backslashes, that shells take differently."""
    if found := _ODD_CONTINUATION.search(text):
        raise UnjudgeableLineError(f"the command line cannot be parsed: a line ends with `{found[0][:2]}`")
    for character in text:
        if character not in " \t\n" and (
            character.isspace() or not (character.isprintable() or ord(character) > 0x2FF)
        ):
            raise UnjudgeableLineError(f"the command line holds the character {character!r}; write it another way")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnjudgeableLineError("the command line is not valid Unicode") from None


@dataclass(slots=True, eq=False)
class Cursor:
    """Goes over one text from left to right.

    Args:
        text: the text.
        shell: which shell reads it.
    """

    text: str
    shell: Shell
    pos: int = 0

    def peek(self, length: int = 1) -> str:
        """The next characters; fewer at the end."""
        return self.text[self.pos : self.pos + length]

    def take(self, expected: str) -> bool:
        """Go past `expected`, if it comes next."""
        if not self.text.startswith(expected, self.pos):
            return False
        self.pos += len(expected)
        return True

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Go past what matches here, if anything does."""
        found = pattern.match(self.text, self.pos)
        if found is not None:
            self.pos = found.end()
        return found

    def fail(self, why: str = "") -> NoReturn:
        """Refuse the line."""
        here = self.text[self.pos : self.pos + 30].partition("\n")[0]
        place = f"at `{here}`" if here else "at the end of a line"
        raise UnjudgeableLineError(f"the command line cannot be parsed: {place}{why and f': {why}'}")

    def only_bash(self, what: str) -> None:
        """Refuse what dash takes for something else, if dash may be what reads."""
        if self.shell != "bash":
            self.fail(f"shells differ in `{what}`")

    def skip_blanks(self) -> None:
        """Go past blanks, lines that a backslash continues, and a comment."""
        while self.peek() and (self.peek() in BLANKS or self.peek(2) == "\\\n"):
            if self.peek() == "\\" and (self.pos == 0 or self.text[self.pos - 1] not in BLANKS):
                self.fail("put a blank before the `\\` at the end of a line")
            self.pos += 2 if self.peek() == "\\" else 1
        if self.peek() == "#":
            end = self.text.find("\n", self.pos)
            self.pos = len(self.text) if end < 0 else end
