"""Opens a store by its URL or by the path of its file."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

if TYPE_CHECKING:
    from .postgres import PostgresStore
    from .sqlite import SQLiteStore

DEFAULT_STORE = "~/.local/state/proctor/runs.db"
"""The store of a person who names none, and has not moved such files elsewhere (XDG_STATE_HOME)."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = ("password", "sslpassword", "passfile", "sslkey")


def check_name(named: str | os.PathLike[str]) -> None:
    """Raises UsageError for the URL of anything but a store; the error omits it, as it may hold a password."""
    from proctor.supervisor.errors import UsageError

    scheme = _SCHEME.match(os.fspath(named))
    if scheme is not None and not is_url(named):
        hint = "name the file itself" if scheme[0].startswith("sqlite") else "a store is a file or postgresql://..."
        raise UsageError(f"no store is kept at `{scheme[0]}...`; {hint}")


def is_url(named: str | os.PathLike[str]) -> bool:
    """Whether the name is a URL, not a path."""
    return isinstance(named, str) and named.lower().startswith(_SCHEMES)


def shown(named: str | os.PathLike[str]) -> str:
    """The name without its secrets."""
    if not is_url(named):
        return os.fspath(named)
    try:
        parts = urlsplit(os.fspath(named))
        user, at, host = parts.netloc.rpartition("@")
        options = [(key, value) for key, value in parse_qsl(parts.query) if key.lower() not in _SECRETS]
    except ValueError:
        return "postgresql://..."
    query = urlencode(options, quote_via=quote, safe="/")
    where = f"{user.partition(':')[0]}{at}{host}{parts.path}"
    return f"postgresql://{where}{f'?{query}' if query else ''}"


def open_store(
    named: str | os.PathLike[str], *, make: bool = True, may_be_read_only: bool = False
) -> SQLiteStore | PostgresStore:
    """Open the store of that name.

    Args:
        named: a URL `postgresql://...`, or the path of a SQLite file.
        make: create the store where there is none.
        may_be_read_only: open a file that can only be read, too; so it is without `make`.

    Raises:
        StoreError: it cannot be used; `kind` says why.
        UsageError: the name is invalid, there is no store, or the extra `postgres` is not installed.
    """
    check_name(named)
    if is_url(named):
        from .postgres import PostgresStore

        return PostgresStore(os.fspath(named), make=make)
    from .sqlite import SQLiteStore

    return SQLiteStore(named, may_be_read_only=may_be_read_only or not make)
