"""A process that appends to a SQLite store and prints what was acknowledged.

    appending_process.py PATH NAME BATCHES BACKEND    append that many batches from each task, then exit
    appending_process.py PATH                         for each name on standard input, fork a process
                                                      that appends until it is killed

Lines written: `pid N`, then `ack SESSION SEQ EVENT_ID` for each stored event, and `dead` after a fork ended.
"""

import itertools
import os
import sys
from pathlib import Path

import anyio
import trio  # noqa: F401 loaded once, before the first fork

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import MessageReceived

SESSIONS = ("s0", "s1", "s2")
TASKS = 4


def say(*lines: str) -> None:
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


async def append(store: SQLiteStore, name: str, batches: int | None) -> None:
    """Append batches of one to five events, to every session in turn."""
    for n in itertools.count() if batches is None else range(batches):
        session_id = SESSIONS[n % len(SESSIONS)]
        events = [
            MessageReceived(session_id=session_id, run_id=name, event_id=f"{name}.{n}.{k}", content="x" * 100 * k)
            for k in range(1 + n % 5)
        ]
        stored = await store.append(events)
        say(*(f"ack {session_id} {event.seq} {event.event_id}" for event in stored))


async def run(path: Path, name: str, batches: int | None) -> None:
    async with SQLiteStore(path, busy_timeout_s=60) as store, anyio.create_task_group() as tasks:
        for task in range(TASKS):
            tasks.start_soon(append, store, f"{name}.{task}", batches)


def fork_for_each_line(path: Path) -> None:
    for n, line in enumerate(sys.stdin):
        pid = os.fork()
        if pid == 0:
            say(f"pid {os.getpid()}")
            anyio.run(run, path, line.strip(), None, backend=("asyncio", "trio")[n % 2])
            os._exit(0)
        os.waitpid(pid, 0)
        say("dead")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        fork_for_each_line(Path(sys.argv[1]))
    else:
        anyio.run(run, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), backend=sys.argv[4])
