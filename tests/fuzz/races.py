"""Four processes on one created run, and on the runs of one session: a share is some rounds of each."""

import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from proctor.adapters.stores.audit.audit import audited
from proctor.policies.events import TERMINAL, RunStarted
from proctor.supervisor import Store, create_run
from tests.stored_rows import in_store, stored_events

from .ledger import Share

ROUNDS: Final = 4
PROCESSES: Final = 4
_PROGRAM: Final = Path(__file__).parents[1] / "adapters" / "stores" / "owning_process.py"
_PATIENCE_S: Final = 120


def races(seed: int, number: int) -> Share:
    """One share. Who comes first is the machine's own: neither seed nor number brings it again."""
    chance = random.Random(f"{seed}/{number}")
    found = []
    for n in range(ROUNDS):
        several = chance.random() < 0.5
        with tempfile.TemporaryDirectory() as name:
            found += [f"share {number}, round {n}: {wrong}" for wrong in _raced(Path(name) / "s.db", several=several)]
    return Share({"races of four processes": ROUNDS}, found)


def _raced(path: Path, *, several: bool) -> Iterator[str]:
    """One race, for one run or for several runs of one session; what is wrong with what came of it."""
    runs = [f"r{n}" for n in range(PROCESSES)] if several else ["r0"] * PROCESSES
    in_store(path, partial(_create, sorted(set(runs))))
    lines = _executed(path, runs)
    ran = Counter(line for line in lines if line.startswith("ran "))
    ended = sum(line.startswith("ended completed") for line in lines)
    refused = sum(line.startswith("refused bad_usage") for line in lines)
    events = in_store(path, stored_events)
    begun = [event.run_id for event in events if isinstance(event, RunStarted)]
    over = [event.run_id for event in events if isinstance(event, TERMINAL)]
    if ended + refused != PROCESSES or not ended or (ended > 1 and not several):
        yield f"{ended} have executed one and {refused} were refused: {lines}"
    if set(ran.values()) - {1} or len(ran) != 3 * ended:
        yield f"calls ran {dict(ran)}"
    if begun != over or len(set(begun)) != len(begun) or len(begun) != ended:
        yield f"{begun} have begun, {over} have ended"
    if findings := audited(path).findings:
        yield f"the audit finds {findings}"


async def _create(runs: list[str], store: Store) -> None:
    for run_id in runs:
        await create_run(store, "go", run_id=run_id, session_id="s")


def _executed(path: Path, runs: list[str]) -> list[str]:
    """What the processes say, let go at the same moment."""
    with ExitStack() as opened:
        processes = [opened.enter_context(_process(path)) for _ in runs]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # `ready`
        for process, run_id in zip(processes, runs, strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{run_id}\n")
            process.stdin.flush()
        return [line for process in processes for line in process.communicate(timeout=_PATIENCE_S)[0].splitlines()]


def _process(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(_PROGRAM), str(path), "execute"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
