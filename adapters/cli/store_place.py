"""Where the store is: `--store`, else PROCTOR_STORE, else the user's state directory."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.supervisor.ports.adapters import Store

VARIABLE = "PROCTOR_STORE"


def store_named(given: str | None) -> Path | str:
    """The file of the store, or the URL of its database. Raises UsageError for what can be neither."""
    from proctor.adapters.stores.store_names import check_name, is_url

    named = given or os.environ.get(VARIABLE)
    if named:
        check_name(named)
        return named if is_url(named) else Path(named)
    return _state() / "runs.db"


def is_there(given: str | None) -> bool:
    """Whether there may be a store: without one there are no runs and no approvals."""
    named = store_named(given)
    return isinstance(named, str) or named.exists()


def is_there_or_said(given: str | None) -> bool:
    """The same; says where there is none although somebody named it, which may be a slip of the pen."""
    there = is_there(given)
    if not there and (given or os.environ.get(VARIABLE)):
        from proctor.adapters.kit.values.printable import printable_lines

        print(printable_lines(f"there is no store at `{store_named(given)}`"), file=sys.stderr)
    return there


def beside(given: str | None) -> Path:
    """The path that files of this machine about the store begin with."""
    from hashlib import sha256

    from proctor.adapters.stores.store_names import shown

    named = store_named(given)
    if isinstance(named, Path):
        return named
    _state().mkdir(parents=True, exist_ok=True, mode=0o700)
    return _state() / f"postgres-{sha256(shown(named).encode()).hexdigest()[:12]}"


def existing_file(given: str | None) -> Path:
    """The file of a store that is there. Raises UsageError for a database, and where there is none."""
    from proctor.supervisor.errors import UsageError

    named = store_named(given)
    if not isinstance(named, Path):
        raise UsageError("a database has a backup of its own: `pg_dump`, or `proctor export` for lines of JSON")
    _check_file(named, must_exist=True, is_ours=False)
    return named


def _state() -> Path:
    """The state directory is that of the XDG rules, on every platform."""
    from proctor.supervisor.errors import UsageError

    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "proctor"
    except RuntimeError:
        raise UsageError("you have no home directory; set XDG_STATE_HOME, or name the store: `--store`") from None


@asynccontextmanager
async def opened(given: str | None, *, must_exist: bool = False) -> AsyncIterator[Store]:
    """The store, closed at the end.

    Raises:
        UsageError: `must_exist` and there is none, or there can be none at that place.
        StoreError: it cannot be used.
    """
    import anyio

    from proctor.adapters.stores import open_store

    named = store_named(given)
    if isinstance(named, Path):
        _check_file(named, must_exist=must_exist, is_ours=not given and not os.environ.get(VARIABLE))
        store = open_store(named)
    else:
        store = await anyio.to_thread.run_sync(partial(open_store, named, make=not must_exist))
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()


def _check_file(path: Path, *, must_exist: bool, is_ours: bool) -> None:
    """Raises as `opened` does; the folder of a store that nobody named is made."""
    from proctor.supervisor.errors import StoreError, UsageError

    if path.is_dir():
        raise UsageError(f"`{path}` is a folder, not a store; name a file in it")
    if must_exist and not path.exists():
        raise UsageError(f"there is no store at `{path}`; `proctor store --make` makes one, `--store` names another")
    if is_ours:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StoreError(f"`{path.parent}` cannot be made: {reason}; name a file with `--store`") from None
    if not path.parent.is_dir():
        raise UsageError(f"`{path}` cannot be made: there is no folder `{path.parent}`")
