"""Programs that a line makes and runs: a script that it writes, a program to which it gives another name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from .programs import DYNAMIC, REDIRECT, LinePart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_NAMING = ("cp", "ln", "mv", "install", "link", "rsync")
"""Programs that put a program under another name."""


def made_and_run(parts: Sequence[LinePart]) -> Iterator[LinePart]:
    """Find the commands that a line runs from a file it may write, or name, itself: nobody can see their content."""
    made = {
        os.path.basename(word.rstrip("/")) if n not in part.unknown else None
        for part in parts
        if part.direction == "write" or part.name in _NAMING
        for n, word in enumerate(part.argv)
        if part.name == REDIRECT or n
    }
    for part in parts if made else ():
        if "/" in part.name and part.name != REDIRECT and not made.isdisjoint((None, os.path.basename(part.name))):
            reason = f"what `{part.name}` runs is known only when it runs: the line makes the file"
            yield msgspec.structs.replace(part, name=DYNAMIC, exact=False, reason=reason)
