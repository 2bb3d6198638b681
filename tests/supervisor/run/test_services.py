"""Alarms by themselves: each rings once, at its time, however often and in whatever order they are set."""

import gc
import math
import random
import weakref

import pytest
import trio
import trio.testing

from proctor.supervisor.run.services import Alarm, CancelPriority, Clock, Timers

pytestmark = pytest.mark.trio


async def step(*settings: list[int | None]) -> list[tuple[int, int]]:
    """Which alarm rang after how many milliseconds, each of them set to these one after another."""
    clock = Clock()
    timers, began = Timers(clock), clock.now_ms()
    found: list[tuple[int, int]] = []
    async with trio.open_nursery() as tasks:
        tasks.start_soon(timers.run)
        await trio.testing.wait_all_tasks_blocked()
        for number, times in enumerate(settings):
            alarm = timers.alarm(lambda now_ms, number=number: found.append((number, now_ms - began)))  # type: ignore[misc]
            for at_ms in times:
                alarm.set(None if at_ms is None else began + at_ms)
                await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(100)
        tasks.cancel_scope.cancel()
    return found


@pytest.mark.parametrize(("settings", "expected"), [
    ([[5_000]], [(0, 5_000)]),
    ([[5_000, 2_000]], [(0, 2_000)]),
    ([[2_000, 5_000]], [(0, 5_000)]),
    ([[2_000, 5_000, 3_000]], [(0, 3_000)]),
    ([[2_000, None]], []),
    ([[2_000, None, 4_000]], [(0, 4_000)]),
    ([[5_000, 2_000, 2_000]], [(0, 2_000)]),
    ([[9_000], [3_000], [6_000]], [(1, 3_000), (2, 6_000), (0, 9_000)]),
    ([[3_000], [3_000]], [(0, 3_000), (1, 3_000)]),
    ([[9_000, 3_000, 9_000], [8_000]], [(1, 8_000), (0, 9_000)]),
])  # fmt: skip
async def test_an_alarm_rings_once_at_the_last_time_it_was_set_to(
    settings: list[list[int | None]], expected: list[tuple[int, int]], autojump_clock: object
) -> None:
    """Soonest first; those of one moment in the order they were set."""
    found = await step(*settings)

    assert [number for number, _ in found] == [number for number, _ in expected]
    assert all(0 <= at - due <= 1 for (_, at), (_, due) in zip(found, expected, strict=True))


async def test_an_alarm_of_the_past_rings_at_once_and_can_be_set_again(autojump_clock: object) -> None:
    """From within its own ring, too."""
    clock = Clock()
    timers, rings = Timers(clock), []

    def ring(now_ms: int) -> None:
        rings.append(now_ms)
        if len(rings) < 3:
            alarm.set(now_ms)

    alarm = timers.alarm(ring)
    began = clock.now_ms()
    alarm.set(began - 5)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(timers.run)
        await trio.testing.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert len(rings) == 3
    assert rings[0] >= began  # it is told what time it is, not what time it was set to
    assert alarm.at_ms is None


async def test_an_alarm_that_is_set_later_again_and_again_takes_one_place_in_the_queue() -> None:
    """An idle limit is set anew with every event."""
    pushed: list[int] = []

    class Noting(Timers):
        def push(self, at_ms: int, alarm: Alarm) -> None:
            pushed.append(at_ms)
            super().push(at_ms, alarm)

    alarm = Noting(Clock()).alarm(lambda now_ms: None)
    for at_ms in (5_000, 6_000, 7_000, 4_000, 8_000):
        alarm.set(at_ms)

    assert pushed == [5_000, 4_000]


async def test_between_two_alarms_that_are_both_late_others_have_their_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Also where each takes longer than the next is away."""
    timers, most = Timers(Clock()), 100
    rings: list[int] = []

    def ring(now_ms: int) -> None:
        rings.append(now_ms)
        if len(rings) < most:
            alarm.set(now_ms + 5)
            autojump_clock.jump(0.01)

    async def other() -> None:
        while not rings:
            await trio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    alarm = timers.alarm(ring)
    alarm.set(0)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(timers.run)
        tasks.start_soon(other)

    assert 0 < len(rings) < most


async def test_nothing_is_due_before_the_soonest_alarm() -> None:
    """Whoever never lets others have their turn looks there."""
    timers, rings = Timers(Clock()), list[int]()
    for at_ms in (6_000, 3_000):
        timers.alarm(rings.append).set(at_ms)
    due = [timers.due_ms]
    for now_ms in (2_999, 3_000, 7_000):
        timers.fire(now_ms)
        due.append(timers.due_ms)

    assert due == [3_000, 3_000, 6_000, math.inf]
    assert rings == [3_000, 7_000]


async def test_priority_is_held_until_all_have_released_it(autojump_clock: object) -> None:
    """Then nobody is held up: whoever waits goes on at once, or after 50 ms."""
    priority, began = CancelPriority(Clock()), trio.current_time()
    held, waited = [], []

    async def wait() -> None:
        await priority.wait()
        waited.append(round(trio.current_time() - began, 3))

    acquire, release = priority.acquire, priority.release
    for step in (acquire, acquire, release, release, acquire, release):
        step()
        held.append(bool(priority.until_ms))
    acquire()
    async with trio.open_nursery() as tasks:
        tasks.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        release()
    acquire()
    await wait()

    assert held == [True, True, True, False, True, False]
    assert waited == [0, pytest.approx(0.05, abs=0.002)]  # the clock tells whole milliseconds


async def test_a_dropped_alarm_rings_no_more_and_keeps_nothing(autojump_clock: object) -> None:
    """Its deadline may be days away: of thousands of runs that are over, the queue has no more than a few entries."""
    clock = Clock()
    timers, began = Timers(clock), clock.now_ms()
    rang: list[str] = []

    class Run:
        def ring(self, now_ms: int) -> None:
            rang.append("over")

    kept = []
    async with trio.open_nursery() as tasks:
        tasks.start_soon(timers.run)
        for _ in range(2_000):
            run = Run()
            alarm = timers.alarm(run.ring)
            alarm.set(began + 90_000)
            alarm.set(began + 80_000)
            kept.append(weakref.ref(run))
            alarm.drop()
        del run, alarm
        timers.alarm(lambda now_ms: rang.append("goes on")).set(began + 99_000)
        gc.collect()
        assert len(timers._queue) < 200
        assert not [ref for ref in kept if ref() is not None]
        await trio.sleep(100)
        tasks.cancel_scope.cancel()

    assert rang == ["goes on"]


@pytest.mark.parametrize("seed", range(20))
async def test_what_is_left_when_many_alarms_are_dropped_rings_in_its_order(seed: int) -> None:
    """Each at its time, soonest first, whichever were dropped."""
    order = random.Random(seed)
    timers = Timers(Clock())
    rings: list[float] = []
    times = order.sample(range(100_000), 400)
    alarms = {at: timers.alarm(rings.append) for at in times}
    for at, alarm in alarms.items():
        alarm.set(at)
    gone = set(order.sample(times, 300))
    for at in gone:
        alarms[at].drop()
    while timers.due_ms < math.inf:
        timers.fire(int(timers.due_ms))

    assert rings == sorted(set(times) - gone)
