"""An error of ours, or of the program's own log, leaves no agent and no caller behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import anyio
import pytest
import structlog

from proctor.policies.policy import Policy
from proctor.policies.stream.events import MessageReceived
from proctor.supervisor import MemoryStore, Supervisor, run_once
from proctor.supervisor.run.recorder import RunRecorder
from proctor.supervisor.testing import FakeAdapter, Pause
from proctor.supervisor.testing.patience import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def log_that_raises() -> Iterator[None]:
    def refuse(*_: Any) -> NoReturn:
        raise OSError("the log is full")

    structlog.configure(processors=[refuse])
    yield
    structlog.reset_defaults()


async def test_a_log_that_raises_hurts_no_run(log_that_raises: None, permissive: Policy) -> None:
    """What it could not take is told to Python's own logging."""
    result = await run_once(FakeAdapter([MessageReceived(content="x")]), "go", policies=[permissive])

    assert result.status == "completed"


@pytest.mark.parametrize("errand", ["hurry", "flush"])
async def test_a_run_whose_errand_breaks_ends_with_its_agent(
    errand: str, monkeypatch: pytest.MonkeyPatch, permissive: Policy
) -> None:
    """The caller hears of it; another run, and the supervisor, go on."""

    async def breaks(recorder: RunRecorder) -> None:
        raise LookupError("a mistake of ours")

    adapter = FakeAdapter([MessageReceived(content="x"), Pause()])
    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(MemoryStore()) as supervisor:
            handle = await supervisor.start(adapter, "go", policies=[permissive])
            async with supervisor.subscribe(run_id=handle.run_id) as events:
                async for event in events:
                    if isinstance(event, MessageReceived):
                        break
            monkeypatch.setattr(RunRecorder, errand, breaks)
            await handle.cancel()
            with pytest.raises(LookupError, match="a mistake of ours"):
                await handle.wait()
            monkeypatch.undo()
            other = await supervisor.start(FakeAdapter(), "go", policies=[permissive])
            assert (await other.wait()).status == "completed"

    assert adapter.closed == len(adapter.launches) == 1
