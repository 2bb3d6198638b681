"""Connections to a store's database, and the store's name without the secrets of its URL."""

import logging
import os
import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg import Connection as PsycopgConnection
from psycopg import Error, OperationalError, errors, sql
from psycopg.adapt import Dumper, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format

from proctor.supervisor.arguments import check_text
from proctor.supervisor.errors import StoreError, StoreErrorKind, UsageError
from proctor.supervisor.ports.stored_types import label_text

from ..tables.batches import PAGE_BYTES, PAGE_ROWS, Condition, Dialect
from ..tables.schema import POSTGRES as SCHEMA
from ..tables.schema import STORE, check_version, new_id, schema_version, statements
from ..tables.seals import marked, store_mark

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # what it logs of a lost connection is raised as well


def one_label(name: str, value: object) -> str:
    """A label as one text, unique to this name and value."""
    return f"{len(name)}:{name}={label_text(value)}"


def _among(value: str, values: Sequence[Any]) -> Condition:
    return f"{value} = ANY(?)", list(values)


def _labelled(labels: Mapping[str, str]) -> Iterator[Condition]:
    if labels:
        yield "label_texts @> ?", [one_label(*label) for label in labels.items()]


POSTGRES = Dialect(
    until="(until IS NULL OR until <= clock_timestamp()) AS over",
    is_over=lambda over, where: over,
    lease_end="clock_timestamp() + make_interval(secs => ?)",
    lease=float,
    among=_among,
    begins=lambda text, with_what: (f"starts_with({text}, ?)", with_what),
    labelled=_labelled,
    last_command="SELECT coalesce(max(number), 0) FROM instructions",
    until_value="extract(epoch FROM until)::text",
    lock=" FOR NO KEY UPDATE",
)


@cache
def with_places(sql: str) -> str:
    """A common statement with the placeholders of this driver."""
    return sql.replace("?", "%s")


_TEXT_OID = 25
_ODD = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(rb"\\(\\|0|u[0-9a-f]{4})")


def kept(text: str) -> str:
    """A text as it is stored."""
    return _ODD.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return {"\\": "\\\\", "\0": "\\0"}.get(char) or f"\\u{ord(char):04x}"


