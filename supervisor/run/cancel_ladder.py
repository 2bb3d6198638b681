"""The way down: each step of ending a provider, bounded, until its stream of events has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio

from proctor.policies.values.foreign import error_text, named_error

from ..machine.ending import plain
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
    taken: dict[str, Any] = {"rung": error_text(rung.name)}

    async def acted() -> dict[str, Any] | None:
        on_rung()
        return await rung.act()

    act = Apart(acted)
    try:
        with anyio.move_on_after(rung.bound_s):
            await act.done.wait()
            if act.error is not None:  # the next rung is the answer to a rung that fails
                taken["error"] = named_error(act.error)
            elif act.result:
                taken["evidence"] = plain(act.result)
            await ended.wait()
    except TypeError as error:  # a bound that is no number
        taken["error"] = named_error(error)
    act.cancel()
    taken["took_ms"] = round((clock.monotonic() - started) * 1000, 1)
    taken["ended"] = ended.is_set()
    return taken
