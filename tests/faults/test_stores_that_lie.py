"""Stores that return what they have not stored: they are not trusted, and nothing is stored twice."""

import os
import sqlite3
import subprocess
import sys
import types
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from supervised import OPEN, around

from proctor.adapters.stores import SQLiteStore
from proctor.policies import Approval, Limits, Policy, PolicyError, merge_policies, parse_policies
from proctor.policies.events import Event
from proctor.supervisor import StoreError, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter


@pytest.mark.anyio
@pytest.mark.parametrize("given_back", [
    lambda stored: stored[:-1],
    lambda stored: [stored[0]] * len(stored),
], ids=["one less", "one number"])  # fmt: skip
async def test_a_store_that_returns_other_events_than_it_was_given_is_not_trusted(given_back: Any) -> None:
    """No call is allowed, and the run ends with the error."""

    async def lies(append: Any, events: Sequence[Event], **owned: Any) -> Any:
        return given_back(await append(events, **owned))

    adapter = FakeAdapter([Ask(name="bash", input={"n": n}) for n in range(5)])
    with pytest.raises(StoreError, match="gave back"):
        await run_once(adapter, "go", policies=[OPEN], store=around(append=lies))
    assert adapter.ran == []


@pytest.mark.anyio
@pytest.mark.parametrize("method", ["create_run", "append"])
async def test_a_wrapper_store_that_returns_nothing_is_an_error(method: str) -> None:
    """As with a missing `return`. The error names the method, and the run has ended."""

    async def silent(usual: Any, *given: Any, **more: Any) -> None:
        await usual(*given, **more)

    store, adapter = around(**{method: silent}), FakeAdapter([Ask(name="bash")])
    with pytest.raises(StoreError) as raised:
        await run_once(adapter, "go", policies=[OPEN], store=store, run_id="r")
    run = await store.run("r")

    assert f"from `{method}` of the store, got a value of type `NoneType`" in str(raised.value)
    assert adapter.launches == []
    assert run is not None
    assert run.status == {"create_run": "cancelled", "append": "failed"}[method]


FORKS = """
import os, sys, anyio
from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import RunCompleted
from proctor.supervisor import StoreError

store = SQLiteStore(sys.argv[1])
use = {
    "append": lambda: store.append([RunCompleted(session_id="s")]),
    "last_seq": lambda: store.last_seq("s"),
    "wait": lambda: store.wait(1, 1),
}
anyio.run(use["append"])
child = os.fork()
if child == 0:
    for name, one in use.items():
        try:
            anyio.run(one)
            os._exit(1)
        except StoreError as error:
            if error.kind != "forked":
                os._exit(2)
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
anyio.run(use["append"])
anyio.run(store.aclose)
sys.exit(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_forked_process_cannot_use_its_parents_store(tmp_path: Path) -> None:
    """It lacks the writer's thread, so it would wait for ever, or write into the parent's connection."""
    place = str(tmp_path / "s.db")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, place], timeout=PATIENCE_S, capture_output=True
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    with closing(sqlite3.connect(place)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (2,)


def test_trio_partly_imported_by_another_thread_fails_no_run_of_asyncio(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A module is in `sys.modules` before its contents are."""

    async def main() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            monkeypatch.setitem(sys.modules, "trio", types.ModuleType("trio"))
            await run_once(FakeAdapter([Ask(name="bash")]), "go", policies=[OPEN], store=store)

    anyio.run(main)


@pytest.mark.parametrize("seconds", [1e12, 1e300, float("inf")])
def test_an_unrepresentable_time_is_an_error_with_its_position(seconds: float) -> None:
    """In a file, and in a policy created in Python when it is merged, before anything starts."""
    written = {"name": "p", "approval": {"timeout_s": seconds}}
    with pytest.raises(PolicyError, match="timeout_s"):
        parse_policies(written)
    with pytest.raises(PolicyError, match="timeout_s"):
        merge_policies([Policy(name="p", limits=Limits(max_tool_calls=1), approval=Approval(timeout_s=seconds))])


@pytest.mark.anyio
async def test_a_time_limit_without_bound_never_expires() -> None:
    """It does not overflow, however large."""
    for seconds in (1e12, 1e300, 1.7e308):
        policy = Policy(name="p", limits=Limits(max_duration_ms=seconds, max_idle_ms=seconds))
        assert (await run_once(FakeAdapter([Ask(name="bash")]), "go", policies=[policy])).status == "completed"
