"""How far events were sent, kept in a file beside the store. One process at a time sends by it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from proctor.supervisor.errors import UsageError

from ...kit.whole_file import whole_file


class CursorFile:
    """A place in the store's log, written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str | None:
        """The place; None if nothing was sent yet."""
        try:
            return self.path.read_text(encoding="ascii").strip() or None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError) as error:
            raise UsageError(f"`{self.path}` cannot be read: {error}") from None

    def write(self, cursor: str) -> None:
        """Store a place."""
        with whole_file(self.path) as file:
            file.write(cursor.encode("ascii"))


@contextmanager
def cursor_of(store: Path, url: str) -> Iterator[CursorFile]:
    """The cursor of a receiver of a store. Raises UsageError while another process sends to it."""
    name = f"{store.name}.webhook-{sha256(url.encode()).hexdigest()[:12]}"
    try:
        lock = os.open(store.with_name(f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            f"the webhook's place cannot be kept beside `{store}`: {(error.strerror or '').lower()}"
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another process sends the events of `{store}` to `{urlsplit(url).netloc}`") from None
        yield CursorFile(store.with_name(name))
    finally:
        os.close(lock)
