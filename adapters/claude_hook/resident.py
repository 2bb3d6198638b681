"""The process that judges: hooks come to a private socket and are answered one at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import threading
import time
from pathlib import Path

from .answers import said
from .judging import HookJudge
from .knock import SOCKET

IDLE_S = 900.0
"""It ends when it was not asked for so many seconds; the next hook starts another."""
LOOK_S = 5.0
"""How often it looks whether it is still needed."""
READ_S = 20.0
"""Seconds a hook has to send its input."""


def serve(folder: Path, judge: HookJudge) -> None:
    """Answer hooks in `folder`, unless another process does; returns when this one is not needed any more.

    The folder is the caller's own, with mode 0700.
    """
    os.chdir(folder)
    os.umask(0o077)
    with Path("lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        listener = _listening()
        try:
            _Resident(listener, judge).run()
        finally:
            judge.close()
            with contextlib.suppress(OSError):
                os.unlink(SOCKET)  # before the lock goes: another may put its own there then
            listener.close()


def _listening() -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen(64)
    listener.settimeout(LOOK_S)
    return listener


class _Resident:
    def __init__(self, listener: socket.socket, judge: HookJudge) -> None:
        self._listener = listener
        self._judge = judge
        self._judging = threading.Lock()
        self._asked_at = time.monotonic()
        self._place = os.stat(SOCKET).st_ino
        self._code = _code()

    def run(self) -> None:
        """Take connections, each in a thread of its own: one that sends nothing keeps nobody waiting."""
        while self._needed():
            try:
                door, _ = self._listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=self._attend, args=(door,), daemon=True).start()
        self._judging.acquire()  # what is being judged is answered; nothing is after it

    def _needed(self) -> bool:
        try:
            there = os.stat(SOCKET).st_ino == self._place
        except OSError:  # its folder was removed
            there = False
        busy = self._judging.locked() or time.monotonic() - self._asked_at < IDLE_S
        return there and busy and self._code == _code()

    def _attend(self, door: socket.socket) -> None:
        with door, contextlib.suppress(OSError):
            if not _from_this_user(door) or self._code != _code():
                return
            door.settimeout(READ_S)
            data = b"".join(iter(lambda: door.recv(1 << 20), b""))
            with self._judging:
                self._asked_at = time.monotonic()
                answer = self._answer(data)
            door.sendall(answer)

    def _answer(self, data: bytes) -> bytes:
        """`=` and what the client is told, or `!` and why nothing could be judged."""
        try:
            told = said(*self._judge.answered(data))
        except Exception as error:
            return b"!" + (str(error) or type(error).__name__).encode("utf-8", "backslashreplace")
        return b"=" + (json.dumps(told).encode() + b"\n" if told else b"")


def _from_this_user(door: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder keeps others out
    _, user, _ = struct.unpack("3i", door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.geteuid())


def _code() -> int:
    """Changes when another version of this package is installed: a process of the old one is not needed then."""
    try:
        return os.stat(__file__).st_mtime_ns
    except OSError:
        return 0
