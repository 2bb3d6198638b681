"""The keys of a terminal, one by one."""

from __future__ import annotations

import codecs
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)


_NAMES = {
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
"""The sequences a terminal sends for keys that are not letters, with the names of those keys here."""


@contextmanager
def key_by_key(fd: int) -> Iterator[None]:
    """The terminal gives each key at once and does not show it; Ctrl-C stays what it is."""
    import termios
    import tty

    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def pressed(fd: int) -> AsyncIterator[str]:
    """The keys of a terminal until it is gone: a letter as itself, others by name."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while True:
        await anyio.wait_readable(fd)
        try:
            data = os.read(fd, 4096)
        except OSError:  # the terminal was taken away
            return
        if not data:
            return
        for key in keys_in(decode(data)):
            yield key


def keys_in(text: str) -> Iterator[str]:
    """The keys in what a terminal sent; what is neither text nor known is left out."""
    for found in _KEY.findall(text):
        name = _NAMES.get(found, found if found.isprintable() else "")
        if name:
            yield name
