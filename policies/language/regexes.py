r"""Regular expressions in linear time: the common ground of Python's `re` and RE2, run by RE2.

Flags are inline (`(?is)`); look-around and back-references are errors at load. `\d`, `\w` and `\b` are
ASCII, `$` without `(?m)` is the end of the text.

Whether a pattern occurs is found in linear time. Listing every occurrence searches once for each, and a search may
look at all of the text that is left (`x.*?y|x` where no `y` comes), so that is bounded by `WORK`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import re2

from .records import Complaint, Where

WORK = 250_000_000
"""The most characters that one listing of occurrences may look at, under a second; a text of 20,000 takes fewer."""


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def problems(pattern: str, where: Where = ()) -> Iterator[Complaint]:
    """Why a pattern cannot be used, if it cannot."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        yield where, f"bad regular expression `{pattern}`: {error}"
        return
    try:
        _compiled(pattern)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.decode() if isinstance(reason, bytes) else str(reason)
        yield where, f"bad regular expression `{pattern}`: {text} (no look-around, no back-references)"


class Regex:
    """A pattern that is searched; anchors are the author's."""

    __slots__ = ("_finditer", "_search", "pattern")

    def __init__(self, pattern: str) -> None:
        compiled = _compiled(pattern)
        self.pattern = pattern
        self._search = compiled.search
        self._finditer = compiled.finditer

    def found_in(self, text: str) -> bool:
        """Whether the pattern occurs in the text."""
        # In bytes, because only whether matters: places in a text would be counted in characters.
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            encoded = text.encode(errors="replace")  # a lone surrogate has no UTF-8: RE2 sees a question mark
        return self._search(encoded) is not None

    def values(self, texts: Iterable[str]) -> Iterator[str]:
        """What the pattern yields: its groups, or the whole match if it has none; every occurrence in each text.

        Raises ValueError where that is too much work.
        """
        left = WORK
        for given in texts:
            text = given.encode(errors="replace").decode()  # the same, unless it holds half a character
            for match in self._finditer(text):
                if left < 0:
                    where = f"a text of {len(text):,} characters"
                    raise ValueError(f"`{self.pattern}` occurs too often in {where} to be listed")
                left -= len(text) - match.start()
                groups = match.groups()
                if not groups:
                    yield match.group()
                else:
                    yield from (group for group in groups if group is not None)
