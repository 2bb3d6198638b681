"""Four processes race for one created run, and for the runs of one session: a share is some rounds of each."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from proctor.adapters.stores.audit.audit import audited
from proctor.supervisor import Store, create_run
from tests.owning_processes import process
from tests.stored_rows import in_store
from tests.whole_records import whole_record, wrong

from .ledger import Share

ROUNDS: Final = 4
PROCESSES: Final = 4


def races(seed: int, number: int) -> Share:
    """One share. Which process is first depends on the machine: neither seed nor number reproduces it."""
    chance = random.Random(f"{seed}/{number}")
    found = []
    for n in range(ROUNDS):
        several = chance.random() < 0.5
        with tempfile.TemporaryDirectory() as name:
            found += [f"share {number}, round {n}: {each}" for each in _raced(Path(name) / "s.db", several=several)]
    return Share({"races of four processes": ROUNDS}, found)


def _raced(path: Path, *, several: bool) -> Iterator[str]:
    """One race, for one run or for several runs of one session; what is wrong with the outcome."""
    wanted = [f"r{n}" for n in range(PROCESSES)] if several else ["r0"] * PROCESSES
    in_store(path, partial(_create, sorted(set(wanted))))
    lines = _executed(path, wanted)
    ran = sum(line.startswith("ran ") for line in lines)
    ended = sum(line.startswith("ended completed") for line in lines)
    refused = sum(line.startswith("refused bad_usage") for line in lines)
    runs, sessions = in_store(path, whole_record)
    begun = [run.run_id for run in runs if run.status != "created"]
    yield from wrong(runs, sessions, lines, unstarted=True)
    if ended + refused != PROCESSES or not ended or (ended > 1 and not several):
        yield f"{ended} have executed one and {refused} were refused: {lines}"
    if ran != 3 * ended or len(begun) != ended:
        yield f"{ran} calls ran, {begun} have begun: {lines}"
    if findings := audited(path).findings:
        yield f"the audit finds {findings}"


async def _create(runs: list[str], store: Store) -> None:
    for run_id in runs:
        await create_run(store, "go", run_id=run_id, session_id="s")


def _executed(path: Path, runs: list[str]) -> list[str]:
    """The output of the processes, released at the same moment."""
    with ExitStack() as opened:
        processes = [opened.enter_context(process(str(path), "execute")) for _ in runs]
        for each in processes:
            each.until("ready")
        for each, run_id in zip(processes, runs, strict=True):
            each.go_on(run_id)
            each.end_input()
        return [line for each in processes for line in each.rest()]
