"""A worker in its own process: `working.py STORE [LEASE_S]`. It prints `working` and works until killed.

With a lease, it seems to be on another machine: only its lease shows that it is gone.
"""

import sys
from functools import cache

import anyio

from proctor.adapters.fleet import Worker
from proctor.adapters.stores.store_names import open_store
from proctor.supervisor.control import ownership
from proctor.supervisor.ports import processes


async def main(named: str, lease_s: str) -> None:
    if lease_s:
        ownership.LEASE_S, ownership.RENEW_S = float(lease_s), float(lease_s) / 4
        processes.machine = cache(lambda: "elsewhere")
    store = open_store(named)
    print("working", flush=True)
    await Worker(store).run()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], "".join(sys.argv[2:]))
