"""Tool patterns: whole-name globs (`*`, `?`, `[abc]`), compared without regard to case."""

from __future__ import annotations

import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from .model_base import Issue, Where
from .regexes import Regex
from .work_budget import Work

Matcher: TypeAlias = Callable[[str], bool]
_CLASS = re.compile(r"\[(!|\^)?(\]?[^\]]*)\]")
MOST_CHARACTERS, MOST_WILDCARDS = 500, 24
"""How long a tool pattern may be, and how many `*` and character classes it may have."""


class _BadGlobError(ValueError):
    pass


def glob_problems(pattern: Any, where: Where = ()) -> Iterator[Issue]:
    """Why a tool pattern cannot be used, if it cannot."""
    if not isinstance(pattern, str) or not pattern.strip():
        yield where, "a tool's name cannot be empty"
        return
    if len(pattern) > MOST_CHARACTERS:
        yield where, f"a tool pattern has at most {MOST_CHARACTERS} characters, this has {len(pattern):,}"
        return
    if (wildcards := pattern.count("*") + pattern.count("[")) > MOST_WILDCARDS:
        yield where, f"a tool pattern has at most {MOST_WILDCARDS} wildcards, this has {wildcards}"
        return
    try:
        glob_regex(pattern)
    except _BadGlobError as error:
        yield where, str(error)


@lru_cache(maxsize=8192)
def glob_regex(pattern: str) -> Regex:
    """The regular expression of a glob, for the whole name."""
    pieces: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            if pieces[-1:] != [".*"]:
                pieces.append(".*")
        elif char == "?":
            pieces.append(".")
        elif char == "[":
            match = _CLASS.match(pattern, at)
            if match is None or not match[2]:
                raise _BadGlobError(f"bad tool pattern `{pattern}`: `[` is never closed")
            pieces.append(_character_class(pattern, match))
            at = match.end() - 1
        else:
            pieces.append(re.escape(char))
        at += 1
    return Regex(rf"(?is)\A(?:{''.join(pieces)})\z")


def _character_class(pattern: str, match: re.Match[str]) -> str:
    body = match[2].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    text = f"[{'^' if match[1] else ''}{body}]"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of set operations that Python may have one day
            re.compile(text)
    except re.error as error:
        raise _BadGlobError(f"bad tool pattern `{pattern}`: {error}") from None
    return text


def is_plain(pattern: str) -> bool:
    """Whether a pattern is one exact name."""
    return not any(char in pattern for char in "*?[")


def matcher(patterns: Iterable[str]) -> Matcher:
    """Whether a name matches any of the patterns."""
    exact = {pattern.casefold() for pattern in patterns if is_plain(pattern)}
    globs = [glob_regex(pattern).found_in for pattern in patterns if not is_plain(pattern)]

    def matches(name: str) -> bool:
        return name.casefold() in exact or any(glob(name) for glob in globs)

    return matches


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
    complete = True
    for text, accepted in _reached(automata, alphabet, work):
        if accepted is None:
            complete = False
        elif accepted not in found and (name := _untaken(text, accepted, automata, alphabet, taken, work)):
            found[accepted] = name
    return list(found.values()), complete


def overlap(left: str, right: str) -> bool:
    """Whether some name may match both patterns; true where that takes too long to tell."""
    if is_plain(left) and is_plain(right):
        return left.casefold() == right.casefold()
    automata = [_Glob(left.casefold()), _Glob(right.casefold())]
    return any(accepted is None or all(accepted) for _, accepted in _reached(automata, _alphabet(automata), Work()))


def _reached(
    automata: Sequence[_Glob], alphabet: tuple[str, ...], work: Work
) -> Iterator[tuple[str, tuple[bool, ...] | None]]:
    """A shortest text for each state of all, and which of them accept it; None at last if there are more states."""
    start = tuple(automaton.start for automaton in automata)
    seen = {start}
    queue = deque([(start, "")])
    while queue and len(seen) <= MAX_STATES:
        state, text = queue.popleft()
        work.spend(len(automata))
        yield text, tuple(a.accepts(at) for a, at in zip(automata, state, strict=True))
        for char in _telling(automata, state, alphabet):
            work.spend(len(automata))
            after = tuple(a.step(at, char) for a, at in zip(automata, state, strict=True))
            if after not in seen:
                seen.add(after)
                queue.append((after, text + char))
    if queue:
        yield "", None


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
        self.start = self._closure({0})
        self.mentioned = tuple(dict.fromkeys(char for piece in self._pieces for char in _mentioned(piece)))

    def _closure(self, positions: set[int]) -> Positions:
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
            self._steps[key] = self._closure(ahead)
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
