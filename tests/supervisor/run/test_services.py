"""Timers: each alarm fires once, at its time, however often and in whatever order alarms are set."""

import gc
import math
import random
import time
import weakref

import pytest
import trio
import trio.testing

from proctor.supervisor.run.services import Alarm, CancelPriority, Clock, Timers

pytestmark = pytest.mark.trio


async def fired_at(*settings: list[int | None]) -> list[tuple[int, int]]:
    """Which alarms fired after how many milliseconds; each is set to its times, one after another."""
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
async def test_an_alarm_fires_once_at_the_last_time_it_was_set_to(
    settings: list[list[int | None]], expected: list[tuple[int, int]], autojump_clock: object
) -> None:
    """The earliest first. Alarms of the same time fire in the order they were set."""
    found = await fired_at(*settings)

    assert [number for number, _ in found] == [number for number, _ in expected]
    assert all(0 <= at - due <= 1 for (_, at), (_, due) in zip(found, expected, strict=True))


async def test_an_alarm_that_came_due_while_the_machine_slept_fires_soon_after(autojump_clock: object) -> None:
    """Timers of the event loop do not go on meanwhile: this one would come two hours late."""
    clock, slept = Clock(), [0.0]
    clock._seconds = lambda: trio.current_time() + slept[0]
    clock.longest_s = 30.0
    timers, fired, began = Timers(clock), list[float](), trio.current_time()
    timers.alarm(lambda now_ms: fired.append(trio.current_time() - began)).set(clock.now_ms() + 7_200_000)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(timers.run)
        await trio.sleep(45)
        slept[0] = 10_000.0
        await trio.sleep(31)
        tasks.cancel_scope.cancel()

    assert fired == [60.0]


async def test_the_clock_has_the_time_of_day() -> None:
    """In milliseconds since the epoch."""
    before = int(time.time() * 1000)
    now_ms = Clock().now_ms()

    assert before - 100 <= now_ms <= time.time() * 1000 + 100  # the two clocks were read one after the other


async def test_an_alarm_in_the_past_fires_at_once_and_can_be_set_again(autojump_clock: object) -> None:
    """Also from within its own callback."""
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
    assert rings[0] >= began  # it gets the current time, not the time it was set to
    assert alarm.at_ms is None


async def test_an_alarm_that_is_postponed_again_and_again_takes_one_entry_in_the_queue() -> None:
    """An idle limit is postponed with every event."""
    pushed: list[int] = []

    class Noting(Timers):
        def push(self, at_ms: int, alarm: Alarm) -> None:
            pushed.append(at_ms)
            super().push(at_ms, alarm)

    alarm = Noting(Clock()).alarm(lambda now_ms: None)
    for at_ms in (5_000, 6_000, 7_000, 4_000, 8_000):
        alarm.set(at_ms)

    assert pushed == [5_000, 4_000]


async def test_other_tasks_run_between_two_late_alarms(autojump_clock: trio.testing.MockClock) -> None:
    """Even if each callback takes longer than the time to the next alarm."""
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


async def test_due_ms_is_the_time_of_the_earliest_alarm() -> None:
    """Code that never yields reads it."""
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
    """A waiting task continues then, or after 50 ms."""
    priority, began = CancelPriority(Clock()), trio.current_time()
    held, waited = [], []

    async def wait() -> None:
        await priority.wait()
        waited.append(round(trio.current_time() - began, 3))

    acquire, release = priority.acquire, priority.release
    for fired_at in (acquire, acquire, release, release, acquire, release):
        fired_at()
        held.append(bool(priority.until_ms))
    acquire()
    async with trio.open_nursery() as tasks:
        tasks.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        release()
    acquire()
    await wait()

    assert held == [True, True, True, False, True, False]
    assert waited == [0, pytest.approx(0.05, abs=0.002)]  # the clock has whole milliseconds


async def test_a_dropped_alarm_never_fires_and_is_freed(autojump_clock: object) -> None:
    """Deadlines may be days away. After thousands of ended runs, the queue has only a few entries."""
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
async def test_the_alarms_that_remain_after_many_are_dropped_fire_in_order(seed: int) -> None:
    """The earliest first, each at its time."""
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
