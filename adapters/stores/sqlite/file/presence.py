"""Whether what was written is still in the file that has the store's name."""

from __future__ import annotations

import os
from pathlib import Path

from proctor.supervisor.errors import StoreError

from .descriptors import HEADER_SIZE, file_id, read_header
from .header import is_cut_short


class SameFile:
    """The file that the store's name led to first.

    SQLite reads and writes on in a file that was removed or replaced, and tells nobody: what it commits then is gone
    when the process is, and what it reads is of the past.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.absolute()
        self._file_id: tuple[int, int] | None = None
        self.found()

    def found(self) -> os.stat_result:
        """The file as it is now. Raises StoreError for one that was removed or replaced."""
        found = _look(self._file)
        if found is None:
            raise self._gone("was removed")
        if self._file_id not in (None, file_id(found)):
            raise self._gone("was replaced by another file")
        self._file_id = file_id(found)
        return found

    def _gone(self, how: str) -> StoreError:
        return StoreError(f"store `{self._path}` {how} while it was in use", kind="gone")


class Presence(SameFile):
    """The file and its log as they were when last looked at."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._log = Path(f"{self._file}-wal")
        self._log_id: tuple[int, int] | None = None
        self._size = 0
        self.check()

    def check(self) -> None:
        """Raises StoreError for a file that was removed, replaced or cut short since the last look."""
        found = self.found()
        if found.st_size < self._size and not self._is_whole():
            raise StoreError(f"store `{self._path}` was cut short while it was in use", kind="truncated")
        self._size = found.st_size
        log = _look(self._log)
        if self._log_id is not None and (log is None or file_id(log) != self._log_id):
            raise self._gone("lost the log beside it")
        self._log_id = None if log is None else file_id(log)

    def _is_whole(self) -> bool:
        """Whether a file that has become smaller says so itself: room was given back, by whatever process."""
        return len(read_header(self._file)) == HEADER_SIZE and not is_cut_short(self._file)


def _look(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