def _unescape(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if code == b"\\":
        return code
    return b"\0" if code == b"0" else chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")


class _Dumper(Dumper):
    oid = _TEXT_OID

    def dump(self, obj: str) -> bytes:
        return kept(obj).encode()


class _BinaryDumper(_Dumper):
    format = Format.BINARY


class _Loader(Loader):
    def load(self, data: Any) -> str:
        found = bytes(data)
        if b"\\" in found:
            return _ESCAPE.sub(_unescape, found).decode("utf-8", "surrogatepass")
        return found.decode()


class _BinaryLoader(_Loader):
    format = Format.BINARY


def keep_any_text(connection: PsycopgConnection[Any]) -> None:
    """Have the connection store any text, and read it back unchanged."""
    for dumper in (_BinaryDumper, _Dumper):  # the last one is taken where the query does not say
        connection.adapters.register_dumper(str, dumper)
    for loader in (_Loader, _BinaryLoader):
        connection.adapters.register_loader("text", loader)


_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Settings that give up a silent connection within seconds, unless the URL sets them."""
_SETTINGS = (
    "SET search_path = {schema}, pg_temp",
    "SET TimeZone = 'UTC'",
    "SET jit = off",
    "SELECT set_config('client_encoding', current_setting('server_encoding'), false)",  # PGCLIENTENCODING may differ
    "SET idle_in_transaction_session_timeout = '5s'",  # a client that stops in mid-transaction loses its locks
    "SET lock_timeout = '5s'",  # and whoever waits for one stopped in mid-message, which no time-out sees, ends it
    "SET statement_timeout = 0",  # as `answer_s` says
    "SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('transaction_timeout', true) <> '0'",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)
_LONGEST_NAME = 63
_UNKNOWN = re.compile(r"invalid URI query parameter: \"(\w+)\"")
_PAGE = f"""SELECT {{columns}} FROM (SELECT *, sum(octet_length(data)) OVER (ORDER BY {{by}} {{order}})
        - octet_length(data) AS bytes_before
        FROM (SELECT {{columns}} FROM {{source}} ORDER BY {{by}} {{order}} LIMIT {PAGE_ROWS}) AS page) AS page
    WHERE bytes_before < {PAGE_BYTES} ORDER BY {{by}} {{order}}"""


class Connection(psycopg.Connection[Any]):
    """A connection that waits a limited time for each answer, and then closes, as its state is unknown."""

    dialect = POSTGRES
    answer_s: float | None = None

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a statement; none for a statement without rows."""
        found = self.execute(with_places(sql), values, binary=True)
        return found.fetchall() if found.description else []

    def page(self, columns: str, source: str, values: Sequence[Any], *, by: str, newest_first: bool) -> list[Any]:
        """The first rows by a column, `data` among their columns, up to one page."""
        order = "DESC" if newest_first else "ASC"
        return self.rows(_PAGE.format(columns=columns, source=source, by=by, order=order), values)

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for an answer. Raises OperationalError when there is none in time."""
        if timeout is not None:  # for notices, of which there may be none
            return super().wait(gen, interval, timeout)
        begun = time.monotonic()
        try:
            return super().wait(gen, interval, self.answer_s)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None:
                raise
            self.close()  # leaving a pipeline without its answer would raise a less helpful error
            if self.answer_s is None or time.monotonic() - begun < self.answer_s:
                raise
            raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s") from error

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Inside, an answer may take any time."""
        answer_s, self.answer_s = self.answer_s, None
        try:
            yield
        finally:
            self.answer_s = answer_s


class Address:
    """The address of a store: a database, by `postgresql://USER@HOST:PORT/DATABASE?...` as libpq has it, a schema in
    it, and the role. Raises UsageError for an invalid URL or schema name.
    """

    def __init__(self, url: str, schema: str) -> None:
        check_text(url=url, schema=schema)
        if not schema or "\0" in schema or len(schema.encode("utf-8", "replace")) > _LONGEST_NAME:
            raise UsageError(f"`schema` is a name of at most {_LONGEST_NAME} bytes")
        try:
            given = conninfo_to_dict(url)
            self._conninfo = make_conninfo(url, **{name: n for name, n in _DEFAULTS.items() if name not in given})
        except psycopg.Error as error:  # its message can have the password in it
            unknown = _UNKNOWN.search(str(error))
            fault = f"has an unknown parameter `{unknown[1]}`" if unknown else "cannot be read"
            raise UsageError(f"the store's URL {fault}; use `postgresql://USER@HOST/DATABASE`") from None
        self.schema = schema
        self.name = _shown(given)

    def connect(
        self,
        application: str = "proctor",
        *,
        answer_s: float | None = None,
        connected: Callable[[Connection], None] = lambda connection: None,
    ) -> Connection:
        """A connection in autocommit, for one thread at a time; without an answer for `answer_s` seconds it is lost.
        `connected` is called with it before its first statement.

        Raises psycopg.Error.
        """
        connection = Connection.connect(
            self._conninfo, autocommit=True, prepare_threshold=None, application_name=application
        )
        connection.answer_s = answer_s
        try:
            connected(connection)
            keep_any_text(connection)
            schema = sql.Identifier(self.schema)
            with connection.pipeline():
                for setting in _SETTINGS:
                    connection.execute(sql.SQL(setting).format(schema=schema) if "{" in setting else setting)
        except BaseException:
            connection.close()
            raise
        return connection


def _shown(given: Mapping[str, Any]) -> str:
    """A URL of these parts, without passwords."""
    host, port, user = (str(given.get(name) or "") for name in ("host", "port", "user"))
    who = f"{user}@" if user else ""
    if host.startswith("/"):
        return f"postgresql://{who}/{given.get('dbname') or ''}?host={host}"
    return f"postgresql://{who}{host}{f':{port}' if port else ''}/{given.get('dbname') or ''}"


def cut(connection: psycopg.Connection[Any]) -> None:
    """Interrupt a wait for the server on this connection, from any thread."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


_HINTS: tuple[tuple[type[Error], StoreErrorKind, str], ...] = (
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
    ("permission denied for|is not permitted to log in", "does not let this role in"),
    ('database ".*" does not exist', "does not exist: create the database first"),
    ('role ".*" does not exist', "does not know this role"),
)
"""A server's messages when it rejects a client; libpq gives no code with them."""
_NOT_TRUSTED: tuple[tuple[str, str], ...] = (
    ("does not match host name", "shows the certificate of another host than the URL names"),
    ("certificate verify failed", "shows a certificate that `sslrootcert` does not vouch for"),
    ("root certificate file", "cannot be told from another: `sslrootcert` names no file that is there"),
    ("server does not support SSL", "speaks no TLS, as the URL demands"),
)
"""libpq's messages when it cannot talk to a server."""

_PASSING: tuple[type[Error], ...] = (
    errors.AdminShutdown,
    errors.CannotConnectNow,
    errors.CrashShutdown,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.TooManyConnections,
    errors.IdleInTransactionSessionTimeout,
    errors.IdleSessionTimeout,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.ReadOnlySqlTransaction,
)


def store_error(error: BaseException, name: str) -> StoreError:
    """The StoreError for an error of this store."""
    if isinstance(error, StoreError):
        return error
    for kind_of_error, kind, hint in _HINTS:
        if isinstance(error, kind_of_error):
            return StoreError(f"store `{name}` {hint} ({_first_line(error)})", kind=kind)
    hint = _why_refused(error) or ("cannot be reached" if isinstance(error, OperationalError) else "cannot be used")
    return StoreError(f"store `{name}` {hint} ({_first_line(error)})", kind="unwritable")


def passes(error: BaseException) -> bool:
    """Whether a retry may succeed: the connection was lost, or other transactions were in conflict."""
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, OperationalError) and error.sqlstate is None and _why_refused(error) is None


