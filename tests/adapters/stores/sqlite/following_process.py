"""A process that follows a SQLite store and prints the events it gets.

    following_process.py PATH CURSOR COUNT BACKEND

Lines written: `saw SESSION SEQ` for each of COUNT events stored after CURSOR, then `cursor CURSOR`.
"""

import sys

import anyio

from proctor.adapters.stores import SQLiteStore
from proctor.supervisor.watch.subscriptions import Subscriptions


async def follow(path: str, cursor: str, count: int) -> None:
    async with SQLiteStore(path, busy_timeout_s=60) as store, Subscriptions(store).subscribe(after=cursor) as events:
        for _ in range(count):
            event = await anext(events)
            print("saw", event.session_id, event.seq)
        print("cursor", events.cursor)


if __name__ == "__main__":
    anyio.run(follow, sys.argv[1], sys.argv[2], int(sys.argv[3]), backend=sys.argv[4])
