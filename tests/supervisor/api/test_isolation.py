"""An error of user code, or a bug of proctor, fails one run and affects no other."""

import asyncio
import gc
import itertools
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NoReturn

import anyio
import anyio.lowlevel
import pytest
import structlog
from structlog.testing import capture_logs

from proctor.policies import ToolCall, parse_policies
from proctor.policies.events import TERMINAL, Event, MessageReceived, RunCompleted, RunFailed, ToolCallStarted
from proctor.supervisor import Launch, MemoryStore, Provider, RunHandle, Supervisor, create_run, run_once
from proctor.supervisor.control.ownership import Ownership
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.machine.interface import Ticked
from proctor.supervisor.run.journal import Journal, RunRecorder
from proctor.supervisor.run.provider_session import ProviderReader
from proctor.supervisor.run.tasks import DetachedTask, OneShotEvent, SelfCancelledError, call_isolated
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, Pause
from tests.supervised import OPEN, Before, Speaking, around

pytestmark = pytest.mark.anyio
Raises = Callable[[], Awaitable[None]]


async def raise_cancelled() -> None:
    raise asyncio.CancelledError


async def interrupt() -> None:
    raise KeyboardInterrupt


async def leave() -> None:
    raise SystemExit(3)


async def raise_a_group() -> None:
    raise BaseExceptionGroup("of the provider's tasks", [KeyboardInterrupt(), ValueError("one")])


async def raise_a_cancel_that_is_over() -> None:
    """The cancel exception of the backend, kept after its scope has exited."""
    kept: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            kept.append(error)
            raise
    raise kept[0]


async def cancel_its_task() -> None:
    """As code that takes the current task for its own."""
    try:
        task: Any = asyncio.current_task()
    except RuntimeError:  # trio has no such method
        raise KeyboardInterrupt from None
    task.cancel()


RAISES = pytest.mark.parametrize(
    "raises",
    [raise_cancelled, interrupt, leave, raise_a_group, raise_a_cancel_that_is_over, cancel_its_task],
    ids=lambda raises: raises.__name__,
)
PLACES = ["prepare", "open", "events", "after an event", "close"]


class Erratic(Speaking):
    """Raises at one point of its life."""

    def __init__(self, place: str, raises: Raises) -> None:
        super().__init__()
        self._place = place
        self._raises = raises

    async def at(self, place: str) -> None:
        if place == self._place:
            await self._raises()
            await anyio.sleep_forever()  # a cancelled task is told here

    async def prepare(self) -> None:
        await self.at("prepare")

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        await self.at("open")
        yield self
        await self.at("close")

    async def events(self) -> AsyncIterator[Event]:
        await self.at("events")
        yield MessageReceived(content="x")
        await self.at("after an event")


async def check_one_end(supervisor: Supervisor, handle: RunHandle) -> Event:
    """The log of a run has one terminal event, and it is the last."""
    record = [event async for event in supervisor._store.read(handle.session_id)]
    assert [isinstance(event, TERMINAL) for event in record] == [False] * (len(record) - 1) + [True]
    return record[-1]


async def beside(act: Callable[[Supervisor], Awaitable[Any]], **settings: Any) -> Any:
    """Do something while another run is active, which must not notice and must complete."""
    go_on = anyio.Event()
    async with Supervisor(MemoryStore(), **settings) as supervisor:
        other = await supervisor.start(FakeAdapter([Ask(name="read", first=go_on.wait)]), "go", policies=[OPEN])
        result = await act(supervisor)
        assert not other.done
        go_on.set()
        assert (await other.wait()).status == "completed"
        await check_one_end(supervisor, other)
    return result


