"""A store's log cut at any byte, as after a loss of power: a share is many cuts of one store."""

import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.audit import audited
from proctor.policies.events import MessageReceived, RunCompleted, RunStarted

from .ledger import Share

BATCHES: Final = 60
CUTS: Final = 120
_READ: Final = "SELECT session_id, seq, data FROM events JOIN sessions ON key = session_key ORDER BY session_id, seq"
Records = dict[tuple[str, int], bytes]


class Written(NamedTuple):
    """A file with its log; for each size of the log, `acked` has the latest numbers acknowledged by then."""

    path: Path
    records: Records
    acked: list[tuple[int, dict[str, int]]]


def power(seed: int, number: int) -> Share:
    """One share."""
    chance = random.Random(f"{seed}/{number}")
    with tempfile.TemporaryDirectory() as name:
        written = anyio.run(_write, Path(name), chance)
        size = _log(written.path).stat().st_size
        cuts = {0, size, *(chance.randrange(size) for _ in range(CUTS))}
        for acked, _ in chance.sample(written.acked, 10):
            cuts |= {acked - 1, acked, min(acked + 1, size)}
        wrong = ((cut, each) for cut in sorted(cuts) for each in _cut(written, cut))
        found = [f"share {number}, cut at {cut} of {size}: {each}" for cut, each in wrong]
    return Share({"logs cut off": len(cuts)}, found)


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


async def _write(folder: Path, chance: random.Random) -> Written:
    """A store as it is on the disk while it is open."""
    path, live, last = folder / "cut.db", folder / "live.db", Counter[str]()
    acked: list[tuple[int, dict[str, int]]] = []
    async with SQLiteStore(live):  # after one close, its tables are in the file and not in the log
        pass
    async with SQLiteStore(live) as store:
        for n in range(BATCHES):
            ids: Any = {"session_id": chance.choice("abc"), "run_id": f"r{n}"}
            messages = [
                MessageReceived(content="x" * chance.randrange(3000), **ids) for _ in range(chance.randrange(9))
            ]
            await store.append([RunStarted(**ids), *messages, RunCompleted(**ids)])
            last[ids["session_id"]] += len(messages) + 2
            acked.append((_log(live).stat().st_size, dict(last)))
        shutil.copy(live, path)
        shutil.copy(_log(live), _log(path))
    return Written(path, _records(live), acked)


def _records(path: Path) -> Records:
    with closing(sqlite3.connect(path)) as connection:
        return {(session_id, seq): data for session_id, seq, data in connection.execute(_READ)}


def _cut(written: Written, cut: int) -> list[str]:
    """What is wrong with the store if its log has this length."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s.db"
        shutil.copy(written.path, path)
        _log(path).write_bytes(_log(written.path).read_bytes()[:cut])
        return [wrong for wrong in anyio.run(_wrong, written, path, cut) if wrong]


async def _wrong(written: Written, path: Path, cut: int) -> list[str]:
    async with SQLiteStore(path) as store:
        there = {id: await store.last_seq(id) for id in "abc"}
        [added] = await store.append([MessageReceived(session_id="a", content="after")])
    records, report = _records(path), audited(path)
    records.pop(("a", added.seq), None)
    due = next((last for size, last in reversed(written.acked) if size <= cut), {})
    lost = {id: seq for id, seq in due.items() if there[id] < seq}
    changed = [place for place, data in records.items() if written.records[place] != data]
    return [
        f"acknowledged events are lost: {lost}" if lost else "",
        f"events are others than were written: {changed}" if changed else "",
        f"it is numbered {added.seq} behind {there['a']}" if added.seq != there["a"] + 1 else "",
        f"the audit finds {report.findings}" if report.findings else "",
        "records are missing" if set(records) != {(id, n) for id in there for n in range(1, there[id] + 1)} else "",
    ]
