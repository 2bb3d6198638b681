"""Patches as text, from `*** Begin Patch` to `*** End Patch`: the files that they touch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Final


_HEADER: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)|\*\*\* Move to: (.+)")


_KINDS: Final = {"Add": "add", "Update": "update", "Delete": "delete"}


_BODY: Final = re.compile(r"[-+].*|@@.*|(?!\s*\*\*\*) .*|\*\*\* End of File|", re.DOTALL)


def changes_of(patch: str) -> list[dict[str, Any]]:
    """The files that a patch touches: `path`, `kind`, `diff`, and `move_path` where one is moved."""
    changes: list[dict[str, Any]] = []
    for line in (line.removesuffix("\r") for line in patch.removesuffix("\n").split("\n")):
        header = None if line.startswith(("+", "-")) else _HEADER.fullmatch(line.strip())
        if header is not None and header[1]:
            changes.append({"path": header[2].strip(), "kind": _KINDS[header[1]], "diff": ""})
        elif changes and header is not None:
            changes[-1]["move_path"] = header[3].strip()
        elif changes and not line.startswith("*** "):
            changes[-1]["diff"] += f"{line}\n"
    return changes


def certain_changes_of(patch: str) -> list[dict[str, Any]]:
    """The same, of a patch that every client reads alike; empty for any other."""
    first, *lines = [line.removesuffix("\r") for line in patch.strip().split("\n")]
    if first != "*** Begin Patch" or not lines or lines.pop() != "*** End Patch":
        return []
    kind = ""
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            if not kind or not _BODY.fullmatch(line):
                return []
            continue
        if not _plain(header[2] or header[3]) or (header[3] and kind != "Update"):
            return []
        kind = header[1] or "moved"
    return changes_of(patch)


def _plain(path: str) -> bool:
    """Whether a path cannot be read as another: some clients end it at a colon, some take off more than blanks."""
    return path.isprintable() and ":" not in path and path == path.strip()
