"""If the caller that waits for a run leaves, the run is cancelled, recorded and released before the
caller continues.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
import pytest
from supervised import OPEN

from proctor.policies.events import RunCancelled
from proctor.supervisor import MemoryStore, RunHandle, Supervisor, create_run, execute_run, run_once
from proctor.supervisor.run.tasks import call_within
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, Pause


class Started(FakeAdapter):
    """Does nothing until it is cancelled; calls `when_begun` first."""

    def __init__(self, when_begun: Callable[[], object] = lambda: None) -> None:
        async def begin() -> None:
            when_begun()

        super().__init__([Ask(name="read", meanwhile=begin), Pause()], deaf=1, rung_s=0.01)


async def once(adapter: FakeAdapter, store: MemoryStore) -> None:
    await run_once(adapter, "go", policies=[OPEN], store=store)


async def executed(adapter: FakeAdapter, store: MemoryStore) -> None:
    await execute_run(store, adapter, await create_run(store, "go"), policies=[OPEN])


Waiting = Callable[[FakeAdapter, MemoryStore], Awaitable[None]]
ways = pytest.mark.parametrize("waiting", [once, executed])


async def reasons(store: MemoryStore) -> list[str]:
    runs = await store.runs()
    events = [event for run in runs for event in [e async for e in store.read(run.session_id)]]
    return [event.reason for event in events if isinstance(event, RunCancelled)]


@ways
@pytest.mark.anyio
async def test_a_timeout_ends_the_run(waiting: Waiting) -> None:
    """Timeouts of anyio, on both backends."""
    store, scope = MemoryStore(), anyio.CancelScope()
    adapter = Started(lambda: setattr(scope, "deadline", -math.inf))
    with scope:
        await waiting(adapter, store)

    assert await reasons(store) == ["its caller was cancelled"]
    assert adapter.closed == len(adapter.launches) == 1


async def waited_for(run: Awaitable[None]) -> None:
    await asyncio.wait_for(run, PATIENCE_S)


async def timed_out(run: Awaitable[None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await run


@ways
@pytest.mark.parametrize("within", [waited_for, timed_out])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_a_timeout_of_asyncio_ends_the_run(
    waiting: Waiting, within: Callable[[Awaitable[None]], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in programs without anyio. The timeout passes once the agent has started."""
    loop, later = asyncio.get_running_loop(), [0.0]
    monkeypatch.setattr(loop, "time", lambda now=loop.time: now() + later[0])
    store, adapter = MemoryStore(), Started(lambda: later.append(later.pop() + PATIENCE_S))
    with pytest.raises(TimeoutError):
        await within(waiting(adapter, store))

    assert await reasons(store) == ["its caller was cancelled"]


@ways
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_cancelling_an_asyncio_task_ends_its_run_first(waiting: Waiting, times: int) -> None:
    """Even if it is cancelled several times."""
    store, begun = MemoryStore(), asyncio.Event()
    adapter = Started(begun.set)
    task = asyncio.ensure_future(waiting(adapter, store))
    await begun.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await reasons(store) == ["its caller was cancelled"]
    assert adapter.closed == 1


@pytest.mark.anyio
async def test_cancelling_a_task_that_only_waits_for_a_run_does_not_end_it() -> None:
    """The supervisor owns the run."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        with anyio.CancelScope() as waiting:
            handle = await supervisor.start(Started(waiting.cancel), "go", policies=[OPEN])
            await handle.wait()
        going_on = not handle.done
        await handle.cancel(reason="enough")
        result = await handle.wait()

    assert waiting.cancelled_caught
    assert going_on
    assert (result.status, result.reason) == ("cancelled", "enough")


@pytest.mark.anyio
async def test_the_error_that_left_a_block_is_recorded_by_its_type() -> None:
    """Its text is not recorded."""
    store = MemoryStore()

    async def failing() -> None:
        async with Supervisor(store) as supervisor:
            await supervisor.start(Started(), "go", policies=[OPEN])
            raise KeyError("a secret")

    with pytest.raises(KeyError):
        await failing()

    assert await reasons(store) == ["its caller failed: KeyError"]


@pytest.mark.anyio
async def test_a_block_cancelled_while_it_waits_for_its_runs_records_that() -> None:
    """On exit, a block waits for its runs. The reason is whatever ended the wait."""
    store = MemoryStore()
    with anyio.CancelScope() as scope:
        async with Supervisor(store) as supervisor:
            await supervisor.start(Started(scope.cancel), "go", policies=[OPEN])

    assert await reasons(store) == ["its caller was cancelled"]


async def held_open(store: MemoryStore, adapter: FakeAdapter) -> AsyncGenerator[RunHandle]:
    """A generator that owns a run, as programs and their fixtures have."""
    async with Supervisor(store) as supervisor:
        yield await supervisor.start(adapter, "go", policies=[OPEN])


@pytest.mark.anyio
async def test_a_supervisor_may_be_closed_by_another_task() -> None:
    """As a generator is when the garbage collector closes it. Its runs end, and the task that opened it is not
    cancelled.
    """
    store, adapter = MemoryStore(), FakeAdapter([Pause()])
    opened = held_open(store, adapter)
    handle = await anext(opened)

    async def close() -> None:
        await opened.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close)
    await anyio.lowlevel.checkpoint()

    assert handle.done
    assert await reasons(store) == ["its caller failed: GeneratorExit"]
    assert adapter.closed == len(adapter.launches)


def cancel_all_but(kept: set[Any]) -> None:
    for task in asyncio.all_tasks() - kept:
        task.cancel()


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_run_whose_task_was_cancelled_before_its_first_step_continues() -> None:
    """A program may cancel every task of its event loop. Otherwise, closing the supervisor would wait for ever."""
    before = asyncio.all_tasks()
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(FakeAdapter(), "go", policies=[OPEN])
        cancel_all_but(before)

    assert (await handle.wait()).status == "completed"


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_call_whose_task_was_cancelled_before_its_first_step_returns() -> None:
    """Otherwise, its caller would wait for ever."""
    asyncio.get_running_loop().call_soon(cancel_all_but, asyncio.all_tasks())

    async def call() -> str:
        return "answered"

    assert await call_within(math.inf, call) == "answered"
