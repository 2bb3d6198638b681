"""Processes that are suspended, but never while they lock a store's file, or killed together with their writer."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from tests.forked_programs import Forked


@contextmanager
def killed_at_the_end(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process with its output as lines. At exit, its writing process is gone too, as a forked `proctor` may have
    one.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more) as process:
        assert process.stdout is not None
        try:
            yield process
        finally:
            process.kill()
            process.stdout.read()


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
