"""Opens a file for writing, after checks that leave it untouched.

INVARIANT: a rejected file stays as it was. So the first check reads its bytes, the second uses a read-only
connection.
"""

import contextlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from proctor.policies.errors import os_words
from proctor.supervisor.errors import StoreError, StoreErrorKind, UsageError

from ...kit.values import atomic_write
from ..tables import schema
from ..tables.batches import PAGE_BYTES, PAGE_ROWS
from ..tables.seals import marked, store_mark
from .recording import SQLITE, pragma
from .sealed import Sealed, is_full, sealed

APPLICATION_ID: Final = 0x70726374
"""Marks a store's file: `prct`."""
HEADER_SIZE = 100
INDEX_SIZE = 48
"""How many bytes the head of a log's index has, of which there are two copies."""
_File: TypeAlias = tuple[int, int]


class Connection(sqlite3.Connection):
    """A connection that is counted while it is open; `sealed` where SQLite could not read the file by itself."""

    dialect = SQLITE
    file: _File | None = None
    sealed: Sealed | None = None

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a statement."""
        return self.execute(sql, values).fetchall()

    def page(self, columns: str, source: str, values: Sequence[Any], *, by: str, newest_first: bool) -> list[Any]:
        """The first rows by a column, `data` among their columns, up to one page."""
        order = "DESC" if newest_first else "ASC"
        found = self.execute(f"SELECT {columns} FROM {source} ORDER BY {by} {order} LIMIT {PAGE_ROWS}", values)
        data = columns.split(", ").index("data")
        page: list[Any] = []
        size = 0
        for row in found:
            page.append(row)
            size += len(row[data])
            if size >= PAGE_BYTES:
                found.close()
                break
        return page

    def close(self) -> None:
        """Close it; the last one to a file closes its descriptor."""
        super().close()  # it may write the log into the file: nobody else waits for that
        with _lock:
            file, self.file = self.file, None
            if file is not None:
                _kept[file].leave()


class _Kept:
    """The descriptor of one file, how it is read where SQLite cannot by itself, and the number of its connections."""

    def __init__(self, file: _File, descriptor: int, sealed: Sealed | None) -> None:
        self.file = file
        self.descriptor = descriptor
        self.sealed = sealed
        self.index: int | None = None
        self.connections = 0

    def leave(self) -> None:
        self.connections -= 1
        if not self.connections:
            del _kept[self.file]
            os.close(self.descriptor)
            if self.sealed is not None:
                self.sealed.close()
            if self.index is not None:
                os.close(self.index)


_kept: dict[_File, _Kept] = {}
_lock = threading.Lock()


def connect(path: Path, mode: str, *, busy_timeout_s: float) -> Connection:
    """A connection in autocommit that any thread may use, one at a time; `mode` is ro, rw or rwc. Raises StoreError
    for a file that only a writer could make readable.
    """
    settings: dict[str, Any] = {"timeout": busy_timeout_s, "isolation_level": None, "check_same_thread": False}
    with _lock:
        kept = _keep(path)
    seal = None if kept is None else kept.sealed
    uri = f"file:{quote(os.fspath(path.absolute()))}?mode={mode}" if seal is None else seal.uri
    try:
        connection = sqlite3.connect(uri, uri=True, factory=Connection, **settings)
    except BaseException:
        if kept is not None:
            with _lock:
                kept.leave()
        raise
    connection.file = None if kept is None else kept.file
    connection.sealed = seal
    return connection


def read_header(path: Path) -> bytes:
    """The first bytes, fewer of a shorter file, none without a file. Raises OSError."""
    with _lock:
        try:
            kept = _kept.get(file_id(os.stat(path)))
        except FileNotFoundError:
            return b""
        if kept is not None:
            return os.pread(kept.descriptor, HEADER_SIZE, 0)
        with path.open("rb") as file:
            return file.read(HEADER_SIZE)


def read_index(path: Path) -> bytes:
    """Both copies of the head of a log's index; none if this process has no connection to the file."""
    with _lock, suppress(OSError):
        kept = _kept.get(file_id(os.stat(path)))
        if kept is not None:
            if kept.index is None:
                kept.index = os.open(beside(path, "-shm"), os.O_RDWR | os.O_CLOEXEC)
            return os.pread(kept.index, 2 * INDEX_SIZE, 0)
    return b""


