"""All tool names a policy can tell apart, as a finite set: its plain names, and a sample of every overlap of globs.

Two names that the same patterns match are alike to every rule. So one sample for each set of patterns that some
name matches at once stands for all tools there are, and questions about globs become questions about sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...values.globs import is_plain, matcher
from ..work import Work
from .automata import overlaps

ANY_OTHER = "any other tool"
"""How a name is shown that no pattern but `*` matches."""


class NameUniverse:
    """The universe of names for some patterns; names are without regard to case.

    `complete` is False where there are too many overlaps to list: then a glob may match more than is known.
    """

    def __init__(self, patterns: Iterable[str], work: Work | None = None) -> None:
        self._work = work or Work()
        self._written: dict[str, str] = {}
        given = dict.fromkeys(patterns)
        for pattern in given:
            if is_plain(pattern):
                self._written.setdefault(pattern.casefold(), pattern)
        self.plain = frozenset(self._written)
        self.globs = tuple(dict.fromkeys(p.casefold() for p in given if not is_plain(p)))
        samples, self.complete = overlaps(self.globs, taken=self.plain, work=self._work)
        self.all = (*self._written, *samples)
        self._matching: dict[str, frozenset[str]] = {}

    def matching(self, patterns: Iterable[str]) -> frozenset[str]:
        """The names that any of the patterns matches."""
        found: frozenset[str] = frozenset()
        for pattern in patterns:
            if pattern not in self._matching:
                matches = matcher([pattern])
                plain = is_plain(pattern)
                self._work.spend(1 if plain else len(self.all))
                names = {pattern.casefold()} & self.plain if plain else filter(matches, self.all)
                self._matching[pattern] = frozenset(names)
            found |= self._matching[pattern]
        return found

    def label(self, name: str) -> str:
        """How a name is shown: as it was written; a sample by the globs that match it."""
        if name in self._written:
            return self._written[name]
        return " and ".join(self._globs_of(name)) or ANY_OTHER

    def _globs_of(self, name: str) -> Iterator[str]:
        matched = [glob for glob in self.globs if matcher([glob])(name)]
        narrow = [glob for glob in matched if glob.strip("*")] or matched
        return iter(sorted(narrow, key=len, reverse=True)[:2])
