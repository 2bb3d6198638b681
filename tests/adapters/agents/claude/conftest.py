"""The adapter before the real client, for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_bench import anyio_backend, bench, pipe
from claude_processes import ClaudeProcesses

__all__ = ["anyio_backend", "bench", "pipe"]


@pytest.fixture
def processes(bench: Any, tmp_path: Path) -> Iterator[ClaudeProcesses]:
    """A store and the processes on it; on leaving, all have ended."""
    opened = ClaudeProcesses(bench, tmp_path)
    yield opened
    for program in opened.programs:
        program.kill()
