r"""Regular expressions in linear time: the common ground of Python's `re` and RE2, run by RE2.

Flags are inline (`(?is)`); look-around, back-references and `\B`, and a quantity without its least (`{,2}`), are
errors at load. `\d`, `\w`, `\s` and `\b` are ASCII, `\s` has no vertical tab, `$` without `(?m)` is the end of the
text.

Whether a pattern occurs is found in linear time. Listing every occurrence searches once for each, and some patterns
look far beyond an occurrence for one that they would rather have (`x.*?y|x` where no `y` comes). A search that sees
all that is left spends its length of `WORK`; what tools returned is searched `VIEW` bytes ahead first.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import re2

from .model_base import Issue, Where

VIEW = 16_384
"""How many bytes ahead an occurrence is looked for first; of one that ends beyond, a shorter may be taken."""
WORK = 250_000_000
"""The most bytes that one listing of occurrences may look at, about a second; a text of 20,000 takes fewer."""

MOST_STEPS = 400_000
"""So many steps the patterns of policies that are read together may have; making them takes less than a second."""

_steps_left: ContextVar[list[int] | None] = ContextVar("_steps_left", default=None)


@contextmanager
def read_together() -> Iterator[None]:
    """Within it, the patterns that are checked may have `MOST_STEPS` together."""
    token = _steps_left.set([MOST_STEPS])
    try:
        yield
    finally:
        _steps_left.reset(token)


_BETWEEN = re.compile(r"(?<!\\)(?:\\\\)*\\B")
"""`\\B`, which RE2 finds inside a character of several bytes and Python's `re` does not."""

_ESCAPED_BY_THE_FILE = {"\b": "\\b", "\u2029": "\\P"}
"""Characters that YAML and JSON read in double quotes where a pattern was meant to have the escape."""

_PLAIN = re.compile(r"(\^?)([\w \t/:@%=,;<>!\"'&~#-]+)", re.ASCII)
"""A pattern that is a text, anywhere or at the start: Python finds that in a tenth of the time."""

_OF_JAVASCRIPT = re.compile(r"/(\^.*|.*(?<!\\)\$|.+(?=/[gmsuy]*i))/([gimsuy]*)", re.DOTALL)
"""`/^rm/`, `/rm/i`: another language's way to write a pattern; `/etc/` may be meant as it is."""

_AT_MOST = re.compile(r"(?<!\\)(?:\\\\)*(\{,\d*\})")
"""`{,2}`, which is a quantity to Python's `re` and a text to RE2."""


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


_SHOWN = 200
"""So many characters of a pattern are shown."""


def problems(pattern: str, where: Where = ()) -> Iterator[Issue]:
    """Why a pattern cannot be used, if it cannot."""
    bad = f"bad regular expression `{_shown(pattern)}`"
    for character, meant in _ESCAPED_BY_THE_FILE.items():
        if character in pattern:
            yield where, f"{bad}: double quotes made one character of `{meant}`; use single quotes, or `\\{meant}`"
            return
    if not pattern:
        yield where, "an empty regular expression is found in every text; leave it out, or write what to search for"
        return
    if (own := of_javascript(pattern)) is not None:
        yield where, f"{bad}: no `/` stand around it; write `{_shown(own)}`"
        return
    if pattern.endswith("\n"):
        yield where, f"{bad}: it ends with a new line; write `|-` where `|` is, or `\\n` if that is meant"
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        yield where, f"{bad}: {_shown(str(error))}"
        return
    if _BETWEEN.search(pattern):
        yield (where, f"{bad}: `\\B` does not mean the same everywhere; say what may stand there")
        return
    if written := _AT_MOST.search(pattern):
        least = f"`{{0{written[1][1:]}` or `\\{written[1]}`"
        yield where, f"{bad}: `{written[1]}` does not mean the same everywhere; write {least}"
        return
    left = _steps_left.get()
    if left == []:
        return  # it is said already
    if left and left[0] < 0:
        left.clear()
        yield where, f"{bad}: up to here the regular expressions are too large together; repeat less"
        return
    try:
        compiled = _compiled(pattern)
        if left:
            left[0] -= compiled.programsize
    except (re2.error, UnicodeEncodeError) as error:
        yield where, f"{bad}: {_shown(words_of(error))} (no look-around, no back-references)"


def words_of(error: Exception) -> str:
    """Why RE2 does not take a pattern."""
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def of_javascript(pattern: str) -> str | None:
    """A pattern between slashes as it is written here; None for any other."""
    written = _OF_JAVASCRIPT.fullmatch(pattern)
    if written is None:
        return None
    flags = "".join(flag for flag in "ims" if flag in written[2])
    return f"(?{flags}){written[1]}" if flags else written[1]


class Regex:
    """A pattern that is searched; anchors are the author's."""

    __slots__ = ("_search", "found_in", "pattern")

    found_in: Callable[[str], bool]
    """Whether the pattern occurs in a text."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._search = search = _compiled(pattern).search
        if plain := _PLAIN.fullmatch(pattern):
            start, sought = plain.groups()
            self.found_in = (lambda text: text.startswith(sought)) if start else (lambda text: sought in text)
        else:
            self.found_in = lambda text: search(_encoded(text)) is not None

    def values(self, texts: Iterable[str], view: int = 0) -> Iterator[str]:
        """The pattern's result: its groups, or the whole match if it has none; every occurrence in each text.

        `view` is how many bytes ahead each is looked for first. Raises ValueError where it is too much work.
        """
        for match in self._occurrences(texts, view):
            for value in match.groups() or (match.group(),):
                if value is not None:
                    yield value.decode(errors="replace")

    def _occurrences(self, texts: Iterable[str], view: int) -> Iterator[Any]:
        """Each match in the texts, from left to right; searched for `view` bytes ahead first. Raises ValueError."""
        left = WORK
        for text in map(_encoded, texts):
            at = 0
            while at <= len(text):
                match = self._search(text, at, at + view) if view else None  # whose last character may be cut in two
                if match is None or match.end() + 3 >= at + view:  # none found, or one that may go on
                    if left < 0:
                        size = f"{len(text):,} bytes of text"
                        raise ValueError(f"`{self.pattern}` occurs too often in {size} to be listed")
                    left -= len(text) - at
                    match = self._search(text, at)
                if match is None:
                    break
                yield match
                at = match.end() if match.end() > at else _after(text, at)


def _encoded(text: str) -> bytes:
    """In bytes, as places in a text would be counted in characters, from its start each time."""
    return text.encode(errors="replace")  # half a character has no UTF-8: it is a question mark


def _after(text: bytes, at: int) -> int:
    """Where the next character begins."""
    at += 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at
