"""The way down a ladder by itself: what each rung did, how long it took, and where it stops."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from proctor.supervisor.ports.adapter import CancelStep
from proctor.supervisor.run.provider_session import run_cancel_steps
from proctor.supervisor.run.services import Clock
from proctor.supervisor.run.tasks import OneShotEvent

pytestmark = pytest.mark.trio


async def test_each_rung_is_taken_for_as_long_as_its_bound_until_the_provider_has_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One that raises, or says nothing, is followed by the next; after the end none is taken."""
    ended, taken = OneShotEvent(), []

    async def asks() -> dict[str, Any]:
        taken.append("ask")
        return {"asked": True}

    async def breaks() -> None:
        taken.append("break")
        raise OSError("no such process")

    async def hangs() -> None:
        taken.append("hang")
        await trio.sleep_forever()

    async def ends() -> dict[str, Any]:
        taken.append("end")
        await trio.sleep(0.5)
        ended.set()
        return {"killed": 1}

    acts = {"ask": asks, "break": breaks, "hang": hangs, "end": ends, "never": asks}
    steps = [CancelStep(name=name, act=act, bound_s=float(n)) for n, (name, act) in enumerate(acts.items(), 1)]
    walked = await run_cancel_steps(steps, ended, Clock())

    assert taken == ["ask", "break", "hang", "end"]
    assert walked == [
        {"rung": "ask", "evidence": {"asked": True}, "took_ms": 1000.0, "ended": False},
        {"rung": "break", "error": "OSError: no such process", "took_ms": 2000.0, "ended": False},
        {"rung": "hang", "took_ms": 3000.0, "ended": False},
        {"rung": "end", "evidence": {"killed": 1}, "took_ms": 500.0, "ended": True},
    ]
