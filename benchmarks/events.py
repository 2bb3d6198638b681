"""One event and one call of a supervised run: how long a gate holds a call, what redaction and followers cost, and
where the time goes.
"""

from __future__ import annotations

import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Final

import anyio
import msgspec

import proctor.supervisor
from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import TERMINAL, Event, RunCompleted
from proctor.supervisor import Launch, MemoryStore, Redaction, Store, Supervisor

from .figures import Row, Size, quantile
from .workload import Agent, Session, asking, events_of, ordinary, playing, steps

ROWS = 2
"""A call that is let through is two events: asked for, started."""
SUBSCRIBERS = (0, 1, 10, 100)
PARTS: Final = {
    "supervisor/redaction.py": "looking for secrets",
    "supervisor/machine/provider_events.py": "what the agent reports: checked, encoded, measured",
    "policies/events/__init__.py": "what the agent reports: checked, encoded, measured",
    "supervisor/machine/": "the machine: it stamps, decides and records",
    "policies/": "judging",
    "supervisor/store/records.py": "digests, and what lists show of a run",
    "supervisor/store/": "the store in memory: order, owners, invariants",
    "supervisor/": "the shell: it reads the agent, carries out, publishes",
}
"""The parts of the work, by where their code is; the first that fits."""
REST: Final = "the event loop, and the agent of the benchmark"
TICK_S: Final = 0.001
_ROOT: Final = str(Path(proctor.supervisor.__file__).parents[1]) + "/"


def gate(size: Size) -> list[Row]:
    """Median and 99th percentile of how long a gate keeps a call, its decision recorded first, and their ratios to
    one commit; the best of a few rounds.
    """
    calls = size.of(2_000, 20)
    waits: dict[str, list[list[float]]] = {"memory": [], "SQLite": [], "commit": [], "group": []}
    for _ in range(size.of(5, 1)):
        with tempfile.TemporaryDirectory() as folder:
            waits["memory"].append(anyio.run(_waits, MemoryStore(), calls))
            waits["SQLite"].append(anyio.run(_waits, SQLiteStore(Path(folder, "gate.db")), calls))
            waits["commit"].append(_commits(Path(folder, "commit.db"), calls))
            waits["group"].append(anyio.run(_group_commits, Path(folder, "group.db"), calls))
    p50 = {name: min(quantile(each, 0.5) for each in rounds) * 1e6 for name, rounds in waits.items()}
    p99 = {name: min(quantile(each, 0.99) for each in rounds) * 1e6 for name, rounds in waits.items()}
    return [
        Row("gate, memory store, p50", p50["memory"], "us"),
        Row("gate, memory store, p99", p99["memory"], "us", 200),
        Row("gate, SQLite FULL, p50", p50["SQLite"], "us"),
        Row("gate, SQLite FULL, p99", p99["SQLite"], "us"),
        Row("one group commit: two events through the store, p50", p50["group"], "us"),
        Row("one group commit: two events through the store, p99", p99["group"], "us"),
        Row("one bare commit of two rows, no thread, p50", p50["commit"], "us"),
        Row("one bare commit of two rows, no thread, p99", p99["commit"], "us"),
        Row("gate on SQLite / one group commit, p50", p50["SQLite"] / p50["group"], "x", 3),
        Row("gate on SQLite / one group commit, p99", p99["SQLite"] / p99["group"], "x", 3),
        Row("gate on SQLite / one bare commit, p50", p50["SQLite"] / p50["commit"], "x"),
        Row("gate on SQLite / one bare commit, p99", p99["SQLite"] / p99["commit"], "x"),
    ]


async def _waits(store: Store, calls: int) -> list[float]:
    seconds: list[float] = []
    try:
        await _supervised(asking(steps(0, calls), seconds.append), store)
    finally:
        await store.aclose()
    return seconds


async def _supervised(session: Session, store: Store, redaction: Redaction | None = None) -> float:
    """Seconds of processor time of one run."""
    async with Supervisor(store, redaction=redaction) as supervisor:
        begun = time.process_time()
        await (await supervisor.start(Agent(session), "go", policies=[ordinary().policy])).wait()
        return time.process_time() - begun


async def _group_commits(path: Path, calls: int) -> list[float]:
    seconds = []
    async with SQLiteStore(path) as store:
        for step in steps(0, calls):
            events = [
                msgspec.structs.replace(event, run_id="run", session_id="session")
                for event in (step.started, step.completed)
            ]
            begun = time.perf_counter()
            await store.append(events)
            seconds.append(time.perf_counter() - begun)
    return seconds


