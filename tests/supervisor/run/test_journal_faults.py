"""Stores that fail or are slow, callers that leave: each run has one end, and no unrecorded call is allowed."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from proctor.policies import Limits, Policy
from proctor.policies import events as ev
from proctor.policies.errors import PolicyViolationError
from proctor.supervisor import Cancel, MemoryStore, ProviderUnavailableError, StoreError, Supervisor, run_once
from proctor.supervisor.run.journal import CAPACITY
from proctor.supervisor.run.provider_session import TURN
from proctor.supervisor.testing import Ask, Crash, FakeAdapter, FaultyStore, Pause
from tests.supervised import OPEN, Before, Speaking, denying, record_of

pytestmark = pytest.mark.anyio
DEEP: Any = []
for _ in range(2000):
    DEEP = [DEEP]
UNSTORABLE = "cannot be stored as JSON|is nested more than 300 levels deep"


class Torrent(Speaking):
    """An agent that reports everything without waiting; `taken` counts the events that were read."""

    def __init__(self, events: Iterable[ev.Event]) -> None:
        super().__init__()
        self.torrent = events
        self.taken = 0

    async def events(self) -> AsyncIterator[ev.Event]:
        for event in self.torrent:
            self.taken += 1
            yield event


def deltas(count: int) -> list[ev.Event]:
    return [*(ev.MessageStreamed(delta=f"{n} ") for n in range(count)), ev.RunCompleted(output="done")]


class Dawdling(MemoryStore):
    """A store that is slow before and after it stores, and fails sometimes, at random by `dice`."""

    def __init__(self, dice: random.Random, *, fails: float) -> None:
        super().__init__()
        self._dice = dice
        self._fails = fails

    async def append(self, events: Sequence[ev.Event], **owned: Any) -> list[ev.Event]:
        for _ in range(self._dice.randrange(4)):
            await checkpoint()
        if self._dice.random() < self._fails:
            raise StoreError("the disk is full", kind="unwritable")
        stored = await super().append(events, **owned)
        for _ in range(self._dice.randrange(4)):
            await checkpoint()
        return stored


def check_whole(events: Sequence[ev.Event]) -> None:
    """The seqs have no gap, and the one terminal event is the last."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [isinstance(event, ev.TERMINAL) for event in events] == [False] * (len(events) - 1) + [True]


@pytest.mark.parametrize("seed", range(20))
async def test_a_slow_and_failing_store_keeps_the_log_in_order(seed: int) -> None:
    """Nothing is lost, duplicated or reordered. The caller gets the stored events, or the error."""
    dice = random.Random(seed)
    store, count = Dawdling(dice, fails=dice.choice([0, 0.02, 0.2])), dice.randrange(1, 4 * TURN)
    error = None
    try:
        result = await run_once(Torrent(deltas(count)), "go", policies=[OPEN], store=store)
    except StoreError as raised:
        error, result = raised, raised.partial
    stored = await record_of(store)
    stored_deltas = [event.delta for event in stored if isinstance(event, ev.MessageStreamed)]

    assert stored_deltas == [f"{n} " for n in range(len(stored_deltas))]
    assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
    assert list(result.events) == stored
    if error is None:
        check_whole(stored)
        assert len(stored_deltas) == count


@pytest.mark.parametrize("steps", [
    [ev.RunCompleted(output=DEEP)],
    [ev.RunCompleted(output="\ud800")],
    [ev.RunCompleted(output=[object()])],
    [ev.MessageReceived(content=DEEP), ev.MessageReceived(content="after"), ev.RunCompleted(output="x")],
    [ev.RunFailed(error={"message": "\ud800"})],
])  # fmt: skip
async def test_a_run_whose_log_lacks_an_event_has_failed_and_its_log_ends(steps: list[ev.Event]) -> None:
    """Even if the store can't store the end itself. The caller learns which event is missing."""
    store = MemoryStore()
    with pytest.raises(StoreError, match=UNSTORABLE) as raised:
        await run_once(Torrent(steps), "go", policies=[OPEN], store=store)
    stored = await record_of(store)

    check_whole(stored)
    assert isinstance(stored[-1], ev.RunFailed)
    assert stored[-1].error["type"] == "StoreError"
    assert raised.value.partial.status == (await store.runs())[0].status == "failed"


