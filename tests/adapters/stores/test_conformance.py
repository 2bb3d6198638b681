"""The shipped conformance suite for stores, on proctor's own stores with both backends.

Of the two versions of PostgreSQL, one runs on each backend.
"""

import uuid
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from postgres_server import DEBIANS, OwnServer, needs_debians_server, needs_postgres, new_schema

from proctor.adapters.stores import MemoryStore, PostgresStore, SQLiteStore
from proctor.supervisor.ports.store import Store
from proctor.supervisor.testing.suites import StoreConformance

pytestmark = pytest.mark.anyio


class TestMemoryStore(StoreConformance):
    def open_store(self) -> AbstractAsyncContextManager[Store]:
        return MemoryStore()


class TestSQLiteStore(StoreConformance):
    durable = True
    path: Path

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "record.db"

    def open_store(self) -> AbstractAsyncContextManager[Store]:
        return SQLiteStore(self.path)


class PostgresStoreChecks(StoreConformance):
    durable = True
    url: str
    schema: str

    def open_store(self) -> AbstractAsyncContextManager[Store]:
        return PostgresStore(self.url, schema=self.schema)


@needs_postgres
class TestPostgresStore(PostgresStoreChecks):
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture(autouse=True)
    def place(self) -> Iterator[None]:
        with new_schema() as (self.url, self.schema):
            yield


@pytest.fixture(scope="module")
def debians() -> Iterator[OwnServer]:
    with OwnServer(DEBIANS) as server:
        yield server


@needs_debians_server
class TestOldestPostgresStore(PostgresStoreChecks):
    """The oldest supported version of PostgreSQL."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "trio"

    @pytest.fixture(autouse=True)
    def place(self, debians: OwnServer) -> None:
        self.url, self.schema = debians.url(), f"test_{uuid.uuid4().hex}"