@RAISES
@pytest.mark.parametrize("place", PLACES)
async def test_an_error_of_a_provider_fails_only_its_run(place: str, raises: Raises) -> None:
    """At any point, whatever it raises. The caller that waits for the run is not cancelled either."""

    async def run(supervisor: Supervisor) -> None:
        handle = await supervisor.start(Erratic(place, raises), "go", policies=[OPEN])
        with pytest.raises(Exception):  # noqa: B017, PT011 - any, and no BaseException
            await handle.wait()
        await anyio.lowlevel.checkpoint()
        assert isinstance(await check_one_end(supervisor, handle), RunFailed)

    await beside(run)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_a_monitor_that_raises_cancels_its_run(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is allowed, and the caller gets its error."""
    adapter = FakeAdapter([Ask(name="read"), Pause()])

    async def run(supervisor: Supervisor) -> None:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await anyio.wait_all_tasks_blocked()
        machine = handle._actor._machine

        def tick(now_ms: int) -> Any:
            raise kind

        monkeypatch.setattr(type(machine._state.monitor), "tick", lambda self, now_ms: tick(now_ms))
        handle._actor._feed(Ticked(now_ms=handle._actor.now_ms()))
        monkeypatch.undo()
        with pytest.raises(Exception, match=kind.__name__):
            await handle.wait()
        assert isinstance(await check_one_end(supervisor, handle), RunFailed)

    await beside(run)

    assert adapter.steps_taken == ["interrupt"]


def broken_off(method: str, nth: int, kind: type[BaseException]) -> MemoryStore:
    """A store that raises this after the n-th call of the method, counted from 1."""
    calls = itertools.count(1)

    async def call(usual: Any, *given: Any, **more: Any) -> Any:
        done = await usual(*given, **more)
        if next(calls) == nth:
            raise kind
        return done

    return around(**{method: call})


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize(("method", "nth"), [("blocks", 1), ("create_run", 1), ("blocks", 2), ("last_seq", 1)])
async def test_a_start_interrupted_by_its_store_leaves_no_active_run(
    method: str, nth: int, kind: type[BaseException]
) -> None:
    """The caller gets the exception. A run that was stored by then has its end, and its session is free."""
    store, adapter = broken_off(method, nth, kind), FakeAdapter()
    with pytest.raises(BaseException):  # noqa: B017, PT011 - that, or an error that names it
        await run_once(adapter, "go", policies=[OPEN], store=store, session_id="s")
    ended = [run.status for run in await store.runs()]
    again = await run_once(adapter, "go", policies=[OPEN], store=store, session_id="s")

    assert ended == ([] if (method, nth) == ("blocks", 1) else ["cancelled"])
    assert (len(adapter.launches), again.status) == (1, "completed")


STARTING = ["place", "register", "blocks", "read", "last_seq", "create_run", "run", "claim_run", "commands"]
CONTROLLING = ["approval", "answer", "blocks", "send_command", "runs", "run"]


@pytest.mark.parametrize("method", STARTING)
async def test_a_cancel_that_a_store_raises_in_a_start_is_an_error(method: str) -> None:
    """The caller's task is not cancelled, and the session is free afterwards."""
    store, broken = cancelling_once(method)
    created = method in ("run", "claim_run", "commands")
    if created:
        await create_run(store, "go", run_id="r", session_id="s")
    async with Supervisor(store) as supervisor:

        async def start(run_id: str) -> RunHandle:
            if created:
                return await supervisor.execute(FakeAdapter(), run_id, policies=[OPEN])
            return await supervisor.start(FakeAdapter(), "go", policies=[OPEN], run_id=run_id, session_id="s")

        broken.append(method)
        with pytest.raises(StoreError, match="cancelled a call by itself"):
            await start("r")
        await anyio.lowlevel.checkpoint()
        assert broken == []
        again = await start("r" if created else "next")
        assert (await again.wait()).status == "completed"


@pytest.mark.parametrize("method", CONTROLLING)
async def test_a_cancel_that_a_store_raises_in_an_order_is_an_error(method: str) -> None:
    """The caller's task is not cancelled. An answer to an approval, a freeze and a kill can be given again."""
    store, broken = cancelling_once(method)
    policies = parse_policies("{name: p, rules: [{type: blocklist, tools: [bash], action: request_approval}]}")
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Ask(name="bash"), Pause()]), "go", policies=policies)
        await anyio.wait_all_tasks_blocked()
        (request,) = supervisor.approvals()

        async def order() -> None:
            if method in ("approval", "answer"):
                await supervisor.approve(request.approval_id, by="ana")
            elif method == "blocks":
                await supervisor.switch.blocks()
            elif method == "send_command":
                await supervisor.switch.block_starts(by="ana", reason="now", everything=True)
            else:
                scope: dict[str, Any] = {"run_id": handle.run_id} if method == "run" else {"everything": True}
                await supervisor.switch.kill(by="ana", **scope)

        broken.append(method)
        with pytest.raises(StoreError, match="cancelled a call by itself"):
            await order()
        await anyio.lowlevel.checkpoint()
        assert broken == []
        await order()
        await handle.cancel()


