"""The reader of one provider's events: how far it reads, when it pauses, and how long the provider may
take to exit.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from proctor.policies.events import Event, MessageReceived, RunCompleted
from proctor.supervisor.ports.adapter import CancelStep, Launch, Provider
from proctor.supervisor.run.provider_session import TURN, Next, ProviderReader, run_cancel_steps
from proctor.supervisor.run.services import Clock
from proctor.supervisor.run.tasks import OneShotEvent
from proctor.supervisor.testing import FakeAdapter

pytestmark = pytest.mark.trio


class Agent(FakeAdapter):
    """Reports a number of events and its end, then nothing until it is cancelled; it exits slowly."""

    def __init__(self, events: int = 0, *, ends: bool = True, leaves_s: float = 0.0, rung_s: float = 0.0) -> None:
        super().__init__()
        self._events = events
        self._ends = ends
        self._leaves_s = leaves_s
        self._act_s = rung_s
        self._over = trio.Event()
        self.left = False

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        yield self
        await trio.sleep(self._leaves_s)
        self.left = True

    async def events(self) -> AsyncIterator[Event]:
        for _ in range(self._events):
            yield MessageReceived(content="x")
        if self._ends:
            yield RunCompleted(output="done")
        await self._over.wait()

    def cancel_steps(self) -> Sequence[CancelStep]:
        return [CancelStep(name="hang up", act=self._hang_up, bound_s=60)]

    async def _hang_up(self) -> dict[str, Any]:
        self._over.set()
        await trio.sleep(self._act_s)
        return {"told": True}


class Reading:
    """What a reader has delivered, and after how many events it paused."""

    def __init__(self, agent: Agent) -> None:
        self.taken: list[Event] = []
        self.rests: list[int] = []
        self.reader = ProviderReader(agent, self._take, self._rest)

    def _take(self, event: Event) -> Next:
        self.taken.append(event)
        return Next.END if isinstance(event, RunCompleted) else Next.READ

    async def _rest(self) -> None:
        self.rests.append(len(self.taken))

    async def run(self) -> Exception | None:
        async def gate(call: Any) -> Any:
            raise NotImplementedError

        with trio.fail_after(600):
            return await self.reader.run(Launch(run_id="r", session_id="s", prompt="go", gate=gate))


async def test_an_agent_is_read_to_its_end_with_pauses_and_may_exit_slowly(autojump_clock: object) -> None:
    """Its stream may stay open. The reader pauses after each batch, although more events are ready."""
    agent = Agent(3 * TURN, leaves_s=10)
    reading = Reading(agent)

    assert await reading.run() is None
    assert [event.type for event in reading.taken] == ["message_received"] * 3 * TURN + ["run_completed"]
    assert reading.rests == [TURN, 2 * TURN, 3 * TURN]
    assert agent.left
    assert reading.reader.released


@pytest.mark.parametrize(("abandoned_at", "launched"), [(-1, 0), (1, 1)])
async def test_an_abandoned_agent_gets_no_time_to_exit(
    abandoned_at: float, launched: int, autojump_clock: object
) -> None:
    """Even if its stream has ended. An agent that was not started is not started any more."""
    agent = Agent(leaves_s=10)
    reading = Reading(agent)
    began = trio.current_time()
    async with trio.open_nursery() as tasks:
        if abandoned_at > 0:
            tasks.start_soon(reading.run)
            await trio.sleep(abandoned_at)
        reading.reader.abandon()
        if abandoned_at < 0:
            tasks.start_soon(reading.run)

    assert trio.current_time() - began == max(abandoned_at, 0)
    assert (len(agent.launches), agent.left, reading.reader.released) == (launched, False, True)


async def test_the_outcome_of_a_cancel_step_is_reported_even_if_the_agent_exited_during_it(
    autojump_clock: object,
) -> None:
    """The terminal event has every step that was tried."""
    reading = Reading(Agent(ends=False, rung_s=5))

    async def cancel() -> None:
        await trio.testing.wait_all_tasks_blocked()
        await reading.reader.cancel(Clock(), lambda: None)

    async with trio.open_nursery() as tasks:
        tasks.start_soon(cancel)
        await reading.run()
        reports = [*reading.reader.steps_taken]

    assert [(step["rung"], step["evidence"]) for step in reports] == [("hang up", {"told": True})]


async def test_each_cancel_step_runs_up_to_its_timeout_until_the_provider_has_ended(autojump_clock: object) -> None:
    """After one that raises, or hangs, comes the next. After the end, none runs."""
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
