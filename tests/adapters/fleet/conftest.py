"""Fixtures: the store that workers share, a file or a database on the tests' own server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from postgres_server import either_store as place

from proctor.adapters.stores import SQLiteStore

__all__ = ["place"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(tmp_path / "runs.db") as opened:
        yield opened