def _why_refused(error: BaseException) -> str | None:
    text = str(error)
    if not isinstance(error, OperationalError) or error.sqlstate is not None:
        return None
    refusals = _REFUSED if "FATAL:" in text else _NOT_TRUSTED
    return next((hint for words, hint in refusals if re.search(words, text)), None)


def _first_line(error: BaseException) -> str:
    """The first line of what the server or the driver said."""
    primary = error.diag.message_primary if isinstance(error, Error) else None
    lines = (primary or str(error) or type(error).__name__).strip().splitlines()
    return lines[0]


T = TypeVar("T")
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


# A client that is suspended between two statements of one message is `active` to the server; after the first word of
# a statement, it is `idle in transaction`. The server waits for both for ever. This role may end its own, or any with
# `pg_signal_backend`.
_END_STALLED = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'proctor %' AND pid <> pg_backend_pid()
    AND (state = 'active' OR state LIKE 'idle in transaction%') AND wait_event = 'ClientRead'
    AND state_change < clock_timestamp() - interval '5 seconds'
    AND (pg_has_role(usesysid, 'MEMBER') OR pg_has_role('pg_signal_backend', 'MEMBER'))"""


def tries(patience_s: float) -> Iterator[int]:
    """Count attempts, with growing pauses between, until the time is up."""
    deadline = time.monotonic() + patience_s
    pause, n = _FIRST_PAUSE_S, 0
    while True:
        yield n
        n += 1
        if time.monotonic() + pause > deadline:
            return
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class ServerLink:
    """A connection to a store, opened again when it is lost; used by one thread. A server that cannot be reached is
    tried again for `patience_s` seconds, and an answer may take `answer_s` (None: any time). `check` is called with
    each new connection; it raises StoreError if that leads to another store.
    """

    def __init__(
        self, address: Address, patience_s: float, check: Callable[[Connection], None], answer_s: float | None = None
    ) -> None:
        self._address = address
        self.name = address.name
        self.patience_s = patience_s
        self._check = check
        self._answer_s = answer_s
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._given_up: Callable[[], bool] = self._ended.is_set
        # A unique name by which the server's half of a lost connection is found and ended.
        self.application = f"proctor {uuid.uuid4().hex}"

    @property
    def connection(self) -> Connection:
        """The connection, opened if there is none. Raises psycopg.Error or StoreError."""
        if not self.is_open:
            self._connect()
        assert self._connection is not None
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether there is an open connection."""
        return self._connection is not None and not self._connection.closed

    def query(self, query: Callable[[Connection], T], *, given_up: Callable[[], bool] = lambda: False) -> T:
        """Run an idempotent query, again if the connection is lost, until nobody waits for it (`given_up`). Raises as
        `connection` does.
        """
        self._given_up = given_up
        lost: psycopg.Error | None = None
        for _ in tries(self.patience_s):
            try:
                return query(self.connection)
            except psycopg.Error as error:
                if not passes(error) or given_up():
                    raise
                lost = error
                self.recover(error)
                self.drop()
        assert lost is not None
        raise lost

    def recover(self, error: BaseException) -> None:
        """After a wait for a lock that timed out, end stopped processes' transactions that keep their locks. A server
        that is read-only is left: another may have taken over from it.
        """
        if isinstance(error, errors.ReadOnlySqlTransaction):
            self.drop()
        if isinstance(error, errors.LockNotAvailable):
            with suppress(psycopg.Error, StoreError):
                self.connection.execute(_END_STALLED)

    def drop(self) -> None:
        """Close the connection."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def cut(self) -> None:
        """End the thread's wait on it permanently, from any thread."""
        self._ended.set()
        self.interrupt()

    def interrupt(self) -> None:
        """End the thread's wait for the server, from any thread; one that is only connecting ends when it has."""
        with self._lock:
            if self._connection is not None:
                cut(self._connection)

    def _connect(self) -> None:
        if self._ended.is_set():
            raise StoreError("the store is closed", kind="closed")
        try:
            connection = self._address.connect(self.application, answer_s=self._answer_s, connected=self._connected)
            self._check(connection)
            end_lost_connections(connection, self.application)
        except BaseException:
            self.drop()
            raise

    def _connected(self, connection: Connection) -> None:
        with self._lock:
            self._connection = connection
        if self._ended.is_set() or self._given_up():
            cut(connection)


