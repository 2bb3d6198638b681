"""Values and files of the program: for records, by name, and written atomically."""

import getpass
import importlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import IO, Any

from proctor.policies.values import json_values
from proctor.policies.values.foreign_code import as_data, isolated, named_error
from proctor.policies.values.foreign_code import to_jsonable as to_jsonable
from proctor.supervisor.errors import UsageError


def is_finite(value: Any) -> bool:
    """Whether JSON can express every number in a value; records have a text for any other."""
    try:
        return isolated(json_values.is_finite, value, as_data)
    except Exception:
        return False


_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


def whole_characters(data: bytes) -> bytes:
    """JSON with U+FFFD for every half of a character: programs in JavaScript write halves where they cut a text."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], data)


def login_name() -> str:
    """The user's login name; `uid 10001` if the system has no name for the user, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def import_object(given: Any, *, what: str) -> Any:
    """The object itself, or the one that `module:name` stands for; modules of the working directory count.

    Args:
        given: an object, or text of that form.
        what: its name in the message.

    Raises:
        UsageError: the text has another form, there is no such module or name, or the module raises.
    """
    if not isinstance(given, str):
        return given
    module, colon, path = given.partition(":")
    if not (module and colon and path):
        raise UsageError(f"{what} `{given}` is not of the form `module:name`")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        imported = isolated(importlib.import_module, module)
    except Exception as error:
        raise UsageError(f"{what} `{given}`: module `{module}` cannot be imported: {named_error(error)}") from error
    try:
        return attrgetter(path)(imported)
    except AttributeError:
        raise UsageError(f"{what} `{given}`: module `{module}` has no `{path}`") from None


_NEW_FILE = 0o666
_NAME = 100
"""How many characters of a file's name are in that of its temporary file."""


@contextmanager
def atomic_write(path: str | Path, *, mode: int = _NEW_FILE) -> Iterator[IO[bytes]]:
    """A file to write to, which replaces the one at `path` when the block ends without an error. It keeps the old
    file's permissions; a new one gets `mode`, less the umask. A device or a pipe is written to directly. Raises
    OSError.
    """
    real, before = Path(os.path.realpath(path)), None
    with suppress(FileNotFoundError):
        before = real.stat().st_mode
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
