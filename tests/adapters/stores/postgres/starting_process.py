"""A process that opens a PostgreSQL store on command, and appends to it.

    starting_process.py URL SCHEMA NAME

It writes `ready`; then, after it has read a line, the id of the store.
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
