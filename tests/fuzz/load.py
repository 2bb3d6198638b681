"""Many sessions in one process with all other activity, on either database: a share is 2,000 sessions.

python -m tests.fuzz.load --store postgres --sessions 10000 --minutes 60    # a soak test over an hour

Starts, commands to cancel, answers, cancels by handle, subscribers, and people with the dashboard open, whose
requests and streams come and go. At the end every run has ended exactly once, and neither memory, descriptors,
threads, tasks nor child processes have grown. Then everything is pruned, and no row of a run is left.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import psutil
import psycopg

from proctor.adapters.stores import open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.store_names import is_url
from proctor.adapters.stores.tables.schema import TABLES
from proctor.policies import RunContext, parse_policies
from proctor.policies.events import TERMINAL, MessageReceived, TokenUsageUpdated
from proctor.supervisor import ApprovalError, KillSwitch, ProctorError, Store, Supervisor, UsageError, prune
from proctor.supervisor.control import approval_inbox
from proctor.supervisor.ports.stored_types import ApprovalAnswer
from proctor.supervisor.testing import Ask, FakeAdapter, Pause
from tests.postgres_server import OwnServer
from tests.web_server import ANA, Site, site
from tests.whole_records import whole_record_at, wrong

from .ledger import Share

SESSIONS: Final = 2_000
AT_ONCE: Final = 40
FOLLOWERS: Final = 8
PAGES: Final = 4
GROWTH_MIB: Final = 24.0
"""How much larger the process may be after the second half of its sessions than after the first."""
PATIENCE_S: Final = 1_800.0
KEPT_THREADS: Final = ("AnyIO worker", "Trio thread", "proctor-watchdog")
POLICIES: Final = """
name: team
approval: {timeout_s: 600}
limits: {max_tool_calls: 40}
budgets: [{name: calls, max_tool_calls: 1000000, per: $.tenant}]
rules: [{type: blocklist, tools: [write], action: request_approval}]
"""


def on_sqlite(seed: int, number: int) -> Share:
    """One share on a file, alternating the event loops."""
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        return _share(f"{folder}/runs.db", seed, number)


def on_postgres(seed: int, number: int) -> Share:
    """One share on its own server, alternating the event loops."""
    with OwnServer() as server:
        return _share(server.url(), seed, number)


def _share(place: str, seed: int, number: int) -> Share:
    return _with(Crowd(random.Random(f"{seed}/{number}"), SESSIONS), place, number)


def _with(crowd: Crowd, place: str, number: int) -> Share:
    anyio.run(crowd.run, place, backend=("asyncio", "trio")[number % 2])
    found = [*crowd.found, *wrong(*anyio.run(whole_record_at, place)), *map(str, audited(place).findings)]
    found += anyio.run(_rows_left, place)
    return Share(dict(crowd.counts), [f"share {number}: {each}" for each in found])


class Crowd:
    """All users of one supervisor.

    Args:
        chance: the random source.
        sessions: how many there are.
        lasting_s: the seconds over which sessions are started; as fast as possible if 0.
    """

    def __init__(self, chance: random.Random, sessions: int, lasting_s: float = 0.0) -> None:
        self._chance = chance
        self._sessions = sessions
        self._apart_s = lasting_s / sessions
        self._lasting_s = lasting_s or math.inf
        self._begun = 0.0
        self._going: set[str] = set()
        """Runs that are starting or active."""
        self._started = 0
        self.sizes: list[float] = []
        """The process's memory in MiB, after each tenth of the sessions."""
        self.held: list[dict[str, int]] = []
        """Its resources before and after."""
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []

    async def run(self, place: str) -> None:
        """Start all sessions, and compare the process's resources before and after."""
        before = _held()
        async with open_store(place) as store:
            with anyio.fail_after(PATIENCE_S + self._apart_s * self._sessions):
                with tempfile.TemporaryDirectory(prefix="page-") as folder, site(Path(folder), place=place) as page:
                    async with Supervisor(store, max_running=AT_ONCE) as supervisor:
                        await self._all(supervisor, store, page)
        gc.collect()
        after = _held()
        self.held = [before, after]
        if left := {what: (before[what], n) for what, n in after.items() if n > before[what]}:
            self.found.append(f"what was there before and after: {left}")
        half = len(self.sizes) // 2
        if half and self.sizes[-1] - self.sizes[half] > GROWTH_MIB:
            self.found.append(f"memory in MiB after each tenth: {self.sizes}")

    async def _all(self, supervisor: Supervisor, store: Store, page: Site) -> None:
        self._begun = anyio.current_time()
        async with anyio.create_task_group() as beside:
            for work in (self._answer, self._order):
                beside.start_soon(self._again_and_again, work, store)
            for _ in range(FOLLOWERS):
                beside.start_soon(self._follow, supervisor)
            for _ in range(PAGES):
                beside.start_soon(self._look, page)
            async with anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE):
                    tasks.start_soon(self._one_after_another, supervisor)
            beside.cancel_scope.cancel()

    async def _one_after_another(self, supervisor: Supervisor) -> None:
        policies = parse_policies(POLICIES)
        while self._started < self._sessions and anyio.current_time() < self._begun + self._lasting_s:
            self._started += 1
            n = self._started
            await anyio.sleep_until(self._begun + n * self._apart_s)
            if n % max(1, self._sessions // 10) == 0:
                gc.collect()
                self.sizes.append(round(psutil.Process().memory_info().rss / 2**20, 1))
                minutes = (anyio.current_time() - self._begun) / 60
                print(
                    f"{n:,} sessions after {minutes:.1f} minutes: {self.sizes[-1]} MiB", file=sys.stderr, flush=True
                )
            self._going.add(f"r{n}")
            ids: Any = {"session_id": f"s{n}", "run_id": f"r{n}", "context": RunContext(tenant=f"t{n % 7}")}
            try:
                handle = await supervisor.start(self._agent(), f"task {n}", policies=policies, **ids)
                self.counts["sessions"] += 1
                if self._chance.random() < 0.1:
                    self.counts["cancels"] += 1
                    await handle.cancel(by="ben")
                await handle.wait_finished()
            finally:
                self._going.discard(f"r{n}")

    def _agent(self) -> FakeAdapter:
        steps: list[Any] = []
        for n in range(self._chance.randint(1, 4)):
            name = "write" if self._chance.random() < 0.2 else "read"
            steps += [MessageReceived(content="x" * 500), TokenUsageUpdated(input_tokens=100, cost_usd=0.001)]
            steps += [Ask(id=f"c{n}", name=name, input={"path": "a.txt"}), Pause(self._chance.random() / 20)]
        return FakeAdapter(steps, rung_s=0.2)

    async def _again_and_again(self, work: Any, store: Store) -> None:
        while True:
            await work(store)
            await anyio.sleep(0.05)

    async def _answer(self, store: Store) -> None:
        for request in await approval_inbox.pending(store):
            given = ApprovalAnswer(granted=self._chance.random() < 0.7, by="ana")
            with suppress(ApprovalError):  # its run has just been ended
                await approval_inbox.answer(store, request.approval_id, given)
                self.counts["answers"] += 1

    async def _order(self, store: Store) -> None:
        if self._going and self._chance.random() < 0.3:
            run_id = self._chance.choice(sorted(self._going))
            with suppress(ProctorError):  # it does not exist yet, or any more
                await KillSwitch(store).kill(by="ana", run_id=run_id, wait_s=0.5)
            self.counts["orders"] += 1

    async def _follow(self, supervisor: Supervisor) -> None:
        while True:
            going = sorted(self._going)
            if not going:
                await anyio.sleep(0.01)
                continue
            with suppress(UsageError), anyio.move_on_after(2 * self._chance.random()):  # it does not exist yet
                async with supervisor.subscribe(run_id=self._chance.choice(going)) as events:
                    async for event in events:
                        self.counts["events followed"] += 1
                        if isinstance(event, TERMINAL):
                            break

    async def _look(self, page: Site) -> None:
        async with httpx.AsyncClient(base_url=page.url, headers={"Authorization": f"Bearer {ANA}"}) as client:
            while True:
                for place in ("/api/runs", "/api/approvals", "/api/budgets"):
                    answer = await self._got(client, place)
                    self.counts["page requests"] += 1
                    if answer.status_code != 200:
                        self.found.append(f"{place}: {answer.status_code} {answer.text[:200]}")
                with anyio.move_on_after(self._chance.random()):
                    async with client.stream("GET", "/api/changes", timeout=60) as stream:
                        async for _ in stream.aiter_lines():
                            self.counts["lines of streams"] += 1

    async def _got(self, client: httpx.AsyncClient, place: str) -> httpx.Response:
        """As a browser does: retried if the server closed the idle connection."""
        try:
            return await client.get(place, timeout=60)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            self.counts["idle connections closed"] += 1
            return await client.get(place, timeout=60)


def _held() -> dict[str, int]:
    """Resources that a process could leak. Idle threads kept for the next event loop are no leak."""
    process = psutil.Process()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": sum(not thread.name.startswith(KEPT_THREADS) for thread in threading.enumerate()),
        "children": len(process.children()),
    }