def mend_index(path: Path, size: int) -> bool:
    """Restore the size of a log's index that was cut short, so that SQLite rebuilds it from the log: a read of memory
    beyond the end of the file would kill the process (SIGBUS). Returns whether it was cut short.
    """
    read_index(path)
    with _lock, suppress(OSError):
        kept = _kept.get(file_id(os.stat(path)))
        if kept is not None and kept.index is not None and os.fstat(kept.index).st_size < size:
            os.pwrite(kept.index, bytes(2 * INDEX_SIZE), 0)  # first, so that nobody takes the remainder for whole
            os.ftruncate(kept.index, size)
            return True
    return False


def _keep(path: Path) -> _Kept | None:
    """Count one more connection to a file that exists."""
    with suppress(OSError):  # SQLite will say what is wrong
        file = file_id(os.stat(path))
        if file not in _kept:
            seal = sealed(path)  # before there is a descriptor: it may refuse the file
            _kept[file] = _Kept(file, os.open(path, os.O_RDONLY | os.O_CLOEXEC), seal)
        _kept[file].connections += 1
        return _kept[file]
    return None


def beside(path: Path, suffix: str) -> Path:
    """The path of a file that SQLite keeps beside a store; a link is resolved first."""
    return Path(f"{os.path.realpath(path)}{suffix}")


def file_id(found: os.stat_result) -> _File:
    """The identity of a file under any name."""
    return found.st_dev, found.st_ino


_HINTS: dict[int, tuple[StoreErrorKind, str]] = {
    sqlite3.SQLITE_FULL: (
        "unwritable",
        "is full: free space on its disk, or raise `max_bytes` if that was set; reading still works",
    ),
    sqlite3.SQLITE_READONLY: ("unwritable", "is read-only: make the file and its directory writable"),
    sqlite3.SQLITE_CANTOPEN: ("unwritable", "cannot be opened: its directory must exist and be writable"),
    sqlite3.SQLITE_PERM: ("unwritable", "may not be accessed: check its permissions"),
    sqlite3.SQLITE_BUSY: ("unwritable", "is locked by another process: stop that process or try again"),
    sqlite3.SQLITE_LOCKED: ("unwritable", "is locked by another process: stop that process or try again"),
    sqlite3.SQLITE_IOERR: ("unwritable", "cannot be read or written: check the disk"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "is damaged: restore a copy, or choose another path"),
    sqlite3.SQLITE_NOTADB: ("not_a_store", "is not a proctor store: choose another path"),
}
_WHEN_FULL = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
"""Codes by which SQLite, and a store that is only read, may say that there is no room."""

WHOLE_FILE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
    }
)
"""Codes about the file itself, not about the data to write."""


