"""Whether what was written is still in the file that has the store's name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from proctor.supervisor.errors import StoreError

from .descriptors import HEADER_SIZE, INDEX_SIZE, beside, file_id, read_header, read_index
from .header import is_cut_short

_HEAD = 32
_FRAME = 24
"""Bytes of the log's head, and of the head of each page in it (https://sqlite.org/fileformat.html, 4.1)."""


class _File(NamedTuple):
    """A file beside the store as it was when last looked at."""

    id: tuple[int, int] | None = None
    size: int = 0


class _Log:
    """A log, held to its index, which says how many pages are committed to it.

    SQLite writes on behind the last page that it knows of, though the file has become shorter: what was committed
    before is then a hole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = beside(path, "-wal")
        self._last = (b"", 0)

    def is_whole(self) -> bool:
        """Whether the last page is there, and the one that was the last when it was looked before."""
        index = read_index(self._path)
        if len(index) < 2 * INDEX_SIZE or index[:INDEX_SIZE] != index[INDEX_SIZE:]:
            return True  # not made yet, or just being written
        salt, pages = index[32:40], int.from_bytes(index[16:20], sys.byteorder)
        before, self._last = self._last, (salt, pages)
        if not pages:
            return True
        try:
            with self._log.open("rb", buffering=0) as log:
                head = os.pread(log.fileno(), _HEAD, 0)
                size = int.from_bytes(head[8:12], "big") + _FRAME
                last = {pages, before[1] if before[0] == salt else pages} - {0}
                salts = [os.pread(log.fileno(), 8, _HEAD + (page - 1) * size + 8) for page in last]
                whole = os.fstat(log.fileno()).st_size >= _HEAD + pages * size
        except OSError:
            return False
        if head[16:24] != salt:
            return len(head) == _HEAD and read_index(self._path) != index  # another process has just begun it anew
        return whole and all(found == salt for found in salts)


class SameFile:
    """The file that the store's name led to first.

    SQLite reads and writes on in a file that was removed or replaced, and tells nobody: what it commits then is gone
    when the process is, and what it reads is of the past.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.absolute()
        self._file_id: tuple[int, int] | None = None
        self._beside = {beside(path, suffix): _File() for suffix in ("-wal", "-shm")}
        self.found()

    def found(self) -> os.stat_result:
        """The file as it is now. Raises StoreError for one that was removed or replaced, or what SQLite keeps beside
        it.
        """
        found = _look(self._file)
        if found is None:
            raise self._gone("was removed")
        if self._file_id not in (None, file_id(found)):
            raise self._gone("was replaced by another file")
        self._file_id = file_id(found)
        for path, before in self._beside.items():
            there = _look(path)
            now = _File() if there is None else _File(file_id(there), there.st_size)
            if before.id is not None and now.id != before.id:
                raise self._gone(f"lost `{path.name}` beside it")
            if now.size < before.size and path.name.endswith("-shm"):  # it is in memory: who reads on there is ended
                raise self._cut_short(f"`{path.name}` beside ")
            self._beside[path] = now
        return found

    def _cut_short(self, what: str = "") -> StoreError:
        return StoreError(f"{what}store `{self._path}` was cut short while it was in use", kind="truncated")

    def _gone(self, how: str) -> StoreError:
        return StoreError(f"store `{self._path}` {how} while it was in use", kind="gone")


class Presence(SameFile):
    """The file and its log as they were when last looked at."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._log = _Log(self._file)
        self._size = 0
        self.check()

    def check(self) -> None:
        """Raises StoreError for a file that was removed, replaced or cut short since the last look, or its log: what
        was committed to that may be nowhere else.
        """
        found = self.found()
        if found.st_size < self._size and not self._is_whole():
            raise self._cut_short()
        self._size = found.st_size
        if not self._log.is_whole():
            raise self._cut_short("the log of ")

    def _is_whole(self) -> bool:
        """Whether a file that has become smaller says so itself: room was given back, by whatever process."""
        return len(read_header(self._file)) == HEADER_SIZE and not is_cut_short(self._file)


def _look(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
