"""Tool patterns: whole-name globs (`*`, `?`, `[abc]`), compared without regard to case."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

from .complaints import Complaint, Where
from .regexes import Regex

Matcher: TypeAlias = Callable[[str], bool]

_CLASS = re.compile(r"\[(!|\^)?(\]?[^\]]*)\]")


MOST_CHARACTERS, MOST_WILDCARDS = 500, 24
"""How long a tool pattern may be, and how many `*` and character classes it may have."""


class _BadGlobError(ValueError):
    pass


def glob_problems(pattern: Any, where: Where = ()) -> Iterator[Complaint]:
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


MOST_COMPARED = 1_000_000
"""How many pairs of places in two patterns are compared; longer ones are taken to overlap."""


def overlap(left: str, right: str) -> bool:
    """Whether some name may match both patterns; two character classes are taken to share a character."""
    a, b = _tokens(left), _tokens(right)
    if len(a) * len(b) > MOST_COMPARED:
        return True
    ends = [all(token == "*" for token in b[j:]) for j in range(len(b) + 1)]  # what is left may match nothing
    for token in reversed(a):
        row = [token == "*" and ends[len(b)]]
        for j in range(len(b) - 1, -1, -1):
            if token == "*":
                fits = ends[j] or row[-1]
            elif b[j] == "*":
                fits = row[-1] or ends[j]
            else:
                fits = ends[j + 1] and _share(token, b[j])
            row.append(fits)
        ends = row[::-1]
    return ends[0]


def _tokens(pattern: str) -> list[str]:
    """The stars, question marks, classes and characters of a pattern."""
    return re.findall(r"\[[!^]?\]?[^\]]*\]|.", pattern.casefold(), re.DOTALL)


def _share(a: str, b: str) -> bool:
    if "?" in (a, b):
        return True
    if len(a) > 1 or len(b) > 1:
        return (len(a) > 1 and len(b) > 1) or glob_regex(max(a, b, key=len)).found_in(min(a, b, key=len))
    return a == b
