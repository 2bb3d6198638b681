"""Processes as owners of runs: this one, and whether another one is still there.

A pid alone is not enough, as pids are reused: a process is identified by its pid, its start time, and the machine
(its boot, its namespaces of pids and of times) within which both mean something.

An owner counts as gone on proof only. `/proc` may hide the processes of other users (`hidepid`, `ProtectProc`), or
be that of other pids; the kernel answers `kill(pid, 0)` truly in both cases. What neither proves is unknown.
"""

import os
import socket
import sys
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

from .stored_types import Owner

_STATE, _STARTED = 0, 19
"""Fields of `/proc/PID/stat` after the name: the state, and the start in ticks since boot."""

_here: set[str] = set()
"""The owners of this process that have not left; a forked child begins without any."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_here.clear)


_SIGN = "proctor-supervisor"
"""The name of a file in memory that a process keeps open while it owns runs; `is_owner` finds it there."""

_signs: list[int] = []


def process_mark(run_id: str, store_id: str) -> str:
    """The mark on the processes of a run, unique on a machine where several stores may have a run of that name."""
    return f"{run_id}@{store_id}"


def run_of(mark: str) -> str:
    return mark.rpartition("@")[0] or mark


def enter(kind: str = "own_") -> Owner:
    """This process as an owner, under a new id that begins with `kind`."""
    owner = as_owner(os.getpid(), kind)
    _here.add(owner.owner_id)
    if not _signs and hasattr(os, "memfd_create"):
        with suppress(OSError):
            _signs.append(os.memfd_create(_SIGN))
    return owner


def as_owner(pid: int, kind: str) -> Owner:
    """A process of this machine as an owner under a new id, which begins with `kind`.

    If its start cannot be read, `started` is empty, and the owner counts as gone only when its lease is over.
    """
    try:
        started = started_at(pid)
    except OSError:
        started = None
    return Owner(
        owner_id=f"{kind}{uuid.uuid4().hex}",
        host=socket.gethostname(),
        machine=machine(),
        pid=pid,
        started=started or "",
    )


def leave(owner: Owner) -> None:
    """Note that an owner of this process has left, even if its store could not be reached."""
    _here.discard(owner.owner_id)
    if not _here and _signs:
        os.close(_signs.pop())


def is_owner(pid: int) -> bool:
    """Whether a process of this machine owns runs now; False where that cannot be seen."""
    with suppress(OSError):
        for file in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{file}").startswith(f"/memfd:{_SIGN} "):
                    return True
    return False


def is_gone(owner: Owner) -> bool:
    """Whether the owner's process ran here and is gone, or the owner has left; False where that cannot be known."""
    if owner.pid <= 0 or not owner.started or owner.machine != machine():
        return False
    if owner.pid == os.getpid() and owner.owner_id in _here:
        return False
    try:
        if started_at(owner.pid) != owner.started:
            return True
    except OSError:  # it cannot be looked at now, which proves nothing
        return False
    return owner.pid == os.getpid() and not owner.is_client and owner.owner_id not in _here


@cache
def machine() -> str:
    """The scope within which pids and start times identify a process: this boot of this machine, and its namespaces
    of pids and times.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        times = os.stat("/proc/self/ns/time").st_ino if os.path.exists("/proc/self/ns/time") else ""
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}/{times}"
    except OSError:
        return f"{socket.gethostname()}/{uuid.getnode():x}"


def started_at(pid: int) -> str | None:
    """When the process of this pid started, as text to compare; None if the kernel says that it does not run.

    Raises OSError if that cannot be read.
    """
    return _started_by_proc(pid) if sys.platform == "linux" else _started_by_psutil(pid)


def _started_by_proc(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:  # it runs, and is another user's
        pass
    if os.readlink("/proc/self") != str(os.getpid()):
        raise OSError("/proc is that of another namespace of pids")
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return None if fields[_STATE] in (b"Z", b"X") else fields[_STARTED].decode("ascii")


def _started_by_psutil(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.3f}"
    except psutil.NoSuchProcess:
        return None
    except psutil.Error as error:
        raise OSError(str(error)) from error
