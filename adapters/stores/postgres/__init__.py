"""A store in a PostgreSQL database: durable, for any number of processes on any number of machines."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from proctor.supervisor.errors import NotInstalledError

if TYPE_CHECKING:
    from .store import PostgresStore

__all__ = ["PostgresStore"]


def check_installed() -> None:
    """Raises NotInstalledError where the driver is not installed."""
    if find_spec("psycopg") is None:
        raise NotInstalledError("a store in PostgreSQL needs psycopg", "postgres")


def __getattr__(name: str) -> Any:
    if name == "PostgresStore":
        check_installed()
        from .store import PostgresStore

        return PostgresStore
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


ROOMS = ("store", "recording", "connection")
"""Top first: each imports only those below it."""
