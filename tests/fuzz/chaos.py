"""Disturbed workers, connections and stores, on SQLite and on PostgreSQL: a share takes some minutes.

Three workers execute runs that use shared budgets, request approval and are cancelled from outside, while workers are
killed or suspended beyond their lease, connections are cut or half open, commits take 7 seconds, and the server is
killed and restarted. At the end every run has ended exactly once, nothing is recorded twice, no acknowledged event is
lost, no budget is exceeded, and the audit finds nothing.
"""

import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import anyio

from proctor.adapters.fleet import Fleet
from proctor.adapters.stores import open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.policies.events import Event, MessageReceived, TokenUsageUpdated, ToolCallStarted
from proctor.supervisor import ApprovalError, KillSwitch, ProctorError, Store, create_run
from proctor.supervisor.control import approval_inbox
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.ports.stored_types import NOT_OVER, ApprovalAnswer, RunFilter, RunInfo
from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.cutting_proxy import CuttingProxy
from tests.forked_programs import Forked
from tests.owning_processes import Process
from tests.postgres_server import OwnServer
from tests.stopping import stop_between_writes
from tests.whole_records import place_of, whole_record_at, wrong

from .ledger import Share
from .workers import MOST_CALLS, MOST_USD, SLOW_S, name_of, tenant_of

SECONDS: Final = 60.0
"""The duration of one share."""
WORKERS: Final = 3
LEASE_S: Final = 2.0
WAITING: Final = 12
"""The number of runs that are queued at any time."""
ROOT: Final = Path(__file__).parents[2]


def on_sqlite(seed: int, number: int) -> Share:
    """One share on a file."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return _share(File(Path(folder)), seed, number)


def on_postgres(seed: int, number: int) -> Share:
    """One share on its own server, reached through proxies."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return _share(Server(Path(folder)), seed, number)


