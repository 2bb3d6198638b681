"""What a run whose supervisor is gone left running on this machine."""

from __future__ import annotations

from typing import Any

from .process_tree import ProcessTree


async def end_remains(mark: str) -> dict[str, Any]:
    """End the processes that are marked so, and what descends from them; evidence where there were any."""
    tree = ProcessTree(mark=mark)
    return await tree.kill() if tree.snapshot() else {}