async def test_a_slow_store_bounds_the_unwritten_events() -> None:
    """The events of a provider that never waits are not read beyond the bound."""
    go_on = anyio.Event()
    store, adapter = Before(ev.MessageStreamed, go_on.wait), Torrent(deltas(20 * CAPACITY))
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await anyio.wait_all_tasks_blocked()
        read = adapter.taken
        go_on.set()
        result = await handle.wait()

    assert CAPACITY <= read <= CAPACITY + 4 * TURN  # the events being written, and those that wait
    assert result.status == "completed"
    check_whole(await record_of(store))


async def test_a_provider_that_never_waits_does_not_block_other_runs() -> None:
    """A run that starts later ends long before it."""
    torrent = Torrent(deltas(500 * TURN))
    async with Supervisor(MemoryStore()) as supervisor:
        chatty = await supervisor.start(torrent, "go", policies=[OPEN])
        short = await supervisor.start(FakeAdapter([Ask(name="read")]), "go", policies=[OPEN])
        await short.wait()
        taken = torrent.taken
        await chatty.cancel()
        result = await chatty.wait()

    assert taken < 100 * TURN
    assert result.status == "cancelled"
    assert torrent.taken < 200 * TURN


@pytest.mark.skipif(
    not hasattr(asyncio, "eager_task_factory"), reason="tasks that begin at once need Python 3.12 or later"
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_agent_that_never_waits_is_cancelled_with_eager_tasks() -> None:
    """In a program with asyncio's eager tasks, at the agent's first event."""
    loop: Any = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - of Python 3.12
    policy = Policy(name="p", limits=Limits(max_total_tokens=5))
    endless = chain([ev.TokenUsageUpdated(input_tokens=10)], repeat(ev.MessageStreamed(delta="x")))
    with pytest.raises(PolicyViolationError):
        await run_once(Torrent(endless), "go", policies=[policy])


@pytest.mark.parametrize("steps", [(), ("wait",)], ids=["short", "waits"])
@pytest.mark.parametrize("after", range(40))
async def test_a_caller_cancelled_at_any_checkpoint_leaves_a_complete_log(after: int, steps: Sequence[str]) -> None:
    """Either the run has ended once and released its agent, or it never started."""
    store = Dawdling(random.Random(after), fails=0)
    adapter = FakeAdapter(
        [ev.MessageReceived(content="a"), Ask(name="read"), Ask(name="bash"), *(Pause() for _ in steps)]
    )
    with anyio.CancelScope() as caller:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_after, after, caller)
            with suppress(PolicyViolationError):
                await run_once(adapter, "go", policies=[denying("cancel" if after % 2 else "deny")], store=store)
            tasks.cancel_scope.cancel()
    for run in await store.runs():
        check_whole([event async for event in store.read(run.session_id)])
        assert run.status in ("completed", "cancelled")

    assert adapter.closed == len(adapter.launches)
    assert len(set(adapter.steps_taken)) == len(adapter.steps_taken)


async def _cancel_after(checkpoints: int, scope: anyio.CancelScope) -> None:
    for _ in range(checkpoints):
        await checkpoint()
    scope.cancel()


