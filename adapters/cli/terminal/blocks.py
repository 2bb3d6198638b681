"""What blocks starts, in words and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.supervisor import Block


def block_data(block: Block) -> dict[str, Any]:
    """A block as JSON has it."""
    at = block.at and block.at.isoformat()
    return {"scope": block.scope, "value": block.value, "by": block.by, "reason": block.reason, "at": at}


def in_words(block: Block) -> str:
    """A block on a line."""
    whose = "no run starts" if block.scope == "all" else f"no run of {block.scope} `{block.value}` starts"
    why = f": {block.reason}" if block.reason else ""
    return f"{whose}, ordered by `{block.by}`{why}"