def _commits(path: Path, calls: int) -> list[float]:
    seconds = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, data BLOB)")
        for _ in range(calls):
            begun = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO events (data) VALUES (?)", [(b"x" * 250,)] * ROWS)
            connection.execute("COMMIT")
            seconds.append(time.perf_counter() - begun)
    return seconds


def redaction(size: Size) -> list[Row]:
    """Microseconds of processor time of an event and of a call at the gate, with redaction and without it, on a store
    in memory; the least of a few rounds, in turns.
    """
    works = _works(size.of(2_000, 20))
    kinds = {"on": Redaction(), "off": Redaction(off=True)}
    least = {(work, kind): float("inf") for work in works for kind in kinds}
    for _ in range(size.of(5, 1)):
        for (work, kind), best in least.items():
            session, count = works[work]
            seconds = anyio.run(_supervised, session, MemoryStore(), kinds[kind])
            least[work, kind] = min(best, seconds / count * 1e6)
    rows = [Row(f"{work}, redaction {kind}", us, "us") for (work, kind), us in least.items()]
    return [
        *rows,
        *(Row(f"{work}, redaction on / off", least[work, "on"] / least[work, "off"], "x") for work in works),
    ]


def _works(calls: int) -> dict[str, tuple[Session, int]]:
    """What is timed, and how many of it there are."""
    made = steps(0, calls)
    return {"an event": (playing(events_of(made)), 2 * calls), "a call at the gate": (asking(made), calls)}


def subscribers(size: Size) -> list[Row]:
    """Microseconds of processor time an event and a subscriber; the least of a few rounds, in turns."""
    least = by_subscribers(size.of(500, 10), size.of(3, 1))
    alone = least[0]
    rows = [Row(f"an event, {count} subscribers of its run", us, "us") for count, us in least.items()]
    each = (least[100] - alone) / 100
    return [*rows, Row("an event for one more subscriber / the event itself", each / alone, "x")]


def by_subscribers(calls: int = 500, rounds: int = 3) -> dict[int, float]:
    """Microseconds an event, by the number of subscribers."""
    least = dict.fromkeys(SUBSCRIBERS, float("inf"))
    session = events_of(steps(0, calls))
    for _ in range(rounds):
        for count in SUBSCRIBERS:
            seconds = anyio.run(_followed, session, count)
            least[count] = min(least[count], seconds / len(session) * 1e6)
    return least


async def _followed(session: list[Event], count: int) -> float:
    go = anyio.Event()

    async def speaking(launch: Launch) -> AsyncIterator[Event]:
        await go.wait()
        for event in session:
            yield event
        yield RunCompleted(output="done")

    async def follow(supervisor: Supervisor) -> None:
        async with supervisor.subscribe(run_id="r") as events:
            async for event in events:
                if isinstance(event, TERMINAL):
                    return

    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(Agent(speaking), "go", run_id="r", policies=[ordinary().policy])
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(follow, supervisor)
            await anyio.wait_all_tasks_blocked()
            begun = time.process_time()
            go.set()
            await handle.wait()
        return time.process_time() - begun


def profile(seconds: float = 12.0, calls: int = 2_000) -> str:
    """Which part of the processor time of an event, and of a call at the gate, each part of the code takes: a table.

    A timer of processor time looks every millisecond where the program is; what the standard library or the
    interpreter do belongs to the part that calls them.
    """
    works = _works(calls)
    seen = {work: _sampled(session, seconds / len(works)) for work, (session, _) in works.items()}
    parts = sorted({*PARTS.values(), REST}, key=lambda part: -seen["an event"][part])
    lines = [f"| part | {' | '.join(works)} |", "|---|" + "---:|" * len(works)]
    for part in parts:
        shares = (f"{seen[work][part] / seen[work].total():.0%}" for work in works)
        lines.append(f"| {part} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _sampled(session: Session, seconds: float) -> Counter[str]:
    seen: Counter[str] = Counter()

    def look(number: int, frame: FrameType | None) -> None:
        seen[_part_of(frame)] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)
    try:
        begun = time.process_time()
        while time.process_time() - begun < seconds:
            anyio.run(_supervised, session, MemoryStore())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return seen


def _part_of(frame: FrameType | None) -> str:
    """The part of the innermost frame that belongs to one."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_ROOT):
            name = path.removeprefix(_ROOT)
            return next((part for start, part in PARTS.items() if name.startswith(start)), REST)
        if "/asyncio/" in path or path == __file__ or path.endswith("benchmarks/workload.py"):
            return REST
        frame = frame.f_back
    return REST
