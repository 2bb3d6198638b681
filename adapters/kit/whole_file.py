"""A file that is written as a whole, or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_NEW_FILE = 0o666
_NAME = 100
"""So much of its name is in that of the file beside it."""


@contextmanager
def whole_file(path: str | Path, *, mode: int = _NEW_FILE) -> Iterator[IO[bytes]]:
    """A file to write to, put in place when the block ends well; until then, and after an error, what was there
    before stands. It keeps the rights of what was there; a new one gets `mode`, less the umask. A device or a pipe
    is written to directly. Raises OSError.
    """
    real = Path(path).resolve()
    before = real.stat().st_mode if real.exists() else None
    if before is not None and not stat.S_ISREG(before):
        with real.open("wb") as file:
            yield file
        return
    beside = real.with_name(f".{real.name[:_NAME]}-{secrets.token_hex(8)}")
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            os.chmod(beside, stat.S_IMODE(before))
        os.replace(beside, real)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
