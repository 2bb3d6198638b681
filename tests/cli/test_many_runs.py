"""A store with more runs than a page: what is old is found all the same."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.cli.terminal.following import RECENT, Follower
from proctor.adapters.stores import SQLiteStore
from proctor.policies.stream.events import Event, MessageReceived, RunCompleted, RunStarted
from proctor.supervisor import MemoryStore
from proctor.supervisor.ports import Store

Cli = Any
AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER_RUNS = 1_100


async def fill(store: Store) -> None:
    """Two runs of sessions of their own, one of which goes on, and more runs after them, all over."""
    old: list[Event] = [
        RunStarted(run_id="run_going", session_id="ses_going", at=AT),
        RunStarted(run_id="run_over", session_id="ses_over", at=AT),
        RunCompleted(run_id="run_over", session_id="ses_over", at=AT),
    ]
    later: list[Event] = []
    for n in range(LATER_RUNS):
        ids: dict[str, Any] = {"run_id": f"run_later{n}", "session_id": f"ses_later{n}"}
        later += [RunStarted(**ids, at=AT), RunCompleted(**ids, at=AT)]
    await store.append([*old, *later])


@pytest.fixture
def path(place: Path) -> Path:
    """The file of such a store."""

    async def made() -> None:
        async with SQLiteStore(place / "many.db") as store:
            await fill(store)

    anyio.run(made)
    return place / "many.db"


def test_kill_finds_a_run_however_many_came_after_it(cli: Cli, path: Path) -> None:
    """The one that goes on is the oldest of all."""
    killed = cli("kill", "--all", "--store", path, "--wait", "0", "--json")

    assert [line["run_id"] for line in killed.lines] == ["run_going"]
    assert killed.code == 3


def test_a_run_is_named_by_its_beginning_however_old(cli: Cli, path: Path) -> None:
    """As a person types it."""
    assert cli("show", "run_ov", "--store", path, "--json").lines[-1]["type"] == "run_completed"


def test_tail_begins_with_the_newest_runs_and_those_that_go_on(cli: Cli, path: Path) -> None:
    """The past of a store is not read as a whole."""
    told = {line["run_id"] for line in cli("tail", "--store", path, "-n", 10_000, "--json").lines}

    assert told == {"run_going", *(f"run_later{n}" for n in range(LATER_RUNS - RECENT, LATER_RUNS))}


@pytest.mark.anyio
async def test_a_follower_misses_no_event_of_an_old_or_a_new_session() -> None:
    """Whatever comes is told once: in a session long over, in one that goes on, in more new ones than a page."""
    store = MemoryStore()
    await fill(store)
    follower = Follower(store)
    await follower.new()
    quiet = await follower.new()
    come: list[Event] = [MessageReceived(session_id=f"ses_{name}", at=AT) for name in ("over", "going", "later7")]
    new: list[Event] = [
        RunStarted(run_id=f"run_new{n}", session_id=f"ses_new{n // 2}", at=AT) for n in range(LATER_RUNS)
    ]
    stored = await store.append([*come, *new])
    told = await follower.new()
    again = await follower.new()

    assert quiet == again == []
    assert sorted((e.session_id, e.seq) for e in told) == sorted((e.session_id, e.seq) for e in stored)
