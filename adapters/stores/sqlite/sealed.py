"""Reads a store in a folder that may not be written, where no process keeps the index of its log: SQLite, which
needs that index, reads nothing there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

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
                f"store `{self._path}` was written while it was read from a folder that you may not write; try again",
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
            reason = (error.strerror or str(error)).lower()
            raise StoreError(
                f"store `{self._path}` has a log, its folder may not be written, and it cannot be copied to "
                f"`{self._folder.name}`: {reason}; copy both to a folder that you can write",
                kind="unwritable",
            ) from error
        except StoreError:
            self.close()
            raise
        return copies[0]


def sealed(path: Path) -> Sealed | None:
    """How to read the store at `path`, if SQLite cannot by itself. Raises StoreError for one in the middle of a
    change that only a writer can undo.
    """
    real = os.path.realpath(path)
    if os.access(os.path.dirname(real), os.W_OK) or os.path.exists(f"{real}-shm") or not os.path.isfile(real):
        return None
    if os.path.exists(f"{real}-journal"):
        raise StoreError(
            f"store `{path}` has an unfinished change in `{Path(real).name}-journal`, and its folder may not be "
            "written; copy both to a folder that you can write",
            kind="unwritable",
        )
    return Sealed(path)