def primary_code(error: Exception) -> int:
    """The primary result code, or 0 for an error that SQLite did not report."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def store_error(error: Exception, path: Path) -> StoreError:
    """The StoreError for the file at `path`."""
    code = primary_code(error)
    if code in _WHEN_FULL and is_full(beside(path, "").parent):
        code = sqlite3.SQLITE_FULL
    kind, hint = _HINTS.get(code, ("unwritable", "cannot be used"))
    if code == sqlite3.SQLITE_READONLY and all(os.access(each, os.W_OK) for each in (path, beside(path, "").parent)):
        hint = "could not be written when it was opened, and now it can: start this again"
    return StoreError(f"store `{path}` {hint} ({error})", kind=kind)


MAGIC = b"SQLite format 3\x00"


def is_cut_short(path: Path) -> bool:
    """Whether the file is shorter than its own header says."""
    try:
        header, size = read_header(path), path.stat().st_size
    except OSError:
        return False
    if len(header) < HEADER_SIZE:
        return False
    page_size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return size < pages * (65536 if page_size == 1 else page_size)


_CHECKED_WHOLE = 16 * 1024 * 1024
"""A file up to this size is checked page by page when it is opened, a larger one as it is read."""
_WAL_PAGES_BEFORE_CHECKPOINT = 2000
_WRITER_CACHE_KIB = 16 * 1024


def open_for_writing(
    path: Path, *, synchronous: str, busy_timeout_s: float, max_bytes: int | None, may_be_read_only: bool = False
) -> Connection:
    """Open a store, creating or migrating it. Raises StoreError, the file untouched, when it is not one."""
    try:
        _check_file(path, busy_timeout_s)
        _make_private(path)
        connection = connect(path, "rwc", busy_timeout_s=busy_timeout_s)
        try:
            if connection.sealed is not None and not may_be_read_only:
                hint = _HINTS[sqlite3.SQLITE_FULL if is_full(path.parent) else sqlite3.SQLITE_READONLY][1]
                raise StoreError(f"store `{path}` {hint}", kind="unwritable")
            _set_up(connection, path, synchronous, busy_timeout_s, max_bytes)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise (_truncated(path) if is_cut_short(path) else store_error(error, path)) from error
    except OSError as error:
        hint = "write to" if isinstance(error, PermissionError) else "make a file at"
        reason = os_words(error)
        raise StoreError(
            f"store `{path}` cannot be opened: {reason}; choose a path that you can {hint}", kind="unwritable"
        ) from error
    return connection


def _make_private(path: Path) -> None:
    """Create a new store, and with it SQLite's logs, readable for its owner only: prompts and outputs are in it."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _check_file(path: Path, busy_timeout_s: float) -> None:
    if not path.parent.is_dir():
        raise StoreError(f"directory `{path.parent}` does not exist; create it first", kind="unwritable")
    if path.is_dir():
        raise StoreError(f"`{path}` is a directory; name a file in it", kind="unwritable")
    if path.exists() and not path.is_file():
        raise StoreError(f"`{path}` is a pipe or a device, not a store; name a file", kind="not_a_store")
    log = beside(path, "-wal")
    has_log = log.exists()  # looked for first: a new store has its header before it has a log
    header = read_header(path)
    if not header and has_log:  # SQLite would empty it, with what was committed
        raise StoreError(
            f"store `{path}` is gone and has left its log: put it back beside `{log.name}`, or move that away",
            kind="gone",
        )
    if not header:
        return
    if not header.startswith(MAGIC[: len(header)]):
        raise StoreError(f"`{path}` is not a proctor store; choose another path", kind="not_a_store")
    if len(header) < HEADER_SIZE:
        raise _truncated(path)
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(f"`{path}` is a database of another program; choose another path", kind="not_a_store")
    if is_cut_short(path) and not _has_log(path) and is_cut_short(path):
        raise _truncated(path)  # checked again: between the checks another process may have written
    if not beside(path, "-journal").exists():  # one that is left over is undone by the first writer
        _check_database(path, busy_timeout_s)


def _check_database(path: Path, busy_timeout_s: float) -> None:
    connection = connect(path, "ro", busy_timeout_s=busy_timeout_s)
    try:
        check_version(connection, path)
        if path.stat().st_size <= _CHECKED_WHOLE:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                detail = str(found).splitlines()[-1]
                raise StoreError(
                    f"store `{path}` is damaged: restore a copy, or choose another path ({detail})", kind="corrupt"
                )
    finally:
        connection.close()


def _set_up(
    connection: Connection, path: Path, synchronous: str, busy_timeout_s: float, max_bytes: int | None
) -> None:
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
    # The application id must reach the file itself before write-ahead logging begins: the first check reads it.
    bring_up_to_date(connection, path)
    if connection.sealed is not None:
        return  # each write is refused
    _use_write_ahead_log(connection, path, busy_timeout_s)
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES_BEFORE_CHECKPOINT}")
    if max_bytes is not None:
        page_size = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page_size)}")