class File:
    """A store in a file, and its disturbances."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder / "runs.db")
        self.troubles: dict[str, Callable[[random.Random], Awaitable[None]]] = {"locked": self._locked}

    def place_of(self, worker: int) -> str:
        return self.place

    def stop(self, worker: subprocess.Popen[str] | Forked) -> None:
        """SIGSTOP, while others can continue."""
        stop_between_writes(worker, Path(self.place))

    def close(self) -> None:
        """Nothing is left."""

    async def _locked(self, chance: random.Random) -> None:
        """Lock the file for longer than a commit may take."""
        other = sqlite3.connect(self.place, timeout=PATIENCE_S, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await anyio.sleep(SLOW_S)
        other.execute("ROLLBACK")
        other.close()


class Server:
    """A PostgreSQL server with a proxy for each worker, and their disturbances."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = OwnServer()
        self._server.start()
        self._proxies = [CuttingProxy(self._server.folder) for _ in range(WORKERS)]
        self.place = self._server.url()
        self.troubles = {
            "cut": self._cut,
            "half open": self._half_open,
            "server ended": self._ended,
            "commit of 7 s": self._slow,
        }

    def place_of(self, worker: int) -> str:
        return self._proxies[worker].url(self.place)

    def stop(self, worker: subprocess.Popen[str] | Forked) -> None:
        worker.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it, and all connections."""
        for proxy in self._proxies:
            proxy.close()
        self._server.close()

    async def _cut(self, chance: random.Random) -> None:
        """Cut connections at some message, before or after it is forwarded."""
        chance.choice(self._proxies).cut_at(chance.randrange(1, 30), after=chance.random() < 0.5)

    async def _half_open(self, chance: random.Random) -> None:
        """Forward nothing, without notifying either side."""
        proxy = chance.choice(self._proxies)
        proxy.mute()
        await anyio.sleep(chance.uniform(1, 8))
        proxy.cut()
        proxy.mute(on=False)

    async def _ended(self, chance: random.Random) -> None:
        """Stop or kill the server, and start it again."""
        self._server.stop(chance.choice([signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]))
        await anyio.sleep(chance.uniform(0, 2))
        await anyio.to_thread.run_sync(self._server.start)

    async def _slow(self, chance: random.Random) -> None:
        """Confirm commits late: the server waits for a second one that does not exist."""
        self._configure("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        await anyio.sleep(SLOW_S)
        self._configure("ALTER SYSTEM RESET synchronous_standby_names")

    def _configure(self, command: str) -> None:
        import psycopg

        with psycopg.connect(self.place, autocommit=True) as connection:
            connection.execute(command)
            connection.execute("SELECT pg_reload_conf()")


class Chaos:
    """One share in progress.

    Args:
        where: the store.
        chance: the random source.
    """

    def __init__(self, where: File | Server, chance: random.Random) -> None:
        self._where = where
        self._chance = chance
        self._slow = where.folder / "slow"
        self._created = 0
        self._workers: list[Process] = []
        self._ended: list[Process] = []
        self.counts: Counter[str] = Counter()
        self.followed: list[Event] = []

    @property
    def lines(self) -> list[str]:
        """The output of all workers."""
        return [line for worker in (*self._ended, *self._workers) for line in worker.lines]

    async def run(self) -> None:
        """Disturb until the time is up and a call has run, then end all workers and their leftovers."""
        async with open_store(self._where.place) as store:
            await self._create(store)
        with ExitStack() as stack:
            stack.callback(self._end_all)
            for n in range(WORKERS):
                self._workers.append(await self._worker(n))
            async with open_store(self._where.place) as store, Fleet(store) as fleet:
                async with anyio.create_task_group() as tasks:
                    for each in (self._create, self._answer, self._order, reap):
                        tasks.start_soon(self._again_and_again, each, store)
                    tasks.start_soon(self._follow, fleet)
                    tasks.start_soon(self._troubles)
                    await anyio.sleep(SECONDS)
                    with anyio.fail_after(PATIENCE_S):
                        while not any(line.startswith("ran ") for line in self.lines):
                            await anyio.sleep(0.1)
                    tasks.cancel_scope.cancel()
                self._slow.unlink(missing_ok=True)
        async with open_store(self._where.place) as store:
            with anyio.fail_after(PATIENCE_S):
                while await store.runs(where=RunFilter(status=NOT_OVER - {"created"}), limit=1):
                    with suppress(ProctorError):
                        await reap(store)
                    await anyio.sleep(0.1)

    async def _again_and_again(self, work: Callable[[Store], Awaitable[Any]], store: Store) -> None:
        while True:
            with suppress(ProctorError, ConnectionError):  # the store is unavailable
                await work(store)
            await anyio.sleep(0.2)

    async def _create(self, store: Store) -> None:
        while len(await store.runs(where=RunFilter(status=frozenset(["created"])), limit=WAITING)) < WAITING:
            run_id, session_id = name_of(self._created)
            self._created += 1
            await create_run(store, "go", run_id=run_id, session_id=session_id)
            self.counts["runs"] += 1

    async def _answer(self, store: Store) -> None:
        for request in await approval_inbox.pending(store):
            given = ApprovalAnswer(granted=self._chance.random() < 0.7, by="ana")
            with suppress(ApprovalError):
                await approval_inbox.answer(store, request.approval_id, given, wait_s=0.1)

    async def _order(self, store: Store) -> None:
        going = await store.runs(where=RunFilter(status=frozenset(["running"])), limit=20)
        if going and self._chance.random() < 0.2:
            self.counts["cancels"] += 1
            await KillSwitch(store).kill(by="ana", run_id=self._chance.choice(going).run_id, wait_s=0.5)

    async def _follow(self, fleet: Fleet) -> None:
        async with fleet.subscribe(after="now") as events:
            async for event in events:
                self.followed.append(event)

    async def _troubles(self) -> None:
        while True:
            await self._trouble()
            await anyio.sleep(self._chance.uniform(0.2, 1.5))

    async def _trouble(self) -> None:
        kind = self._chance.choice(["killed", "stopped", "slow", *self._where.troubles])
        self.counts[kind] += 1
        n = self._chance.randrange(WORKERS)
        match kind:
            case "killed":
                self._end(self._workers[n])
                self._workers[n] = await self._worker(n)
            case "stopped":
                await anyio.to_thread.run_sync(self._where.stop, self._workers[n].process)
                await anyio.sleep(LEASE_S * self._chance.uniform(1.5, 3))
                self._workers[n].process.send_signal(signal.SIGCONT)
            case "slow":
                self._slow.touch()
                await anyio.sleep(SLOW_S + 1)
                self._slow.unlink()
            case _:
                with anyio.CancelScope(shield=True):  # a disturbance that starts is also undone
                    await self._where.troubles[kind](self._chance)

    async def _worker(self, n: int) -> Process:
        backend = self._chance.choice(["asyncio", "trio"])
        words = [self._where.place_of(n), str(LEASE_S), str(self._slow), backend]
        errors = (self._where.folder / "errors").open("ab")
        with errors:
            started = subprocess.Popen(  # noqa: ASYNC220 it is read in a thread
                [sys.executable, "-m", "tests.fuzz.workers", *words],
                stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
            )  # fmt: skip
        return Process(started)

    def _end(self, worker: Process) -> None:
        worker.process.kill()
        worker.process.wait()
        worker.rest()
        assert worker.process.stdout is not None
        worker.process.stdout.close()
        self._ended.append(worker)

    def _end_all(self) -> None:
        while self._workers:
            self._end(self._workers.pop())


def _share(where: File | Server, seed: int, number: int) -> Share:
    chaos = Chaos(where, random.Random(f"{seed}/{number}"))
    try:
        anyio.run(chaos.run)
        record = anyio.run(whole_record_at, where.place)
        found = [f"share {number}: {each}" for each in _wrong(*record, chaos.lines, chaos.followed)]
        found += [f"share {number}: the audit finds {each}" for each in audited(where.place).findings]
    finally:
        where.close()
    if found and (where.folder / "errors").exists():
        print((where.folder / "errors").read_text()[-4_000:], file=sys.stderr)
    seen = Counter(line.split()[0] for line in chaos.lines)
    return Share({**chaos.counts, "acknowledged events": seen["ack"], "calls that ran": seen["ran"]}, found)


def _wrong(
    runs: Iterable[RunInfo], sessions: dict[str, list[Event]], lines: Iterable[str], followed: Iterable[Event]
) -> Iterator[str]:
    """The violated invariants of some runs' event logs, given the output of their workers and a follower's events."""
    yield from wrong(runs, sessions, lines, unstarted=True)
    events = [event for session in sessions.values() for event in session]
    texts = Counter((event.run_id, event.content) for event in events if isinstance(event, MessageReceived))
    used = Counter((event.run_id, event.input_tokens) for event in events if isinstance(event, TokenUsageUpdated))
    seen = Counter(place_of(event) for event in followed)
    for what, counted in (("messages are", texts), ("usage is", used), ("what a follower saw is", seen)):
        if twice := [each for each, times in counted.items() if times > 1]:
            yield f"{what} there twice: {twice[:5]}"
    if lost := set(seen) - {place_of(event) for event in events}:
        yield f"a follower saw what is not there: {sorted(lost)[:5]}"
    yield from _overdrawn(events)


def _overdrawn(events: Iterable[Event]) -> Iterator[str]:
    calls: Counter[str] = Counter()
    money: Counter[str] = Counter()
    for event in events:
        calls[tenant_of(event.run_id)] += isinstance(event, ToolCallStarted)
        if isinstance(event, TokenUsageUpdated):
            money[tenant_of(event.run_id)] += round((event.cost_usd or 0) * 1000)
    yield from (f"{tenant} has {n} of {MOST_CALLS} calls" for tenant, n in calls.items() if n > MOST_CALLS)
    most = round(MOST_USD * 1000)
    yield from (f"{tenant} spent {n / 1000} of {MOST_USD} USD" for tenant, n in money.items() if n > most)
