"""Stores that do not answer, or that cancel their caller: runs still end, and the stored events are in order."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest
import trio.testing
from supervised import OPEN, around, held_up, record_of

from proctor.policies import Limits, Policy, PolicyViolationError, parse_policies
from proctor.policies.events import TERMINAL, Event, MessageReceived, RunCancelled, RunFailed
from proctor.supervisor import Cancel, Command, MemoryStore, StoreError, Supervisor, run_once
from proctor.supervisor.launch import launch
from proctor.supervisor.run import callbacks, recovery
from proctor.supervisor.run.journal import ANSWER_S, HURRY_S
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, FakeApprover, Pause


class Silent(MemoryStore):
    """Stores and answers appends before number `until`; later ones are answered when `answers` is set.

    `asked` has the events of all appends.
    """

    def __init__(self, until: int) -> None:
        super().__init__()
        self.answers = anyio.Event()
        self.appended: list[Event] = []
        self._left = until

    async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
        self.appended += events
        self._left -= 1
        if self._left < 0:
            await self.answers.wait()
        return await super().append(events, **owned)


@pytest.mark.trio
@pytest.mark.parametrize("until", [0, 1])
async def test_a_cancel_waits_for_the_store_only_up_to_its_timeout(until: int, autojump_clock: object) -> None:
    """Then the agent is ended by its cancel steps, and the caller learns that the log has no end."""
    store, adapter = Silent(until), FakeAdapter([MessageReceived(content="x"), Pause()])
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await handle.cancel()
        with pytest.raises(StoreError, match="the store has not answered for 5 seconds") as raised:
            await handle.wait()
        took = trio.current_time() - began

    assert took == pytest.approx(HURRY_S + ANSWER_S)
    assert adapter.steps_taken == ["interrupt"] * until
    assert adapter.closed == len(adapter.launches) == until
    assert raised.value.partial.status == "cancelled"


@pytest.mark.trio
async def test_a_deadline_is_kept_with_a_silent_store(autojump_clock: object) -> None:
    """The caller gets the policy's error, with the store's as its cause. A pending call is denied."""
    store, adapter = Silent(1), FakeAdapter([Ask(id="c1", name="read")])
    policy = Policy(name="p", limits=Limits(max_duration_ms=60_000), on_violation="cancel")
    with pytest.raises(PolicyViolationError) as raised:
        await run_once(adapter, "go", policies=[policy], store=store)

    assert trio.current_time() == pytest.approx(60 + HURRY_S + ANSWER_S, abs=0.1)
    assert adapter.ran == []
    assert isinstance(raised.value.__cause__, StoreError)


@pytest.mark.trio
async def test_an_ended_run_does_not_wait_for_ever_for_its_log(autojump_clock: object) -> None:
    """Its error has the result so far."""
    with pytest.raises(StoreError, match="has not answered") as raised:
        await run_once(FakeAdapter(output="all"), "go", policies=[OPEN], store=Silent(1))

    assert (raised.value.partial.status, raised.value.partial.output) == ("completed", "all")
    assert trio.current_time() == pytest.approx(HURRY_S + ANSWER_S)


@pytest.mark.trio
@pytest.mark.parametrize(("deaf", "after_s", "ended"), [(0, HURRY_S + 0.9 * ANSWER_S, 1), (2, 1.1 * HURRY_S, 0)])
async def test_a_store_that_answers_late_has_the_complete_log_once(
    deaf: int, after_s: float, ended: int, autojump_clock: object
) -> None:
    """Whether or not the agent has ended by then. Nothing is appended twice, and the caller gets the result."""
    store, adapter = Silent(1), FakeAdapter([MessageReceived(content="x"), Pause()], deaf=deaf)
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await trio.testing.wait_all_tasks_blocked()
        await handle.cancel()
        await trio.sleep(after_s)
        ended_before = adapter.closed
        store.answers.set()
        result = await handle.wait()
    stored = await record_of(store)

    assert ended_before == ended
    assert adapter.steps_taken == ["interrupt", "terminate", "kill"][: deaf + 1]
    assert result.status == "cancelled"
    assert [event.seq for event in store.appended] == [event.seq for event in stored]
    assert [isinstance(event, TERMINAL) for event in stored] == [False] * (len(stored) - 1) + [True]
    assert isinstance(stored[-1], RunCancelled)
    assert list(result.events) == stored


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("how", ["raises", "is cancelled", "stores and is cancelled"])
async def test_a_store_that_cancels_its_caller_has_failed(at: int, how: str, times: int) -> None:
    """In asyncio this looks like a cancel of the writing task. The run is ended and recorded."""

    class Cancels(MemoryStore):
        appends = 0

        async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
            self.appends += 1
            if at <= self.appends < at + times:
                await self._cancel()
            return await super().append(events, **owned)

        async def _cancel(self) -> None:
            task: Any = asyncio.current_task()
            if how == "raises":
                raise asyncio.CancelledError
            task.cancel()
            if how == "is cancelled":
                await asyncio.sleep(0)

    store, adapter = Cancels(), FakeAdapter([MessageReceived(content="x"), Ask(name="read"), Ask(name="read")])
    error = None
    try:
        await run_once(adapter, "go", policies=[OPEN], store=store)
    except StoreError as raised:
        error = str(raised)
    stored = await record_of(store)

    assert error == "the store cancelled an append by itself" or (error is None and how.startswith("stores"))
    assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
    took_the_last = how.startswith("stores") or store.appends >= at + times
    assert [isinstance(event, TERMINAL) for event in stored].count(True) == took_the_last
    assert adapter.closed == len(adapter.launches)


@pytest.mark.anyio
@pytest.mark.parametrize("method", ["reserve", "answer"])
async def test_a_store_that_ignores_a_cancel_does_not_hold_a_call_for_ever(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the timeout the call is denied, and the store's task is abandoned."""
    monkeypatch.setattr(callbacks, "ANSWER_S", 0.05)
    over = anyio.Event()

    async def deaf(usual: Any, *given: Any, **more: Any) -> Any:
        if method == "answer" or given[1][0].want:
            with anyio.CancelScope(shield=True):
                await over.wait()
        return await usual(*given, **more)

    store = around(**{method: deaf})
    policies = parse_policies("""
        name: p
        on_violation: deny
        tool_rules: [{deny: [bash], action: request_approval}]
        budgets: [{name: calls, max_tool_calls: 5, window: day}]
    """)
    adapter = FakeAdapter([Ask(name="bash")])
    with suppress(StoreError):  # without its budget, a run fails
        await run_once(adapter, "go", policies=policies, store=store, approver=FakeApprover(True))
    over.set()

    assert len(adapter.answers) == 1
    assert adapter.ran == []


