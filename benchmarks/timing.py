"""Taking times so that a ratio holds on a busy machine."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

Prepared: TypeAlias = Callable[[], object]
"""The work to be timed, made ready."""
ROOT: Final = Path(__file__).parents[1]


def interleaved(
    works: Mapping[str, Callable[[], Prepared]], *, rounds: int, clock: Callable[[], float] = time.thread_time
) -> dict[str, float]:
    """The least seconds of each work over the rounds; in a round every work has its turn.

    Each round prepares a work anew, untimed, and times it without garbage collection. The default clock is
    this thread's processor time, which a neighbour cannot lengthen by holding the processor.
    """
    least = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, prepare in works.items():
            work = prepare()
            gc.collect()
            gc.disable()
            try:
                begun = clock()
                work()
                least[name] = min(least[name], clock() - begun)
            finally:
                gc.enable()
    return least


def seconds_of_children() -> float:
    """The processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of(command: Sequence[str]) -> float:
    """The processor time of a program, run from the top of the repository. Raises RuntimeError if it fails."""
    before = seconds_of_children()
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=compiled)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip().splitlines()[-1:]}")
    return seconds_of_children() - before