async def test_an_invalid_command_harms_no_run() -> None:
    """It has an invalid label, or is for a run that does not exist."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[OPEN])
        await anyio.wait_all_tasks_blocked()
        await store.send_command(Cancel(scope="label", value="nothing"))
        await store.send_command(Cancel(scope="run", value="nobody"))
        await store.send_command(Cancel(scope="run", value=handle.run_id, reason="enough"))
        result = await handle.wait()

    assert (result.status, result.reason) == ("cancelled", "enough")


STEPS = (
    ev.MessageReceived(content="hello"),
    Ask(id="c0", name="read", input={"path": "a"}),
    Ask(id="c1", name="bash", input={"command": "ls"}),
    ev.MessageReceived(content="bye"),
)


@pytest.mark.parametrize("fails_at", range(1, 9))
@pytest.mark.parametrize("action", ["warn", "deny", "cancel"])
async def test_a_store_that_fails_once_denies_and_cancels_and_has_a_complete_log(fails_at: int, action: str) -> None:
    """At whichever append it fails, calls that ran are recorded, and the log has one end."""
    store = FaultyStore(fails_at)
    adapter = FakeAdapter(STEPS)
    result = None
    with suppress(StoreError, PolicyViolationError):
        result = await run_once(adapter, "go", policies=[denying(action)], store=store)
    events = await record_of(store)

    assert [isinstance(event, ev.TERMINAL) for event in events].count(True) == 1
    assert isinstance(events[-1], ev.TERMINAL)
    started = {event.tool_call_id for event in events if isinstance(event, ev.ToolCallStarted)}
    assert {call.id for call in adapter.ran} <= started
    assert len(adapter.steps_taken) <= 1
    assert adapter.closed == len(adapter.launches)
    assert isinstance(events[-1], ev.RunCompleted) == (result is not None)


@pytest.mark.parametrize("fails_at", range(1, 6))
async def test_a_store_that_stays_broken_allows_no_call_and_raises_at_the_caller(fails_at: int) -> None:
    """Calls fail closed."""
    store = FaultyStore(fails_at, stays_broken=True)
    adapter = FakeAdapter(STEPS)
    with pytest.raises(StoreError, match="disk is full"):
        await run_once(adapter, "go", policies=[denying("deny")], store=store)
    recorded = {e.tool_call_id for e in await record_of(store) if isinstance(e, ev.ToolCallStarted)}

    assert {call.id for call in adapter.ran} <= recorded


async def test_the_agent_is_cancelled_even_if_the_violation_cannot_be_stored() -> None:
    """`policy_violation` is stored before the cancel; if the store fails, the cancel is sent anyway."""
    store = Before(ev.PolicyViolated, StoreError("no room for violations"))
    adapter = FakeAdapter([Ask(name="bash"), Pause()], gate="none")
    with pytest.raises(PolicyViolationError):
        await run_once(adapter, "go", policies=[denying("cancel")], store=store)

    assert adapter.steps_taken == ["interrupt"]


async def test_a_run_whose_start_cannot_be_recorded_starts_no_agent() -> None:
    """Not even for a moment."""
    prepared: list[FakeAdapter] = []

    class Noting(FakeAdapter):
        async def prepare(self) -> None:
            prepared.append(self)

    adapter = Noting()
    with pytest.raises(StoreError):
        await run_once(adapter, "go", policies=[OPEN], store=FaultyStore(1))

    assert (prepared, adapter.launches) == ([], [])


async def test_a_publisher_finds_the_approval_of_an_event_listed() -> None:
    """It may read the run when it gets an event."""
    listed: list[int] = []

    def publisher(event: ev.Event) -> None:
        if isinstance(event, ev.ToolApprovalRequested):
            listed.append(len(supervisor.approvals()))

    supervisor = Supervisor(MemoryStore(), publishers=[publisher])
    async with supervisor:
        handle = await supervisor.start(FakeAdapter([Ask(name="bash")]), "go", policies=[denying("request_approval")])
        await anyio.wait_all_tasks_blocked()
        await handle.cancel()

    assert listed == [1]


@pytest.mark.parametrize(("error", "message"), [
    (ProviderUnavailableError("not installed"), "not installed"),
    (RuntimeError("lone \udcff"), "lone \\udcff"),
])  # fmt: skip
async def test_an_error_of_an_agent_is_raised_unchanged_and_fails_its_run(error: Exception, message: str) -> None:
    """With the policy report. The log escapes characters that can't be encoded."""
    store = MemoryStore()
    missing = isinstance(error, ProviderUnavailableError)
    adapter = FakeAdapter(unavailable=error) if missing else FakeAdapter([Crash(error=error)])
    with pytest.raises(type(error)) as raised:
        await run_once(adapter, "go", policies=[OPEN], store=store)
    end = (await record_of(store))[-1]

    assert raised.value is error
    assert getattr(raised.value, "policy").action == "allow"  # noqa: B009
    assert isinstance(end, ev.RunFailed)
    assert end.error["message"] == message
