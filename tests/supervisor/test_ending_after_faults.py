"""Whatever breaks: exactly one terminal event, the client released, nothing permitted without its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest

from proctor.policies.errors import PolicyViolationError
from proctor.policies.events import (
    TERMINAL,
    Event,
    MessageReceived,
    PolicyViolated,
    RunCompleted,
    RunFailed,
    ToolApprovalRequested,
    ToolCallStarted,
)
from proctor.policies.events.calls import ToolCall
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, ProviderUnavailableError, StoreError, Supervisor, run_once
from proctor.supervisor.testing import Ask, FakeAdapter, FaultyStore, Pause
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio

STEPS = (
    MessageReceived(content="hello"),
    Ask(id="c0", name="read", input={"path": "a"}),
    Ask(id="c1", name="bash", input={"command": "ls"}),
    MessageReceived(content="bye"),
)


async def events_of(store: MemoryStore) -> list[Event]:
    (run,) = await store.runs()
    return [event async for event in store.read(run.session_id)]


@pytest.mark.parametrize("fails_at", range(1, 9))
@pytest.mark.parametrize("action", ["warn", "deny", "cancel"])
async def test_a_store_that_fails_once_refuses_and_cancels_and_leaves_a_whole_record(
    fails_at: int, action: str, denying: Callable[..., Policy]
) -> None:
    """At whichever write it fails: the calls that ran are recorded, and the record ends once."""
    store = FaultyStore(fails_at)
    adapter = FakeAdapter(STEPS)
    result = None
    with anyio.fail_after(PATIENCE_S), suppress(StoreError, PolicyViolationError):
        result = await run_once(adapter, "go", policies=[denying(action)], store=store)
    events = await events_of(store)

    assert [isinstance(event, TERMINAL) for event in events].count(True) == 1
    assert isinstance(events[-1], TERMINAL)
    started = {event.tool_call_id for event in events if isinstance(event, ToolCallStarted)}
    assert {call.id for call in adapter.ran} <= started
    assert len(adapter.steps_taken) <= 1
    assert adapter.closed == len(adapter.launches)
    assert isinstance(events[-1], RunCompleted) == (result is not None)


@pytest.mark.parametrize("fails_at", range(1, 6))
async def test_a_store_that_stays_broken_lets_no_call_run_and_is_the_callers_error(
    fails_at: int, denying: Callable[..., Policy]
) -> None:
    """A record that cannot be written refuses the call (fail closed), and the caller hears of it."""
    store = FaultyStore(fails_at, stays_broken=True)
    adapter = FakeAdapter(STEPS)
    with anyio.fail_after(PATIENCE_S), pytest.raises(StoreError, match="disk is full"):
        await run_once(adapter, "go", policies=[denying("deny")], store=store)
    recorded = {e.tool_call_id for e in await events_of(store) if isinstance(e, ToolCallStarted)}

    assert {call.id for call in adapter.ran} <= recorded


async def test_the_cancel_is_sent_even_if_the_violation_cannot_be_stored(denying: Callable[..., Policy]) -> None:
    """`policy_violation` is stored before the cancel is sent; if the store fails, it is sent all the same."""

    class RefusesViolations(MemoryStore):
        async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
            if any(isinstance(event, PolicyViolated) for event in events):
                raise StoreError("no room for violations")
            return await super().append(events, **owned)

    adapter = FakeAdapter([Ask(name="bash"), Pause()], gate="none")
    with anyio.fail_after(PATIENCE_S), pytest.raises(PolicyViolationError):
        await run_once(adapter, "go", policies=[denying("cancel")], store=RefusesViolations())

    assert adapter.steps_taken == ["interrupt"]


async def test_the_violation_is_durable_when_the_cancel_is_sent(denying: Callable[..., Policy]) -> None:
    """Read the store at the moment the client hears of the cancel."""
    store = MemoryStore()
    seen: list[str] = []

    class Looks(FakeAdapter):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.steps_taken = _Watched(store, seen)

    class _Watched(list[str]):
        def __init__(self, store: MemoryStore, seen: list[str]) -> None:
            self._store, self._seen = store, seen

        def append(self, step: str) -> None:
            super().append(step)
            for session in self._store._sessions.values():
                self._seen += [str(data) for data in session.data if b"policy_violation" in data]

    adapter = Looks([Ask(name="bash"), Pause()], gate="none")
    with anyio.fail_after(PATIENCE_S), pytest.raises(PolicyViolationError):
        await run_once(adapter, "go", policies=[denying("cancel")], store=store)

    assert len(seen) == 1


async def test_a_run_whose_start_cannot_be_recorded_starts_no_client(permissive: Policy) -> None:
    """Not even for a moment."""
    prepared: list[FakeAdapter] = []

    class Noting(FakeAdapter):
        async def prepare(self) -> None:
            prepared.append(self)

    adapter = Noting()
    with anyio.fail_after(PATIENCE_S), pytest.raises(StoreError):
        await run_once(adapter, "go", policies=[permissive], store=FaultyStore(1))

    assert (prepared, adapter.launches) == ([], [])


async def test_a_publisher_that_hears_of_an_approval_finds_it_listed(denying: Callable[..., Policy]) -> None:
    """It may look at the run when it gets an event."""
    listed: list[int] = []

    def publisher(event: Event) -> None:
        if isinstance(event, ToolApprovalRequested):
            listed.append(len(supervisor.approvals()))

    supervisor = Supervisor(MemoryStore(), publishers=[publisher])
    async with supervisor:
        handle = await supervisor.start(FakeAdapter([Ask(name="bash")]), "go", policies=[denying("request_approval")])
        await anyio.wait_all_tasks_blocked()
        await handle.cancel()

    assert listed == [1]


async def test_a_client_that_is_not_installed_is_a_failed_run_with_its_own_error(permissive: Policy) -> None:
    """The adapter's error is raised unchanged, with the policy report."""
    error = ProviderUnavailableError("not installed")
    store = MemoryStore()
    with pytest.raises(ProviderUnavailableError) as raised:
        await run_once(FakeAdapter(unavailable=error), "go", policies=[permissive], store=store)

    assert raised.value is error
    assert raised.value.policy.action == "allow"
    assert isinstance((await events_of(store))[-1], RunFailed)


async def test_a_gate_caller_that_goes_away_leaves_no_call_open(
    denying: Callable[..., Policy], permissive: Policy
) -> None:
    """A provider that withdraws a held call: its approval is closed and the call recorded as refused."""

    class Withdraws(FakeAdapter):
        pass

    was_requested = anyio.Event()
    store = MemoryStore()

    async def approver(request: Any) -> None:
        was_requested.set()
        await anyio.sleep_forever()

    async def withdraw(launch_gate: Any) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(launch_gate, ToolCall(id="w", name="bash"))
            await was_requested.wait()
            tasks.cancel_scope.cancel()

    adapter = Withdraws()
    ask = Ask(name="read", meanwhile=lambda: withdraw(adapter.launches[0].gate))
    adapter.steps = (ask,)
    with anyio.fail_after(PATIENCE_S):
        result = await run_once(adapter, "go", policies=[denying("request_approval")], store=store, approver=approver)
    types = [event.type for event in result.events if getattr(event, "tool_call_id", "") == "w"]

    assert types[-3:] == ["tool_approval_expired", "policy_violation", "tool_call_denied"]
    assert result.status == "completed"
