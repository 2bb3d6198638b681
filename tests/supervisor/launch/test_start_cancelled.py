"""A start that is cancelled during preflight of a large policy leaves nothing behind."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from supervised import OPEN

from proctor.policies import Findings, Policy, parse_policies, preflight
from proctor.supervisor import MemoryStore, Supervisor, create_run
from proctor.supervisor.launch import plan
from proctor.supervisor.testing.fakes import PATIENCE_S, FakeAdapter

pytestmark = pytest.mark.anyio


def large() -> list[Policy]:
    """Policies whose preflight takes so long that it runs in a thread."""
    inputs = [{"tool": "x", "where": [{"path": f"$.a{n}", "equals": n}]} for n in range(400)]
    return parse_policies({"name": "p", "rules": [{"type": "blocklist", "tools": [each]} for each in inputs]})


class Preflight:
    """The real preflight. When it polls `should_stop`, it sets `begun` and waits for `let`."""

    def __init__(self) -> None:
        self.begun, self.let, self.over = threading.Event(), threading.Event(), threading.Event()
        self.findings: Findings | None = None
        self._real = preflight

    def __call__(self, *about: Any, should_stop: Callable[[], bool] | None = None, **how: Any) -> Findings:
        if should_stop is None:
            return self._real(*about, **how)
        self.findings = self._real(*about, should_stop=lambda: self._waited(should_stop), **how)
        self.over.set()
        return self.findings

    def _waited(self, should_stop: Callable[[], bool]) -> bool:
        self.begun.set()
        assert self.let.wait(PATIENCE_S)
        return should_stop()


async def cancelled(
    start: Callable[[], Coroutine[Any, Any, object]], begun: threading.Event, *, by_task: bool
) -> None:
    """Cancel a start in progress: its own task, as asyncio does, or the scope around it."""
    if by_task:
        task = asyncio.ensure_future(start())
        await anyio.to_thread.run_sync(begun.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await anyio.to_thread.run_sync(begun.wait, PATIENCE_S)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("created", [False, True], ids=["start", "execute"])
@pytest.mark.parametrize(  # trio cancels scopes, not tasks
    ("anyio_backend", "by_task"),
    [("asyncio", False), ("asyncio", True), ("trio", False)],
    ids=["asyncio-scope", "asyncio-task", "trio-scope"],
)
async def test_a_start_cancelled_during_preflight_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, created: bool, by_task: bool
) -> None:
    """No run and no claim remain. The session and the slot are free, preflight stops, and the supervisor can be
    closed.
    """
    watched, store, adapter = Preflight(), MemoryStore(), FakeAdapter()
    monkeypatch.setattr(plan, "preflight", watched)
    given: dict[str, Any] = {"run_id": "r", "session_id": "s"}
    if created:
        await create_run(store, "go", **given)

    async def start(policies: list[Policy]) -> Any:
        if created:
            return await supervisor.execute(adapter, "r", policies=policies)
        return await supervisor.start(adapter, "go", policies=policies, **given)

    async with Supervisor(store, max_running=1) as supervisor:
        await cancelled(lambda: start(large()), watched.begun, by_task=by_task)
        left = [(run.run_id, run.status, run.owner) for run in await store.runs()]
        waiting = not watched.over.is_set()
        watched.let.set()
        await anyio.to_thread.run_sync(watched.over.wait, PATIENCE_S)
        result = await (await start([OPEN])).wait()

    assert waiting
    assert left == ([("r", "created", None)] if created else [])
    assert watched.findings is not None
    assert watched.findings.unfinished
    assert result.status == "completed"
    assert len(adapter.launches) == supervisor.statistics().started == 1


async def test_a_supervisor_can_be_closed_while_a_start_waits_for_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are cancelled. The close does not wait for the thread, and nothing is stored."""
    watched, store = Preflight(), MemoryStore()
    monkeypatch.setattr(plan, "preflight", watched)
    async with (
        anyio.create_task_group() as outer,
        Supervisor(store) as supervisor,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(lambda: supervisor.start(FakeAdapter(), "go", policies=large()))
        await anyio.to_thread.run_sync(watched.begun.wait, PATIENCE_S)
        outer.cancel_scope.cancel()
    waiting = not watched.over.is_set()
    watched.let.set()
    await anyio.to_thread.run_sync(watched.over.wait, PATIENCE_S)

    assert waiting
    assert await store.runs() == []
