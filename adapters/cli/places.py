"""Where the store is: `--store`, else PROCTOR_STORE, else the user's state directory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.supervisor.ports.adapters import Store

VARIABLE = "PROCTOR_STORE"


def store_path(given: str | None) -> Path:
    """The file of the store. The state directory is that of the XDG rules, on every platform."""
    named = given or os.environ.get(VARIABLE)
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "proctor" / "runs.db"


def is_there(given: str | None) -> bool:
    """Whether there is a store: without one there are no runs and no approvals."""
    return store_path(given).exists()


@asynccontextmanager
async def opened(given: str | None, *, must_exist: bool = False) -> AsyncIterator[Store]:
    """The store, closed at the end.

    Raises:
        UsageError: `must_exist` and there is none, or there can be none at that place.
        StoreError: the file cannot be used.
    """
    import anyio

    from proctor.adapters.stores import SQLiteStore
    from proctor.supervisor.errors import StoreError, UsageError

    path = store_path(given)
    if path.is_dir():
        raise UsageError(f"`{path}` is a folder, not a store; name a file in it")
    if must_exist and not path.exists():
        raise UsageError(f"there is no store at `{path}`; `proctor demo` makes one, `--store` names another")
    if not given and not os.environ.get(VARIABLE):
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StoreError(f"`{path.parent}` cannot be made: {reason}; name a file with `--store`") from None
    if not path.parent.is_dir():
        raise UsageError(f"`{path}` cannot be made: there is no folder `{path.parent}`")
    store = SQLiteStore(path)
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()