@pytest.mark.parametrize("method", ["place", "log", "wait"])
async def test_a_cancel_that_a_store_raises_at_a_subscriber_is_an_error(method: str) -> None:
    """The subscriber's task is not cancelled."""
    store, broken = cancelling_once(method)
    async with Supervisor(store) as supervisor:
        broken.append(method)
        with pytest.raises(StoreError, match="cancelled a call by itself"):
            async with supervisor.subscribe() as events:
                await anext(events)
        await anyio.lowlevel.checkpoint()

    assert broken == []


def cancelling_once(method: str) -> tuple[MemoryStore, list[str]]:
    """A store, and a list: once the name of the method is in it, its next call takes it out and raises a cancel."""
    broken: list[str] = []

    async def failing(real: Any, *given: Any, **named: Any) -> Any:
        if broken:
            broken.clear()
            await raise_a_cancel_that_is_over()
        return await real(*given, **named)

    async def reading(real: Any, *given: Any, **named: Any) -> AsyncIterator[Event]:
        if broken:
            broken.clear()
            await raise_a_cancel_that_is_over()
        async for event in real(*given, **named):
            yield event

    store = MemoryStore()
    setattr(store, method, partial(reading if method in ("read", "log") else failing, getattr(store, method)))
    return store, broken


@RAISES
async def test_an_error_of_a_store_fails_the_runs_and_does_not_cancel_the_caller(raises: Raises) -> None:
    """The event log can't be written, and the caller that waits gets the error."""

    async def err() -> None:
        await raises()
        await anyio.sleep_forever()

    adapter = FakeAdapter([Ask(name="read")])
    async with Supervisor(Before(ToolCallStarted, err)) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        with pytest.raises((StoreError, RuntimeError)):
            await handle.wait()
        await anyio.lowlevel.checkpoint()

    assert adapter.ran == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancel_within_an_error_group_does_not_cancel_the_caller() -> None:
    async def call() -> None:
        raise BaseExceptionGroup("of its tasks", [ValueError("one"), asyncio.CancelledError()])

    with pytest.raises(SelfCancelledError):
        await call_isolated(call)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancel_of_a_call_that_never_started_does_not_cancel_the_caller() -> None:
    """A program may cancel every task of its event loop but one."""
    begun, tasks_before = [], asyncio.all_tasks()

    async def call() -> None:
        begun.append(True)

    def cancel_the_rest() -> None:
        for task in asyncio.all_tasks() - tasks_before:
            task.cancel()

    asyncio.get_running_loop().call_soon(cancel_the_rest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # Python warns of a coroutine that was never started
        with pytest.raises(SelfCancelledError):
            await call_isolated(call)
        await anyio.lowlevel.checkpoint()
        gc.collect()

    assert begun == []


async def test_waiting_for_something_that_has_happened_yields_to_other_tasks() -> None:
    """A loop of such waits blocks no task, and can be cancelled."""
    latch, turns = OneShotEvent(), []
    latch.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await latch.wait()
        turns.append("not cancelled")

    async def other() -> None:
        turns.append("other")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for _ in range(3):
            await latch.wait()
        turns.append("waited")

    assert turns == ["other", "waited"]


@pytest.fixture
def log_that_raises() -> None:
    def refuse(*_: Any) -> NoReturn:
        raise OSError("the log is full")

    structlog.configure(processors=[refuse])


async def test_a_log_handler_that_raises_harms_no_run(log_that_raises: None) -> None:
    """The error goes to Python's own logging."""
    result = await run_once(FakeAdapter([MessageReceived(content="x")]), "go", policies=[OPEN])

    assert result.status == "completed"


async def breaks(*_: Any) -> NoReturn:
    raise LookupError("a mistake of ours")


class Grouped(Speaking):
    """Reports its end within a task group."""

    async def events(self) -> AsyncIterator[Event]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            yield RunCompleted(output="done")


async def test_a_stream_closed_within_a_task_group_has_not_failed() -> None:
    """The group raises only the close."""
    assert (await run_once(Grouped(), "go", policies=[OPEN])).output == "done"


@pytest.mark.parametrize("errand", ["hurry", "flush"])
async def test_a_background_task_that_raises_ends_its_run_and_agent(
    errand: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gets the error. Another run and the supervisor continue."""
    adapter = FakeAdapter([MessageReceived(content="x"), Pause()])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        async with supervisor.subscribe(run_id=handle.run_id) as events:
            async for event in events:
                if isinstance(event, MessageReceived):
                    break
        monkeypatch.setattr(RunRecorder, errand, breaks)
        await handle.cancel()
        with pytest.raises(LookupError, match="a mistake of ours"):
            await handle.wait()
        monkeypatch.undo()
        other = await supervisor.start(FakeAdapter(), "go", policies=[OPEN])
        assert (await other.wait()).status == "completed"

    assert adapter.closed == len(adapter.launches) == 1


async def test_a_run_with_an_internal_error_cancels_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller need not cancel it, and the log has the error."""
    go_on = anyio.Event()
    adapter = FakeAdapter([Ask(name="read", first=go_on.wait), Pause()])
    with capture_logs() as logged:
        async with Supervisor(MemoryStore()) as supervisor:
            handle = await supervisor.start(adapter, "go", policies=[OPEN])
            await anyio.wait_all_tasks_blocked()
            monkeypatch.setattr(RunRecorder, "flush", breaks)
            go_on.set()
            with pytest.raises(LookupError, match="a mistake of ours"):
                await handle.wait()

    assert adapter.closed == len(adapter.launches) == 1
    assert [entry["error"] for entry in logged if entry["event"] == "run.broken"] == [
        "LookupError: a mistake of ours"
    ]


@pytest.mark.parametrize(
    ("part", "step", "opened"), [(RunRecorder, "flush", 0), (Journal, "drained", 0), (DetachedTask, "released", 1)]
)
async def test_an_internal_error_at_a_runs_start_or_end_is_raised_at_the_caller(
    part: type, step: str, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a run fails before its start is recorded, its agent is not started."""
    adapter = FakeAdapter([MessageReceived(content="x"), Ask(name="read")])
    monkeypatch.setattr(part, step, breaks)
    with pytest.raises(LookupError, match="a mistake of ours"):
        await run_once(adapter, "go", policies=[OPEN])

    assert adapter.closed == len(adapter.launches) == opened


@pytest.mark.parametrize("budgets", ["", "budgets: [{name: b, max_tool_calls: 9}], "])
async def test_a_run_with_an_internal_error_has_an_end_and_its_session_is_free(
    budgets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would end it, as its owner lives on."""
    policies = parse_policies(f"{{name: p, {budgets}limits: {{max_turns: 9}}}}")
    monkeypatch.setattr("proctor.supervisor.run.journal.SETTLE_S", 0.01)
    adapter = FakeAdapter([Ask(name="read"), MessageReceived(content="x")])
    async with Supervisor(MemoryStore()) as supervisor:
        with monkeypatch.context() as patched:
            patched.setattr(ProviderReader, "run", breaks)
            handle = await supervisor.start(adapter, "go", policies=policies, session_id="s")
            with pytest.raises(LookupError, match="a mistake of ours"):
                await handle.wait()
        with anyio.fail_after(PATIENCE_S):
            async with supervisor.subscribe(run_id=handle.run_id) as events:
                ended = [event async for event in events if isinstance(event, TERMINAL)]
        again = await supervisor.start(adapter, "go", policies=policies, session_id="s")
        assert (await again.wait()).status == "completed"

    assert [type(event) for event in ended] == [RunFailed]
    assert "a mistake of ours" in str(ended[0])


async def test_a_supervisor_with_an_internal_error_ends_its_runs_and_starts_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It could neither renew its lease nor keep a deadline."""
    go_on = anyio.Event()

    async def breaks_then(_: Ownership) -> NoReturn:
        await go_on.wait()
        await breaks()

    monkeypatch.setattr(Ownership, "keep", breaks_then)
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[OPEN])
        go_on.set()
        result = await handle.wait()
        with pytest.raises(UsageError, match="not open"):
            await supervisor.start(FakeAdapter(), "go", policies=[OPEN])

    assert (result.status, result.reason) == ("cancelled", "the supervisor failed: LookupError")


async def test_a_caller_at_the_gate_of_a_run_with_an_internal_error_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call is not in the event log, and never will be."""
    adapter = FakeAdapter([MessageReceived(content="x"), Pause()])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[OPEN])
        await anyio.wait_all_tasks_blocked()
        monkeypatch.setattr(RunRecorder, "flush", breaks)
        answer = await adapter.launches[0].gate(ToolCall(id="c", name="read"))
        with pytest.raises(LookupError):
            await handle.wait()

    assert (answer.allowed, answer.stop) == (False, True)
