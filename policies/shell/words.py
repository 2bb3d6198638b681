"""A word of a command line: its text, where that is known before the line runs, or else what it can become."""

import re
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

import msgspec

from ..errors import UnjudgeableLineError

NAME = "[A-Za-z_][A-Za-z0-9_]*"
"""The name of a variable or a function, as a regular expression."""

DYNAMIC = "dynamic"
"""The name of a command that is known only when it runs; a condition that allows may name it: `dynamic make`."""

ANYTHING = "(?s:.*)"
NUMBER = "[0-9]*"
"""What `$?`, `$#`, `$$` and `$!` become."""
INTEGER = "-?[0-9]+"
HASH = "[0-9A-Za-z]*"
TIME = "([0-9][0-9._-]*)?"
PATH = "([/~](?s:.*))?"
HOME = r"(/\S*)?"
_FIRST = {**dict.fromkeys((PATH, HOME), "/"), **dict.fromkeys((NUMBER, HASH, TIME), "0")}
_STANDING = {**dict.fromkeys((NUMBER, HASH, TIME), ("0", "")), INTEGER: ("0", "-1")}
"""Texts that stand for all others of their shape, in which nothing is that a shell expands or splits at."""
_LETTERS = re.compile(r"-\w*")
"""Options, of which a letter of a hash would be one more."""
_MOST_SAMPLES = 16


class Word(msgspec.Struct, frozen=True):
    """A word as written, and what is known of its expansion.

    Args:
        source: the word as written.
        text: what the program gets; None if the shell expands it.
        shape: a regular expression for each of the words it becomes.
        start: the known start of each of them, if it is not empty.
        end: the known end of the last.
        single: whether it becomes exactly one word.
        is_array: whether it gives an array its elements: `x=(a b)`.
        samples: texts that stand for all that it becomes, where no more than numbers, hashes and times are unknown.
    """

    source: str
    text: str | None
    shape: str = ANYTHING
    start: str = ""
    end: str = ""
    single: bool = True
    is_array: bool = False
    samples: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """What the program gets, or texts that stand for it; none if it is not known."""
        return self.samples if self.text is None else (self.text,)

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
        if self.texts:
            return any(text.startswith("-") for text in self.texts)
        return self.start[:1] in ("", "-")


HARMLESS_TARGETS = ("-", "/dev/null", "/dev/stdout", "/dev/stderr")
"""Targets whose writing changes no file."""

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
        self._text: str | None = ""
        self._shapes: list[str] = []
        self._starts: list[str] = []
        self._end = ""
        self._samples: tuple[str, ...] = ()
        self._single = True
        self._splits = False
        self._may_be_empty = True
        self._is_word = False
        self._may_vanish = False
        self._is_open = False

    @property
    def is_number(self) -> bool:
        """Whether no piece of it is known, and each becomes a number."""
        return all(shape in (NUMBER, INTEGER) for shape in self._shapes)

    def add(self, text: str) -> None:
        """A piece whose text is known."""
        self._is_word, self._may_vanish = True, False
        if self._text is not None:
            self._text += text
            return
        if self._may_be_empty and text:
            self._starts.append(text)
            self._may_be_empty = False
        self._end += text
        self._shapes.append(ANYTHING if self._is_open else re.escape(text))
        self._samples = () if self._is_open else tuple(sample + text for sample in self._samples)

    def add_unknown(
        self, shape: str = ANYTHING, *, single: bool = True, splits: bool = False, opens: bool = False
    ) -> None:
        """A piece that the shell expands; with `splits`, blanks in it end the word, and one that `opens` may give the
        text behind it another meaning.
        """
        if self._text is not None:
            self._begin(self._text)
        if self._may_be_empty:
            self._starts.append(_FIRST.get(shape, ""))
            self._may_be_empty = shape != INTEGER
        if shape not in (ANYTHING, PATH) and not single:
            self._may_vanish = self._may_vanish or not self._is_word
        else:
            self._single = self._single and single and not splits
        self._is_word = True
        self._end = ""
        self._splits = self._splits or splits
        self._is_open = self._is_open or opens
        self._shapes.append(shape)
        samples = [sample + text for sample in self._samples for text in _STANDING.get(shape, ())]
        is_understood = shape != HASH or not any(map(_LETTERS.fullmatch, self._samples))
        self._samples = tuple(samples) if is_understood and len(samples) <= _MOST_SAMPLES and not opens else ()

    def _begin(self, text: str) -> None:
        """The text before the first piece that is not known."""
        self._text, self._samples = None, (text,)
        if text:
            self._shapes.append(re.escape(text))
            self._starts.append(text)
            self._may_be_empty = False

    def build(self, source: str) -> Word:
        if self._text is not None:
            return Word(source, self._text, re.escape(self._text), self._text)
        if self._splits:
            return Word(source, None, single=False)
        start = self._starts[0] if len({start[:1] for start in self._starts}) == 1 else ""
        single = self._single and not self._may_vanish
        end = "" if self._is_open else self._end
        return Word(source, None, "".join(self._shapes), start, end, single, samples=self._samples)


Shell: TypeAlias = Literal["bash", "sh"]
BLANKS: Final = " \t"
MAX_DEPTH: Final = 20
_ODD_CONTINUATION = re.compile(r"[$&|;<>(){}!=]\\\n")


def check_depth(depth: int) -> None:
    """Reject a line that is nested too deep."""
    if depth > MAX_DEPTH:
        raise UnjudgeableLineError(f"the command line is nested more than {MAX_DEPTH} deep")


def check_characters(text: str) -> None:
    """Reject characters, and backslashes, that shells read differently."""
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
    """Goes over one text from left to right, as a shell reads it."""

    text: str
    shell: Shell
    pos: int = 0

    def peek(self, length: int = 1) -> str:
        """The next characters; fewer at the end."""
        return self.text[self.pos : self.pos + length]

    def accept(self, expected: str) -> bool:
        """Step over `expected`, if it comes next."""
        if not self.text.startswith(expected, self.pos):
            return False
        self.pos += len(expected)
        return True

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Step over a match of the pattern here, if there is one."""
        found = pattern.match(self.text, self.pos)
        if found is not None:
            self.pos = found.end()
        return found

    def fail(self, why: str = "") -> NoReturn:
        here = self.text[self.pos : self.pos + 30].partition("\n")[0]
        place = f"at `{here}`" if here else "at the end of a line"
        raise UnjudgeableLineError(f"the command line cannot be parsed: {place}{why and f': {why}'}")

    def only_bash(self, what: str) -> None:
        """Reject syntax that dash reads differently, if the shell may be dash."""
        if self.shell != "bash":
            self.fail(f"shells differ in `{what}`")

    def skip_blanks(self) -> None:
        """Step over blanks, line continuations, and a comment."""
        while self.peek() and (self.peek() in BLANKS or self.peek(2) == "\\\n"):
            if self.peek() == "\\" and (self.pos == 0 or self.text[self.pos - 1] not in BLANKS):
                self.fail("put a blank before the `\\` at the end of a line")
            self.pos += 2 if self.peek() == "\\" else 1
        if self.peek() == "#":
            end = self.text.find("\n", self.pos)
            self.pos = len(self.text) if end < 0 else end