def end_lost_connections(connection: Connection, application: str) -> None:
    """Have the server close lost connections of that name, which ends their transactions."""
    found = "pid != pg_backend_pid() AND datname = current_database() AND application_name = %s"
    connection.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {found}", (application,))


_MAKING = 1_886_548_852
"""The advisory lock that is held while a store of a database is created or migrated."""


def version_of(connection: PsycopgConnection[Any], name: str) -> tuple[str, int]:
    """The id and the schema version of a store, ("", 0) without one. Raises StoreError for an unsupported version."""
    found = connection.execute("SELECT to_regclass('store')").fetchone()
    if found is None or found[0] is None:
        return "", 0
    try:
        row = connection.execute("SELECT store_id, version FROM store").fetchone()
    except errors.UndefinedColumn:
        row = None
    if row is None:
        raise StoreError(
            f"`{name}` has a table `store` of another program; choose another schema", kind="not_a_store"
        )
    check_version(row[1], name)
    return row[0], row[1]


def bring_up_to_date(connection: Connection, name: str, schema: str) -> str:
    """Create the tables of a new store, or migrate an older one, in one transaction, one starter at a time; returns
    the store's id. Raises StoreError for a role that may not.
    """
    store_id, version = version_of(connection, name)
    if version == schema_version():
        return store_id
    with connection.unhurried():  # a migration of much takes its time
        connection.execute("SET lock_timeout = 0")
        return _migrated(connection, name, schema)


def _migrated(connection: Connection, name: str, schema: str) -> str:
    connection.execute("SELECT pg_advisory_lock(%s)", (_MAKING,))  # a transaction begun before sees no new schema
    try:
        with connection.transaction():
            store_id, version = version_of(connection, name)
            if not version:
                connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            for statement in statements(SCHEMA, version):
                connection.execute(statement)
            if not version:
                store_id = new_id()
                connection.execute("INSERT INTO store VALUES (%s, %s)", (store_id, schema_version()))
                mark, values = marked(STORE, store_mark(store_id))
                connection.execute(with_places(mark), values)
            else:
                connection.execute("UPDATE store SET version = %s", (schema_version(),))
    except errors.InsufficientPrivilege as error:
        which = "is of an older version" if version else "has no tables yet"
        raise StoreError(
            f"store `{name}` {which}, and this role may not change that; run `proctor store --make` as their owner",
            kind="unwritable",
        ) from error
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_MAKING,))
    return store_id
