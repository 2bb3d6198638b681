"""A latch: whoever waits for what happens once is let go when it has."""

from __future__ import annotations

import anyio
import pytest

from proctor.supervisor.run.tasks import OneShotEvent

pytestmark = pytest.mark.anyio


async def test_who_waits_for_what_has_happened_gives_others_their_turn() -> None:
    """A loop of such waits holds up nobody."""
    latch, turns = OneShotEvent(), []
    latch.set()

    async def other() -> None:
        turns.append("other")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for _ in range(3):
            await latch.wait()
        turns.append("waited")

    assert turns == ["other", "waited"]


async def test_who_waits_for_what_has_happened_hears_a_cancel() -> None:
    """As at every wait."""
    latch, went_on = OneShotEvent(), False
    latch.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await latch.wait()
        went_on = True

    assert not went_on
