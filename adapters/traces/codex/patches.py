"""The patches of `apply_patch`, as the changes that the client reports when it is asked about them."""

from __future__ import annotations

import re
from typing import Any

_HEADER = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)|\*\*\* Move to: (.+)")
_KINDS = {"Add": "add", "Update": "update", "Delete": "delete"}


def changes_of(patch: str) -> list[dict[str, Any]]:
    """The files that a patch touches: `path`, `kind`, `diff`, and `move_path` where one is moved."""
    changes: list[dict[str, Any]] = []
    for line in patch.splitlines():
        header = None if line.startswith(("+", "-")) else _HEADER.fullmatch(line.strip())
        if header is not None and header[1]:
            changes.append({"path": header[2].strip(), "kind": _KINDS[header[1]], "diff": ""})
        elif changes and header is not None:
            changes[-1]["move_path"] = header[3].strip()
        elif changes and not line.startswith("*** "):
            changes[-1]["diff"] += f"{line}\n"
    return changes
