"""A session is pruned while it is resumed, at every moment: its limits never restart from zero."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.audit.audit import audited
from proctor.policies import parse_policies
from proctor.supervisor import Store, UsageError, prune, run_once
from proctor.supervisor.testing import Ask, FakeAdapter

pytestmark = pytest.mark.anyio

POLICIES = parse_policies(
    "{name: p, limits: {max_tool_calls: {max: 3, scope: session, action: deny}}, approval: {timeout_s: 5}}"
)
LATER = datetime.now(UTC) + timedelta(days=30)
Step = Callable[[], Awaitable[object]]


class Interrupted:
    """A store in which something else happens before the n-th call; `calls` is the number of calls so far."""

    def __init__(self, store: Store, at: int, happens: Step) -> None:
        self._store = store
        self._at = at
        self._happens = happens
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in ("aclose", "wait", "read", "log"):
            return found

        async def call(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                with anyio.CancelScope(shield=True):  # it finishes even if the caller is cancelled
                    await self._happens()
            return await found(*given, **named)

        return call


def agent(calls: int) -> FakeAdapter:
    return FakeAdapter([Ask(id=f"c{n}", name="bash", input={"n": n}) for n in range(calls)])


async def ran(store: Any, adapter: FakeAdapter) -> list[str]:
    """The calls that ran in a run of the session; none if the session was pruned and so not resumed."""
    with suppress(UsageError):
        await run_once(adapter, "go", policies=POLICIES, store=store, session_id="s")
    return [call.id for call in adapter.ran]


async def pruned(store: Any) -> int:
    report = await prune(store, older_than=timedelta(days=1), now=LATER, by="ana")
    return report.sessions


@pytest.mark.parametrize("at", range(1, 14))
async def test_a_session_pruned_during_a_start_keeps_its_count_or_is_not_resumed(at: int, tmp_path: Path) -> None:
    """At any moment. Two calls of three are used, so a resumed session has one more, whatever happens in parallel."""
    path = tmp_path / "s.db"
    async with SQLiteStore(path) as store:
        assert len(await ran(store, agent(2))) == 2
        removed: list[int] = []

        async def other() -> None:
            async with SQLiteStore(path) as another:
                removed.append(await pruned(another))

        between = Interrupted(store, at, other)
        more = await ran(between, agent(3))
        left = [event.type async for event in store.read("s")]
    report = audited(path)

    assert report.findings == ()
    if removed == [1]:  # before the run had the session, or after it had ended
        assert more == [] or left == ["record_pruned"]
        assert "run_started" not in left
    else:
        assert (len(more), left[-1]) == (1, "run_completed")


@pytest.mark.parametrize("at", range(1, 7))
async def test_a_session_resumed_during_a_prune_is_kept_whole_or_already_gone(at: int, tmp_path: Path) -> None:
    """At any moment. Never does only the beginning of its log remain."""
    path = tmp_path / "s.db"
    more: list[str] = []
    async with SQLiteStore(path) as store:
        assert len(await ran(store, agent(2))) == 2

        async def other() -> None:
            async with SQLiteStore(path) as another:
                more.extend(await ran(another, agent(3)))

        removed = await pruned(Interrupted(store, at, other))
        left = [event.type async for event in store.read("s")]
    report = audited(path)

    assert report.findings == ()
    assert len(more) <= 1
    assert removed == (left[0] == "record_pruned")
    assert left[0] in ("session_created", "record_pruned")
    assert "run_started" not in left or not removed
