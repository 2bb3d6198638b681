"""An error of PostgreSQL as one of ours: what happened, to which store, and what to do."""

from __future__ import annotations

from psycopg import Error, OperationalError, errors

from proctor.supervisor.errors import StoreError

_HINTS: tuple[tuple[type[Error], str, str], ...] = (
    (errors.InsufficientPrivilege, "unwritable", "does not allow this to the role of the URL"),
    (errors.ReadOnlySqlTransaction, "unwritable", "is read-only: name the primary server"),
    (errors.UndefinedTable, "gone", "has lost its tables while it was in use"),
    (errors.LockNotAvailable, "unwritable", "is kept locked by others: see pg_stat_activity, or try again"),
    (errors.DiskFull, "unwritable", "is full: free space"),
    (errors.DataCorrupted, "corrupt", "is damaged: restore a copy"),
    (errors.IndexCorrupted, "corrupt", "is damaged: REINDEX it, or restore a copy"),
    (errors.ProgramLimitExceeded, "bad_record", "cannot keep an id this long"),
)
_REFUSED: tuple[tuple[str, str], ...] = (
    ("password authentication failed", "does not let this role in with this password: check the URL, or ~/.pgpass"),
    ("no password supplied", "asks for a password: put it into ~/.pgpass, or into the URL"),
    ("no pg_hba.conf entry", "does not let this role in from here: see pg_hba.conf of the server"),
    ('database "', "does not exist: create the database first"),
    ('role "', "does not know this role"),
    ("permission denied", "does not let this role in"),
)
"""What a server says to whoever may not connect; libpq gives no code with it."""
_NOT_TRUSTED: tuple[tuple[str, str], ...] = (
    ("does not match host name", "shows the certificate of another host than the URL names"),
    ("certificate verify failed", "shows a certificate that `sslrootcert` does not vouch for"),
    ("root certificate file", "cannot be told from another: `sslrootcert` names no file that is there"),
    ("server does not support SSL", "speaks no TLS, as the URL demands"),
)
"""What libpq says of a server that it does not speak to."""
_PASSING: tuple[type[Error], ...] = (
    errors.AdminShutdown,
    errors.CannotConnectNow,
    errors.CrashShutdown,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.TooManyConnections,
    errors.IdleInTransactionSessionTimeout,
    errors.LockNotAvailable,
)


def store_error(error: BaseException, name: str) -> StoreError:
    """Say what went wrong with the store of that name."""
    if isinstance(error, StoreError):
        return error
    for kind_of_error, kind, hint in _HINTS:
        if isinstance(error, kind_of_error):
            return StoreError(f"store `{name}` {hint} ({_first_line(error)})", kind=kind)
    hint = _why_refused(error) or ("cannot be reached" if isinstance(error, OperationalError) else "cannot be used")
    return StoreError(f"store `{name}` {hint} ({_first_line(error)})", kind="unwritable")


def passes(error: BaseException) -> bool:
    """Whether the same may succeed when it is tried again: the connection was lost, or others were in the way."""
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, OperationalError) and error.sqlstate is None and _why_refused(error) is None


def _why_refused(error: BaseException) -> str | None:
    text = str(error)
    if not isinstance(error, OperationalError) or error.sqlstate is not None:
        return None
    refusals = _REFUSED if "FATAL:" in text else _NOT_TRUSTED
    return next((hint for words, hint in refusals if words in text), None)


def _first_line(error: BaseException) -> str:
    """The first line of what the server or the driver said."""
    primary = error.diag.message_primary if isinstance(error, Error) else None
    lines = (primary or str(error) or type(error).__name__).strip().splitlines()
    return lines[0]
