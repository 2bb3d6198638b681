"""What a run whose supervisor is gone left running on this machine."""

from __future__ import annotations

from typing import Any

from .process_tree import ProcessTree


async def end_remains(run_id: str) -> dict[str, Any]:
    """End the processes that are marked with the run, and what descends from them; evidence where there were any."""
    tree = ProcessTree(run_id=run_id)
    return await tree.kill() if tree.snapshot() else {}
