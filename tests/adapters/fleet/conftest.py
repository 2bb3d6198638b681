"""The store that workers share: a file, or a database of the tests' own server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from postgres_server import needs_postgres, new_database

from proctor.adapters.stores import SQLiteStore


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=needs_postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "runs.db")
    else:
        with new_database() as url:
            yield url


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with SQLiteStore(tmp_path / "runs.db") as opened:
        yield opened
