"""Processes that own runs of a store, given by the path of a file or the URL of a database.

    owning_process.py STORE execute         executes each created run that a line of standard input names
    owning_process.py STORE hold SECONDS    starts a run of session `s` under a lease of this many seconds: its agent
                                            proposes a call, and another one after each line of standard input
    owning_process.py STORE work            for each name on standard input, forks a process that executes the
                                            created runs of the store, in competition with the others, until killed

Lines written: `pid N`, `ack SESSION SEQ RUN TYPE` for each stored event, `ran RUN CALL` for each call that really
ran, `ended STATUS` or `refused KIND MESSAGE`, and `dead` after a fork has ended.
"""

import os
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import trio  # noqa: F401 loaded once, before the first fork

from proctor.adapters.stores import PostgresStore, SQLiteStore
from proctor.adapters.stores.store_names import is_url
from proctor.policies.events import Event, MessageReceived
from proctor.policies.policy import Policy
from proctor.supervisor import ProctorError, RunFilter, Store, Supervisor, execute_run
from proctor.supervisor.control import ownership
from proctor.supervisor.testing import Ask, FakeAdapter
from tests.whole_records import place_of

OPEN = Policy(name="open")


def opened(name: str) -> SQLiteStore | PostgresStore:
    return PostgresStore(name, patience_s=60) if is_url(name) else SQLiteStore(name, busy_timeout_s=60)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def acknowledge(event: Event) -> None:
    say(f"ack {place_of(event)}")


async def line_read() -> None:
    await anyio.to_thread.run_sync(sys.stdin.readline)


def agent(run_id: str, calls: int, *, asking: bool = False) -> FakeAdapter:
    """An agent whose calls print that they ran."""

    def call(n: int) -> Ask:
        async def runs() -> None:
            say(f"ran {run_id} c{n}")

        return Ask(id=f"c{n}", name="read", first=line_read if asking and n else None, meanwhile=runs)

    return FakeAdapter([step for n in range(calls) for step in (MessageReceived(content="x" * 50 * n), call(n))])


async def execute(name: str) -> None:
    async with opened(name) as store:
        say("ready")
        while run_id := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip():
            try:
                result = await execute_run(store, agent(run_id, 3), run_id, policies=[OPEN])
                say(f"ended {result.status}")
            except ProctorError as error:
                say(f"refused {error.code} {error}")


async def hold(name: str, lease_s: float) -> None:
    ownership.LEASE_S, ownership.RENEW_S = lease_s, lease_s / 4
    async with supervising(name) as (_, supervisor):
        asking = agent("held", 3, asking=True)
        handle = await supervisor.start(asking, "go", policies=[OPEN], session_id="s", run_id="held")
        await handle.wait_finished()
        try:
            say(f"ended {(await handle.wait()).status}")
        except ProctorError as error:
            say(f"refused {getattr(error, 'kind', error.code)} {error}")


async def work(name: str) -> None:
    """Execute created runs, three at a time, until this is killed."""
    async with supervising(name) as (store, supervisor), anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(work_one_by_one, store, supervisor)


async def work_one_by_one(store: Store, supervisor: Supervisor) -> None:
    token = 0
    while True:
        runs = await store.runs(where=RunFilter(status=frozenset(("created",))), limit=20)
        if not runs:
            token = await store.wait(token, 60)
            continue
        run_id = random.choice(runs).run_id
        try:
            handle = await supervisor.execute(agent(run_id, 4), run_id, policies=[OPEN])
            await handle.wait_finished()
        except ProctorError:  # another was quicker, or has its session
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def supervising(name: str) -> AsyncIterator[tuple[Store, Supervisor]]:
    async with opened(name) as store, Supervisor(store, publishers=[acknowledge]) as supervisor:
        yield store, supervisor


def fork_for_each_line(name: str) -> None:
    for n, _ in enumerate(sys.stdin):
        pid = os.fork()
        if pid == 0:
            say(f"pid {os.getpid()}")
            anyio.run(work, name, backend=("asyncio", "trio")[n % 2])
            os._exit(0)
        os.waitpid(pid, 0)
        say("dead")


def main(arguments: Sequence[str]) -> None:
    name, command, *more = arguments
    if command == "execute":
        anyio.run(execute, name)
    elif command == "hold":
        anyio.run(hold, name, float(more[0]))
    else:
        fork_for_each_line(name)


if __name__ == "__main__":
    main(sys.argv[1:])
