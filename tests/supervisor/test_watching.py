"""A subscription sees everything from the moment it is entered, and leaves nothing behind."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import anyio
import pytest

from proctor.policies.policy import Policy
from proctor.policies.stream.events import MessageReceived
from proctor.supervisor import MemoryStore, Supervisor, UsageError
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.patience import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_it_hears_from_the_moment_it_is_entered(permissive: Policy) -> None:
    """Before the first event is asked for, a whole run may come and go."""
    async with Supervisor(MemoryStore()) as supervisor, supervisor.subscribe() as events:
        handle = await supervisor.start(FakeAdapter([MessageReceived(content="x")]), "go", policies=[permissive])
        result = await handle.wait()
        with anyio.fail_after(PATIENCE_S):
            seen = [await anext(events) for _ in result.events]

    assert seen == list(result.events)


@pytest.mark.parametrize("what", ["all", "session", "run"])
async def test_left_by_a_break_it_leaves_nothing_open(what: str, permissive: Policy) -> None:
    """No generator for the collector to complain about, and nobody who is still handed events."""
    given: dict[str, Any] = {"all": {}, "session": {"session_id": "s"}, "run": {"run_id": "r"}}[what]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with Supervisor(MemoryStore()) as supervisor:
            first = await supervisor.start(
                FakeAdapter([MessageReceived(content="x")]), "go", policies=[permissive], session_id="s", run_id="r"
            )
            await first.wait()
            async with supervisor.subscribe(**given) as events:
                await supervisor.start(FakeAdapter(), "go", policies=[permissive])
                async for _ in events:
                    break
            left = supervisor.statistics().subscribers
        del events
        gc.collect()

    assert left == 0


async def test_never_asked_for_an_event_it_leaves_nothing_open() -> None:
    """Entered and left."""
    async with Supervisor(MemoryStore()) as supervisor:
        async with supervisor.subscribe():
            entered = supervisor.statistics().subscribers
        left = supervisor.statistics().subscribers

    assert (entered, left) == (1, 0)


async def test_the_error_of_a_body_comes_out_as_it_is(permissive: Policy) -> None:
    """Leaving by an exception closes it like leaving by a break."""
    async with Supervisor(MemoryStore()) as supervisor:
        with pytest.raises(KeyError):
            async with supervisor.subscribe():
                raise KeyError
        left = supervisor.statistics().subscribers

    assert left == 0


async def test_a_run_that_is_not_there_is_known_on_entering() -> None:
    """Not at the first event."""
    async with Supervisor(MemoryStore()) as supervisor:
        with pytest.raises(UsageError, match="there is no run `r`"):
            await supervisor.subscribe(run_id="r").__aenter__()


async def test_iterated_without_being_entered_it_goes_on_to_work(permissive: Policy) -> None:
    """From the first event that is asked for."""
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(FakeAdapter(), "go", policies=[permissive])
        seen = [event async for event in supervisor.subscribe(run_id=handle.run_id)]
        result = await handle.wait()

    assert seen == list(result.events)