def _use_write_ahead_log(connection: sqlite3.Connection, path: Path, busy_timeout_s: float) -> None:
    """Switch to the write-ahead log, which needs the file exclusively; SQLite itself does not wait for that."""
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            break
    if mode != "wal":
        raise StoreError(
            f"store `{path}` is on a file system without shared memory; choose a local disk", kind="unwritable"
        )


def _truncated(path: Path) -> StoreError:
    return StoreError(f"store `{path}` is truncated: restore a copy, or choose another path", kind="truncated")


def check_not_empty(path: Path) -> None:
    """Raises StoreError for a file without a byte: SQLite takes it for a new database."""
    if path.is_file() and not read_header(path) and not _has_log(path):
        raise StoreError(
            f"`{path}` is empty: no run was ever stored in it, or it was truncated; restore a copy", kind="truncated"
        )


def _has_log(path: Path) -> bool:
    """Whether the file has a log, so that its own length means nothing yet."""
    return any(beside(path, suffix).exists() for suffix in ("-wal", "-journal"))


_ALL_PAGES = -1
"""Copies in one step, as a copy in several starts again whenever another process writes."""


def copy_store(path: Path, target: Path) -> int:
    """Copy a store to a new file, readable for its owner only; returns its size in bytes.

    The copy is a complete store, or does not exist. Writers do not wait. Raises StoreError: the store cannot be read,
    or the copy cannot be written; `kind` says why; UsageError: there is something at `target`, or no folder for it.
    """
    if target.exists() or target.is_symlink():
        raise UsageError(f"`{target}` exists; name a new file")
    if not target.parent.is_dir():
        raise UsageError(f"`{target}` cannot be written: there is no folder `{target.parent}`")
    try:
        with closing(connect(path, "ro", busy_timeout_s=30.0)) as source:
            check_version(source, path)
            with atomic_write(target, mode=0o600) as file:
                try:
                    with closing(sqlite3.connect(file.name)) as copy:
                        source.backup(copy, pages=_ALL_PAGES)
                        copy.execute("PRAGMA journal_mode = DELETE")  # one file, also after somebody has read it
                except sqlite3.Error as error:  # only the copy is written
                    for suffix in ("-journal", "-wal", "-shm"):  # nor could it be undone
                        beside(Path(file.name), suffix).unlink(missing_ok=True)
                    no_space = primary_code(error) == sqlite3.SQLITE_FULL or is_full(target.parent)
                    raise store_error(error, target if no_space else path) from error
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    except OSError as error:
        reason = os_words(error)
        raise StoreError(f"`{target}` cannot be written: {reason}", kind="unwritable") from error
    return target.stat().st_size


_HEAD = 32
_FRAME = 24
"""Bytes of the log's head, and of the head of each page in it (https://sqlite.org/fileformat.html, 4.1)."""
_ATTEMPTS = 5
"""How often a log is looked at before it counts as cut short."""


class _WatchedFile(NamedTuple):
    """A file beside the store as it was at the last check."""

    id: tuple[int, int] | None = None
    size: int = 0


