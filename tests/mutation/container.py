"""A process namespace inside this one, for the effects of one mutant on processes and files."""

import ctypes
import os
import resource
import select
import signal
from collections.abc import Callable
from typing import Final, NoReturn

_NEW_PROCESSES, _NEW_MOUNTS = 0x20000000, 0x00020000
_MEMORY_BYTES: Final = 4 << 30
_libc: Final = ctypes.CDLL(None, use_errno=True)


def contained(work: Callable[[], NoReturn], *, limit_s: float, scratch: str) -> int | None:
    """Run work in a copy of this process that sees no other, and end everything it started.

    Args:
        work: ends the process itself.
        limit_s: seconds of wall-clock time.
        scratch: an empty folder for it, removed afterwards.

    Returns:
        Its exit code, negative for a signal as in `subprocess`; None if it took too long.
    """
    reading, writing = os.pipe()
    outer = os.fork()
    if outer == 0:
        _leave_with(lambda: _first(work, scratch, writing))
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], limit_s)
        report = os.read(reading, 16) if ready else None
    finally:
        os.close(reading)
        os.kill(outer, signal.SIGKILL)
        os.waitpid(outer, 0)
    return None if report is None else int(report or b"-9")


def _first(work: Callable[[], NoReturn], scratch: str, writing: int) -> None:
    """Fork the first process of a new namespace; it ends with us, and all others with it."""
    _succeeded(_libc.unshare(_NEW_PROCESSES | _NEW_MOUNTS))
    first = os.fork()
    if first == 0:
        _leave_with(lambda: _wait_for_all(work, scratch, writing))
    os.close(writing)
    os.waitpid(first, 0)


def _wait_for_all(work: Callable[[], NoReturn], scratch: str, writing: int) -> None:
    """Fork the work, wait for it and for its leftovers, and report its exit code."""
    _succeeded(_libc.prctl(1, signal.SIGKILL))  # PR_SET_PDEATHSIG
    _succeeded(_libc.mount(b"proc", b"/proc", b"proc", 0, None))
    _succeeded(_libc.mount(b"tmpfs", scratch.encode(), b"tmpfs", 0, None))
    worker = os.fork()
    if worker == 0:
        os.close(writing)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        _leave_with(work)
    while True:
        ended, status = os.wait()
        if ended == worker:
            os.write(writing, str(os.waitstatus_to_exitcode(status)).encode())
            return


def _leave_with(work: Callable[[], object]) -> NoReturn:
    try:
        work()
        os._exit(0)
    finally:
        os._exit(70)


def _succeeded(code: int) -> None:
    if code != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
