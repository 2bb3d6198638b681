"""A worker as a process of its own: `working.py STORE [MAX_RUNNING]`; says `working`, and works until killed."""

from __future__ import annotations

import sys

import anyio

from proctor.adapters.cluster import Worker
from proctor.adapters.stores.naming import open_store


async def main() -> None:
    """Work."""
    store = open_store(sys.argv[1])
    print("working", flush=True)
    await Worker(store, max_running=int(sys.argv[2]) if len(sys.argv) > 2 else 100).run()


anyio.run(main)
