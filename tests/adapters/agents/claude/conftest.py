"""Fixtures for Claude Code: the adapter with the real client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_bench import anyio_backend, bench, pipe
from claude_processes import ClaudeProcesses

__all__ = ["anyio_backend", "bench", "pipe"]


@pytest.fixture
def processes(bench: Any, tmp_path: Path) -> Iterator[ClaudeProcesses]:
    """A store and processes that use it; all have ended afterwards."""
    opened = ClaudeProcesses(bench, tmp_path)
    yield opened
    for program in opened.programs:
        program.kill()
