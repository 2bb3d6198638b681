"""An error of PostgreSQL as one of ours: what happened, to which store, and what to do."""

from __future__ import annotations

from psycopg import Error, OperationalError, errors

from proctor.supervisor.errors import StoreError

_HINTS: tuple[tuple[type[Error], str, str], ...] = (
    (errors.InvalidPassword, "unwritable", "lets nobody in with this password: check the URL or ~/.pgpass"),
    (
        errors.InvalidAuthorizationSpecification,
        "unwritable",
        "does not let this role in: check the URL and pg_hba.conf",
    ),
    (errors.InvalidCatalogName, "unwritable", "does not exist: create the database first"),
    (errors.InsufficientPrivilege, "unwritable", "does not allow this to the role of the URL"),
    (errors.ReadOnlySqlTransaction, "unwritable", "is read-only: name the primary server"),
    (errors.UndefinedTable, "gone", "has lost its tables while it was in use"),
    (errors.DiskFull, "unwritable", "is full: free space"),
    (errors.DataCorrupted, "corrupt", "is damaged: restore a copy"),
    (errors.IndexCorrupted, "corrupt", "is damaged: REINDEX it, or restore a copy"),
    (errors.ProgramLimitExceeded, "bad_record", "cannot keep an id this long"),
    (OperationalError, "unwritable", "cannot be reached"),
)
_PASSING: tuple[type[Error], ...] = (
    errors.AdminShutdown,
    errors.CannotConnectNow,
    errors.CrashShutdown,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.TooManyConnections,
    errors.IdleInTransactionSessionTimeout,
)


def store_error(error: BaseException, name: str) -> StoreError:
    """Say what went wrong with the store of that name."""
    if isinstance(error, StoreError):
        return error
    for kind_of_error, kind, hint in _HINTS:
        if isinstance(error, kind_of_error):
            return StoreError(f"store `{name}` {hint} ({_said(error)})", kind=kind)
    return StoreError(f"store `{name}` cannot be used ({_said(error)})", kind="unwritable")


def passes(error: BaseException) -> bool:
    """Whether the same may succeed when it is tried again: the connection was lost, or others were in the way."""
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, OperationalError) and error.sqlstate is None and not refused(error)


def refused(error: BaseException) -> bool:
    """Whether a server that could be reached has said no to whoever connects."""
    text = str(error)
    return any(f"FATAL:  {no}" in text for no in ("password", "no pg_hba", "role", "database", "permission"))


def _said(error: BaseException) -> str:
    """The first line of what the server or the driver said."""
    primary = error.diag.message_primary if isinstance(error, Error) else None
    lines = (primary or str(error) or type(error).__name__).strip().splitlines()
    return lines[0]
