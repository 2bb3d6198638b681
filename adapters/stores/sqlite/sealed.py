"""Reads a store in a folder that may not be written, or on a full disk, where no process keeps the index of its log:
SQLite, which needs that index, reads nothing there.
"""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

from proctor.policies.errors import os_words
from proctor.supervisor.errors import StoreError


class Sealed:
    """Such a store at one moment: the file itself if it has no log, else a private copy of both, until `close`.

    # INVARIANT: nothing is read of a store that was written since: `check` is called before and after each read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts = [Path(f"{os.path.realpath(path)}{suffix}") for suffix in ("", "-wal")]
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._state = self._current()
        read, options = self._parts[0], "mode=ro&immutable=1"
        if self._state[1]:
            read, options = self._copied(), "mode=ro"
        self.uri = f"file:{quote(os.fspath(read))}?{options}"

    def check(self) -> None:
        """Raises StoreError if the store was written since it was opened."""
        if self._current() != self._state:
            raise StoreError(
                f"store `{self._path}` was written since it was opened where nothing could be: start this again",
                kind="gone",
            )

    def close(self) -> None:
        """Remove the copy."""
        if self._folder is not None:
            self._folder.cleanup()

    def _current(self) -> list[tuple[int, ...]]:
        """The identity, time and size of the file and of its log; nothing of one that is missing or empty."""
        found: list[tuple[int, ...]] = []
        for part in self._parts:
            try:
                state = os.stat(part)
            except FileNotFoundError:
                found.append(())
            else:
                found.append((state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size) if state.st_size else ())
        return found

    def _copied(self) -> Path:
        self._folder = tempfile.TemporaryDirectory(prefix="proctor-read-")
        try:
            copies = [Path(shutil.copyfile(part, Path(self._folder.name, part.name))) for part in self._parts]
            self.check()
        except OSError as error:
            self.close()
            reason = os_words(error)
            raise StoreError(
                f"store `{self._path}` has a log, nothing can be written beside it, and it cannot be copied to "
                f"`{self._folder.name}`: {reason}; copy both to a folder that you can write",
                kind="unwritable",
            ) from error
        except StoreError:
            self.close()
            raise
        return copies[0]


_SMALLEST_INDEX = 32768
"""Bytes of an index of a few pages (https://sqlite.org/walformat.html, 2)."""


def sealed(path: Path) -> Sealed | None:
    """How to read the store at `path`, if SQLite cannot by itself. Raises StoreError for one in the middle of a
    change that only a writer can undo.
    """
    real = Path(os.path.realpath(path))
    if not real.is_file() or _has_index(real) or (os.access(real.parent, os.W_OK) and not is_full(real.parent)):
        return None
    if os.path.exists(f"{real}-journal"):
        raise StoreError(
            f"store `{path}` has an unfinished change in `{real.name}-journal`, and nothing can be written in its "
            "folder; copy both to a folder that you can write",
            kind="unwritable",
        )
    return Sealed(path)


def _has_index(real: Path) -> bool:
    """Whether a process keeps the index; SQLite leaves a shorter one where there was no room for it."""
    try:
        return os.stat(f"{real}-shm").st_size >= _SMALLEST_INDEX
    except OSError:
        return False


def is_full(folder: Path) -> bool:
    """Whether the disk has no room for the index of a log: only where the system says so, and it is so."""
    try:
        if os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize >= _SMALLEST_INDEX:
            return False
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_SMALLEST_INDEX))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False
