"""A process with many runs that stay active until somebody cancels them: `python many_runs.py STORE COUNT`.

It prints `going` when all are active. For each line of its input it tries to start one more run and prints the
outcome. At the end of its input it exits.
"""

import sys

import anyio
from anyio import to_thread

from proctor.adapters.stores import SQLiteStore
from proctor.policies import Limits, Policy
from proctor.supervisor import ProctorError, Supervisor
from proctor.supervisor.testing import FakeAdapter, Pause

OPEN = Policy(name="open", limits=Limits(max_tool_calls=9))


async def main(path: str, count: int) -> None:
    async with SQLiteStore(path) as store, Supervisor(store, max_running=count + 10) as supervisor:
        for _ in range(count):
            await supervisor.start(FakeAdapter([Pause()]), "go", policies=[OPEN])
        print("going", flush=True)
        while await to_thread.run_sync(sys.stdin.readline):
            try:
                await supervisor.start(FakeAdapter(), "go", policies=[OPEN])
                print("started", flush=True)
            except ProctorError as error:
                print(error.code, flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]))
