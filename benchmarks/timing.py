"""Taking times so that a ratio holds on a busy machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

Prepared: TypeAlias = Callable[[], object]
"""The work to be timed, made ready."""


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