@pytest.mark.anyio
@pytest.mark.parametrize("method", ["place", "register", "blocks", "create_run", "last_seq", "release"])
async def test_a_store_that_ignores_a_cancel_does_not_block_a_start_or_a_close(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start fails in time, and the supervisor closes."""
    monkeypatch.setattr(launch, "ANSWER_S", 0.05)
    monkeypatch.setattr(recovery, "ANSWER_S", 0.05)
    monkeypatch.setattr(recovery, "LEAVE_S", 0.05)
    store, _, over = held_up(method, shield=True)
    failed = ""
    async with Supervisor(store) as supervisor:
        try:
            await (await supervisor.start(FakeAdapter(), "go", policies=[OPEN])).wait()
        except StoreError as error:
            failed = str(error)
    over.set()

    assert failed == ("" if method == "release" else "the store has not answered for 0.05 seconds")


def unheard(error: type[BaseException]) -> Any:
    """A store whose first reads of commands fail."""
    errors = [error] * 3

    async def commands(usual: Any, **which: Any) -> list[Command]:
        if errors:
            raise errors.pop()
        return await usual(**which)  # type: ignore[no-any-return]

    return around(commands=commands)


async def cancelled_by_command(store: MemoryStore, policy: Policy) -> tuple[str, str]:
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[policy])
        await store.send_command(Cancel(scope="run", value=handle.run_id, reason="enough"))
        with anyio.fail_after(PATIENCE_S):
            result = await handle.wait()
    return result.status, result.reason


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_store_that_cancels_the_reader_of_commands_harms_no_run() -> None:
    """Commands are read again."""
    assert await cancelled_by_command(unheard(asyncio.CancelledError), OPEN) == ("cancelled", "enough")


@pytest.mark.trio
async def test_a_store_that_raises_when_commands_are_read_harms_no_run(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """They are read again each second, and the log has the error once."""
    assert await cancelled_by_command(unheard(RuntimeError), OPEN) == ("cancelled", "enough")
    assert len([line for line in caplog.messages if "instructions.unreadable" in line]) == 1


@pytest.mark.trio
async def test_a_silent_store_ends_an_agent_without_a_gate(autojump_clock: object) -> None:
    """Its actions would not be recorded."""
    store = Silent(1)
    adapter = FakeAdapter([MessageReceived(content="x"), Pause()], gate="none", deaf=1, rung_s=2)
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await trio.sleep(9)
        early = [*adapter.steps_taken]
        await trio.sleep(2)
        ending = [*adapter.steps_taken]
        store.answers.set()
        with pytest.raises(StoreError, match="the store has not answered for 10 seconds"):
            await handle.wait()

    assert (early, ending[:1]) == ([], adapter.steps_taken[:1])
    assert adapter.closed == 1
    assert isinstance((await record_of(store))[-1], RunFailed)


@pytest.mark.trio
async def test_a_quiet_agent_is_not_taken_for_a_silent_store(autojump_clock: object) -> None:
    """The store answered every append. How the agent was ended is recorded."""
    adapter = FakeAdapter([MessageReceived(content="x"), Pause()], gate="none", deaf=1)
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await trio.sleep(3600)
        done = handle.done
        await handle.cancel()
        result = await handle.wait()
    end = result.events[-1]

    assert (done, result.status) == (False, "cancelled")
    assert isinstance(end, RunCancelled)
    assert len(adapter.steps_taken) == 2
    assert [step["rung"] for step in end.evidence["rungs"]] == adapter.steps_taken


@pytest.mark.trio
@pytest.mark.parametrize("stores", [True, False])
async def test_an_unanswered_end_is_settled_when_the_store_answers_again(
    stores: bool, autojump_clock: object
) -> None:
    """Whether or not it stored the end: one end, no duplicate unit, and the run is listed as ended."""

    async def append(usual: Any, *given: Any, **owned: Any) -> Any:
        if 0 < trio.current_time() < 300:
            if stores:
                await usual(*given, **owned)
            await trio.sleep_forever()
        return await usual(*given, **owned)

    store = around(append=append)
    async with Supervisor(store) as supervisor:
        adapter = FakeAdapter([MessageReceived(content="x"), Pause(), MessageReceived(content="y")])
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await trio.sleep(1)
        await handle.cancel()
        with pytest.raises(StoreError, match="has not answered"):
            await handle.wait()
        await trio.sleep(600)
        (run,) = await store.runs()
    recorded = await record_of(store)

    assert run.status == "cancelled"
    assert [type(event) for event in recorded if isinstance(event, TERMINAL)] == [RunCancelled]
    assert [isinstance(event, MessageReceived) for event in recorded].count(True) == 1
    assert isinstance(recorded[-1], RunCancelled)
