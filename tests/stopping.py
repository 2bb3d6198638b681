"""Processes that are stopped, but not while they hold the file of a store: nobody could write it then."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil


def stop_between_writes(process: subprocess.Popen[Any], path: Path) -> None:
    """SIGSTOP; returns once it stands still and others can write the SQLite file."""
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
