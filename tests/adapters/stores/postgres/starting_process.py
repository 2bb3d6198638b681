"""A process that opens a PostgreSQL store, when it is told to, and appends to it.

    starting_process.py URL SCHEMA NAME

Lines written: `ready`; then, after a line was read, the id of the store.
"""

import sys

import anyio

from proctor.adapters.stores import PostgresStore
from proctor.policies.events import MessageReceived


async def start(url: str, schema: str, name: str) -> str:
    async with PostgresStore(url, schema=schema, patience_s=60) as store:
        await store.append([MessageReceived(session_id=name, content=name)])
        return (await store.place()).store_id


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    url, schema, name = sys.argv[1:]
    print(anyio.run(start, url, schema, name), flush=True)
