"""The way down: each step of ending a provider, bounded, until its stream of events has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio

from ..ports.adapters import Rung
from .clock import Clock
from .foreign.apart import Apart
from .latch import Latch


async def walk(
    rungs: Sequence[Rung], ended: Latch | anyio.Event, clock: Clock, on_rung: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Take one rung after another until `ended` is set; returns what each did. `on_rung` is called as each begins.

    A rung that raises, or that takes longer than its bound, is followed by the next.
    """
    taken: list[dict[str, Any]] = []
    for rung in rungs:
        if ended.is_set():
            break
        taken.append(await _take(rung, ended, clock, on_rung))
    return taken


async def _take(rung: Rung, ended: Latch | anyio.Event, clock: Clock, on_rung: Callable[[], None]) -> dict[str, Any]:
    started = clock.monotonic()
    taken: dict[str, Any] = {"rung": rung.name}

    async def acted() -> dict[str, Any] | None:
        on_rung()
        return await rung.act()

    act = Apart(acted)
    with anyio.move_on_after(rung.bound_s):
        await act.done.wait()
        if act.error is not None:  # the next rung is the answer to a rung that fails
            taken["error"] = f"{type(act.error).__name__}: {act.error}"
        elif act.result:
            taken["evidence"] = act.result
        await ended.wait()
    act.cancel()
    taken["took_ms"] = round((clock.monotonic() - started) * 1000, 1)
    taken["ended"] = ended.is_set()
    return taken