RUNS_ROWS: Final = ("runs", "approvals", "budget_shares")
"""Tables with rows of a run, which are removed with it; one of its events stays, which records the pruning."""


async def _rows_left(place: str) -> list[str]:
    async with open_store(place) as store:
        await prune(store, older_than=timedelta(0))
    rows = _rows(place)
    left = {table: rows[table] for table in RUNS_ROWS if rows[table]}
    if rows["events"] != rows["sessions"]:
        left["events"] = rows["events"]
    return [f"rows left of {rows['sessions']} pruned sessions: {left}"] if left else []


def _rows(place: str) -> dict[str, int]:
    """The number of rows of each table."""
    kept = psycopg.connect(place, options="-c search_path=proctor") if is_url(place) else sqlite3.connect(place)
    with closing(kept) as connection:
        counted = {each.name: connection.execute(f"SELECT count(*) FROM {each.name}").fetchone() for each in TABLES}
        return {name: int(row[0]) for name, row in counted.items() if row}


def main() -> int:
    """A soak test: the figures as JSON; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.load", description=main.__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--minutes", type=float, default=0.0, help="over how many minutes they are spread")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    crowd = Crowd(random.Random(given.seed), given.sessions, given.minutes * 60)
    with ExitStack() as parts:
        if given.store == "postgres":
            place = parts.enter_context(OwnServer()).url()
        else:
            place = str(Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="load-")), "runs.db"))
        begun = time.monotonic()
        share = _with(crowd, place, 0)
        minutes = round((time.monotonic() - begun) / 60, 1)
    seen = {"store": given.store, "minutes": minutes, "counts": share.counts, "memory_mib": crowd.sizes}
    print(json.dumps({**seen, "before": crowd.held[0], "after": crowd.held[1], "found": share.found}))
    return 1 if share.found else 0


if __name__ == "__main__":
    sys.exit(main())