class _Log:
    """A log, compared with its index, which says how many pages are committed to it.

    If a log was cut short, SQLite still writes behind the last page that it knows of, which leaves a hole in place of
    committed pages.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = beside(path, "-wal")
        self._last = (b"", 0, b"")

    def is_whole(self) -> bool:
        """Whether the last page exists, and the page that was last at the previous check is unchanged.

        Another process may begin the log anew between two reads of one look; what is cut short stays so.
        """
        before = self._last
        return any(self._seems_whole(before) for _ in range(_ATTEMPTS))

    def _seems_whole(self, before: tuple[bytes, int, bytes]) -> bool:
        index = read_index(self._path)
        if len(index) < 2 * INDEX_SIZE or index[:INDEX_SIZE] != index[INDEX_SIZE:]:
            return True  # not made yet, or just being written
        salt, pages = index[32:40], int.from_bytes(index[16:20], sys.byteorder)
        if not pages:
            self._last = (salt, 0, b"")
            return True
        try:
            with self._log.open("rb", buffering=0) as log:
                head = os.pread(log.fileno(), _HEAD, 0)
                size = int.from_bytes(head[8:12], "big") + _FRAME
                last, earlier = (
                    os.pread(log.fileno(), size, _HEAD + (n - 1) * size) for n in (pages, before[1] or 1)
                )
        except OSError:
            return False
        if head[16:24] != salt:
            return False
        whole = len(last) == size and last[8:16] == salt
        whole = whole and (before[0] != salt or not before[1] or earlier == before[2])
        if whole:
            self._last = (salt, pages, last)
        return whole


class SameFile:
    """Checks that the store's path still leads to the same file.

    SQLite keeps reading and writing a file that was removed or replaced: its commits are then lost with the process,
    and its reads outdated.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.absolute()
        self._file_id: tuple[int, int] | None = None
        self._beside = {beside(path, suffix): _WatchedFile() for suffix in ("-wal", "-shm")}
        self._index_cut = False
        self.found()

    def found(self) -> os.stat_result:
        """The file's state now. Raises StoreError if it, or one that SQLite keeps beside it, was replaced."""
        found = _stat(self._file)
        if found is None:
            raise self._gone("was removed")
        if self._file_id not in (None, file_id(found)):
            raise self._gone("was replaced by another file")
        self._file_id = file_id(found)
        for path, before in self._beside.items():
            there = _stat(path)
            now = _WatchedFile() if there is None else _WatchedFile(file_id(there), there.st_size)
            if before.id is not None and now.id != before.id:
                raise self._gone(f"lost `{path.name}` beside it")
            self._index_cut |= now.size < before.size and path.name.endswith("-shm")
            if self._index_cut:  # it is in memory: who reads on there is ended
                raise self._cut_short(f"`{path.name}` beside ")
            self._beside[path] = now
        return found

    def mend_index(self) -> None:
        """Mend the index, before a connection reads it without `found`, as at the end of a transaction or a close."""
        self._index_cut |= mend_index(self._path, self._beside[beside(self._path, "-shm")].size)

    def _cut_short(self, what: str = "") -> StoreError:
        return StoreError(f"{what}store `{self._path}` was cut short while it was in use", kind="truncated")

    def _gone(self, how: str) -> StoreError:
        return StoreError(f"store `{self._path}` {how} while it was in use", kind="gone")


class IntactFile(SameFile):
    """The file and its log as they were at the last check."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._log = _Log(self._file)
        self._size = 0
        self.check()

    def check(self) -> None:
        """Raises StoreError if the file, or its log with commits of its own, was removed, replaced or cut short since
        the last check.
        """
        found = self.found()
        if found.st_size < self._size and not self._is_whole():
            raise self._cut_short()
        self._size = found.st_size
        if not self._log.is_whole():
            raise self._cut_short("the log of ")

    def _is_whole(self) -> bool:
        """Whether a file that became smaller records so itself, as after a vacuum by any process."""
        return len(read_header(self._file)) == HEADER_SIZE and not is_cut_short(self._file)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a store. Raises StoreError for a file that is not ours, or not read."""
    if pragma(connection, "application_id") != APPLICATION_ID:
        check_not_empty(path)
        raise StoreError(f"`{path}` is a database of another program; choose another path", kind="not_a_store")
    version = pragma(connection, "user_version")
    schema.check_version(version, str(path))
    return version


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file, or migrate an older one, in one transaction."""
    if pragma(connection, "user_version") == schema.schema_version():
        check_version(connection, path)
        return
    is_new = pragma(connection, "page_count") == 0
    connection.execute("BEGIN" if is_new else "BEGIN IMMEDIATE")
    try:
        if is_new:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # the first write, as it decides on the first page
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            version = 0
        else:
            version = check_version(connection, path)
        for statement in schema.statements(schema.SQLITE, version):
            connection.execute(statement)
        if not version:
            store_id = schema.new_id()
            connection.execute("INSERT INTO store VALUES (?)", (store_id,))
            connection.execute(*marked(schema.STORE, store_mark(store_id)))
        connection.execute(f"PRAGMA user_version = {schema.schema_version()}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
