"""Places in a file system by their text alone: whether one is inside another.

Nothing is looked up. Where the text cannot tell, the answer is None, and whoever asked leans.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from unicodedata import normalize

_UNTOLD = re.compile(r"\\|\x00|^$|^\s|\s$|^[A-Za-z][A-Za-z0-9+.-]*:|(?:^|/)\$")
"""Texts that some tools read as another path: Windows paths, URLs, variables, blanks at an edge."""


class PathPlace(NamedTuple):
    """Where a text leads: from the root (`/`), the workspace (`.`) or the home directory (`~`), so many levels up,
    then down.
    """

    start: str
    up: int
    down: tuple[str, ...]


def place_of(text: str, workspace: str | None = None, home: str | None = None) -> PathPlace | None:
    """The place of a path; None where the text does not tell.

    Args:
        text: the path; `..`, `.`, `~`, repeated and trailing separators are resolved in it.
        workspace: the absolute directory that relative paths start from, where it is known.
        home: the absolute directory that `~` stands for, where it is known.
    """
    if _UNTOLD.search(text):
        return None
    first, _, rest = text.partition("/")
    if first == "":
        return _walked(PathPlace("/", 0, ()), rest)
    if first == "~":
        return _walked(_base(home, "~"), rest)
    return None if first.startswith("~") else _walked(_base(workspace, "."), text)


def _base(directory: str | None, start: str) -> PathPlace:
    place = None if directory is None or not directory.startswith("/") else place_of(directory)
    return place or PathPlace(start, 0, ())


def _walked(base: PathPlace, rest: str) -> PathPlace:
    up, down = base.up, list(base.down)
    for part in rest.split("/"):
        if part == "..":
            if down:
                down.pop()
            elif base.start != "/":
                up += 1
        elif part not in ("", "."):
            down.append(part)
    return PathPlace(base.start, up, tuple(down))


def inside(place: PathPlace | None, directory: PathPlace | None) -> bool | None:
    """Whether a place is a directory or inside it; None where the texts do not tell."""
    if place is None or directory is None or place.start != directory.start:
        return None
    if place.up < directory.up:
        return None if directory.down else True
    if place.up > directory.up:
        return None
    depth = len(directory.down)
    if place.down[:depth] == directory.down:
        return True
    # Some file systems take names that differ in case for one.
    return None if _folded(place.down[:depth]) == _folded(directory.down) else False


def _folded(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(normalize("NFKC", part).casefold() for part in parts)
