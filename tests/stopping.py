"""Processes that are suspended, but never while they lock a store's file, or killed together with their writer."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from tests.forked_programs import Forked


@contextmanager
def killed_at_the_end(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process with its output as lines. At exit, the processes that wrote them are gone, as a forked `proctor` may
    have others.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more) as process:
        assert process.stdout is not None
        try:
            yield process
        finally:
            writers = _writers(process.stdout)
            process.kill()
            process.stdout.read()
            for writer in writers:  # a process closes its files a moment before it is gone
                select.select([writer], [], [])
                os.close(writer)


def _writers(pipe: IO[str]) -> list[int]:
    """The processes whose standard output is this pipe, each as a file that can be read once it is gone."""
    writers = []
    for pid in psutil.pids():
        with suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/1"), os.fstat(pipe.fileno())):
                writers.append(os.pidfd_open(pid))
    return writers


def stop_between_writes(process: subprocess.Popen[Any] | Forked, path: Path) -> None:
    """SIGSTOP; returns once it is suspended and others can write the SQLite file."""
    while True:
        process.send_signal(signal.SIGSTOP)
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        if _can_be_written(path):
            return
        process.send_signal(signal.SIGCONT)


def _can_be_written(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
    return True
