"""Which sets of globs some name matches at once: a walk over the product of their automata."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ...values.globs import glob_regex
from ..work import Work

MAX_STATES = 4_000
"""How many states of the product are looked at before the walk is given up."""

Positions: TypeAlias = frozenset[int]
_PIECE = re.compile(r"\*+|\?|\[(?:!|\^)?\]?[^\]]*\]|.", re.DOTALL)
_FRESH = ("xzqjkvwyu", "7905318246", "-.~+")
_TRIES = 400


def overlaps(globs: Sequence[str], taken: frozenset[str], work: Work) -> tuple[list[str], bool]:
    """A name for each set of globs that a name not in `taken` matches, the empty set included.

    Returns the names, and whether that is all of them.
    """
    automata = [_Glob(glob) for glob in globs]
    alphabet = _alphabet(automata)
    found: dict[tuple[bool, ...], str] = {}
    start = tuple(automaton.start for automaton in automata)
    seen = {start}
    queue = deque([(start, "")])
    while queue and len(seen) <= MAX_STATES:
        state, text = queue.popleft()
        work.spend(len(globs))
        accepted = tuple(a.accepts(at) for a, at in zip(automata, state, strict=True))
        if accepted not in found and (name := _untaken(text, accepted, automata, alphabet, taken, work)):
            found[accepted] = name
        for char in _telling(automata, state, alphabet):
            work.spend(len(globs))
            after = tuple(a.step(at, char) for a, at in zip(automata, state, strict=True))
            if after not in seen:
                seen.add(after)
                queue.append((after, text + char))
    return list(found.values()), not queue


def _alphabet(automata: Sequence[_Glob]) -> tuple[str, ...]:
    """Every character the globs mention, and some they do not: a letter, a digit, a sign."""
    mentioned = dict.fromkeys(char for automaton in automata for char in automaton.mentioned)
    fresh = (next((char for char in kind if char not in mentioned), "") for kind in _FRESH)
    return (*filter(None, fresh), *mentioned)


def _telling(automata: Sequence[_Glob], state: tuple[Positions, ...], alphabet: tuple[str, ...]) -> Iterator[str]:
    """The characters that lead to different states: those that a glob waits for, and the fresh ones."""
    waited = {char for a, at in zip(automata, state, strict=True) for char in a.waits_for(at)}
    return (char for n, char in enumerate(alphabet) if n < len(_FRESH) or char in waited)


def _untaken(
    text: str,
    accepted: tuple[bool, ...],
    automata: Sequence[_Glob],
    alphabet: tuple[str, ...],
    taken: frozenset[str],
    work: Work,
) -> str:
    """The text, or the first variant of it, that is a new name and is accepted likewise; empty if none is."""
    tries = 0
    queue, seen = deque([text]), {text}
    while queue and tries < _TRIES:
        tries += 1
        name = queue.popleft()
        work.spend(len(name) * len(automata) + 1)
        alike = name == text or accepted == tuple(a.matches(name) for a in automata)
        if name and alike and name not in taken:
            return name
        for variant in _variants(name, alphabet):
            if variant not in seen:
                seen.add(variant)
                queue.append(variant)
    return ""


def _variants(text: str, alphabet: tuple[str, ...]) -> Iterator[str]:
    for at in range(len(text), -1, -1):
        for char in alphabet[: len(_FRESH)]:
            yield text[:at] + char + text[at:]
    for at in range(len(text)):
        for char in alphabet:
            yield text[:at] + char + text[at + 1 :]


class _Glob:
    """A glob as an automaton: it stands at a set of positions in its pieces."""

    def __init__(self, glob: str) -> None:
        self._pieces = [piece[:1] if piece[0] == "*" else piece for piece in _PIECE.findall(glob)]
        self._end = len(self._pieces)
        self._steps: dict[tuple[Positions, str], Positions] = {}
        self._waits: dict[Positions, frozenset[str]] = {}
        self.start = self._closed({0})
        self.mentioned = tuple(dict.fromkeys(char for piece in self._pieces for char in _mentioned(piece)))

    def _closed(self, positions: set[int]) -> Positions:
        """With the positions that a star may be skipped to."""
        todo = list(positions)
        while todo:
            at = todo.pop()
            if at < self._end and self._pieces[at] == "*" and at + 1 not in positions:
                positions.add(at + 1)
                todo.append(at + 1)
        return frozenset(positions)

    def step(self, at: Positions, char: str) -> Positions:
        """Where it stands after one more character."""
        key = (at, char)
        if key not in self._steps:
            ahead = {n if self._pieces[n] == "*" else n + 1 for n in at if n < self._end and self._fits(n, char)}
            self._steps[key] = self._closed(ahead)
        return self._steps[key]

    def _fits(self, n: int, char: str) -> bool:
        piece = self._pieces[n]
        if len(piece) > 1:
            return glob_regex(piece).found_in(char)
        return piece in ("*", "?", char)

    def waits_for(self, at: Positions) -> frozenset[str]:
        """The characters that it tells apart there."""
        if at not in self._waits:
            self._waits[at] = frozenset(char for n in at if n < self._end for char in _mentioned(self._pieces[n]))
        return self._waits[at]

    def accepts(self, at: Positions) -> bool:
        """Whether the name may end there."""
        return self._end in at

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        at = self.start
        for char in text:
            at = self.step(at, char)
        return self.accepts(at)


def _mentioned(piece: str) -> str:
    if piece in ("*", "?"):
        return ""
    return piece.strip("[]!^") if len(piece) > 1 else piece
