"""Tool patterns: whole-name globs (`*`, `?`, `[abc]`), compared without regard to case."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

from .automata import Automaton, letters_of, reached
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
    return Regex(rf"(?is)\A(?:{_pattern(pattern)})\z")


def _pattern(pattern: str) -> str:
    """A glob as a pattern of the whole name."""
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
    return "".join(pieces)


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
_FRESH, _VARYING = "xzqjkvwyu7905318246-.~+", "x7-"
"""What the names of samples are made of beside what globs mention, and what tells one from a name that is taken."""
_TRIES = 400


def overlaps(globs: Sequence[str], taken: frozenset[str], work: Work) -> tuple[list[str], bool]:
    """A name for each set of globs that a name not in `taken` matches, the empty set included.

    Returns the names, and whether that is all of them.
    """
    automata, letters = _side_by_side(globs)
    mentioned = (char for glob in globs for char in glob if char not in "*?[]!^")
    alphabet = dict.fromkeys([*letters, *_VARYING, *mentioned])
    found: dict[tuple[bool, ...], str] = {}
    complete = True
    for text, accepted in reached(automata, letters, MAX_STATES, work.spend):
        if accepted is None:
            complete = False
        elif accepted not in found and (name := _untaken(text, accepted, globs, alphabet, taken, work)):
            found[accepted] = name
    return list(found.values()), complete


def overlap(left: str, right: str) -> bool:
    """Whether some name may match both patterns; true where that takes too long to tell."""
    if is_plain(left) and is_plain(right):
        return left.casefold() == right.casefold()
    automata, letters = _side_by_side([left.casefold(), right.casefold()])
    return any(accepted is None or all(accepted) for _, accepted in reached(automata, letters, MAX_STATES))


def _side_by_side(globs: Sequence[str]) -> tuple[list[Automaton], list[str]]:
    """Globs as automata, and the letters that they tell apart, the fresh ones first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of set operations that Python may have one day
        automata = [Automaton(rf"(?s)\A(?:{_pattern(glob)})\Z") for glob in globs]
    return automata, letters_of(automata, "".join(c for c in _FRESH if not any(c in glob for glob in globs)))


def _untaken(
    text: str,
    accepted: tuple[bool, ...],
    globs: Sequence[str],
    alphabet: Iterable[str],
    taken: frozenset[str],
    work: Work,
) -> str:
    """The text, or the first variant of it, that is a new name and is accepted likewise; empty if none is."""
    tried, seen = [text], {text}
    for name in islice(tried, _TRIES):
        work.spend(len(name) * len(globs) + 1)
        alike = name == text or accepted == tuple(glob_regex(glob).found_in(name) for glob in globs)
        if name and alike and name not in taken:
            return name
        more = [variant for variant in _variants(name, alphabet) if variant not in seen]
        tried += more
        seen.update(more)
    return ""


def _variants(text: str, alphabet: Iterable[str]) -> Iterator[str]:
    for at in range(len(text), -1, -1):
        for char in _VARYING:
            yield text[:at] + char + text[at:]
    for at in range(len(text)):
        for char in alphabet:
            yield text[:at] + char + text[at + 1 :]
