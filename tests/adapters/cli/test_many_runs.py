"""A store with more runs than one page: old ones are found anyway."""

from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from stored_rows import in_store

from proctor.adapters.cli.live import Latest, following
from proctor.policies.events import Event, MessageReceived, RunCompleted, RunStarted
from proctor.supervisor import MemoryStore, Store

AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER_RUNS = 1_100


async def fill(store: Store) -> None:
    """Two runs in their own sessions, one of them active, and then more ended runs."""
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


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "many.db"
    in_store(path, fill)
    return path


def test_a_run_is_found_by_its_prefix_however_old(cli: Any, path: Path) -> None:
    """If several runs share the prefix, the error has their number."""
    assert cli("show", "run_ov", "--store", path, "--json").lines[-1]["type"] == "run_completed"
    assert "100 or more runs begin with `later1`" in cli("show", "later1", "--store", path).err
    assert "2 runs begin with `run_later1099`" not in cli("show", "run_later1099", "--store", path).err


def test_tail_shows_the_latest_events_of_many(cli: Any, path: Path) -> None:
    """In the order of storing, below the whole id of their run."""
    tailed = [(line["run_id"], line["type"]) for line in cli("tail", "--store", path, "-n", 3, "--json").lines]
    lines = [line.strip() for line in cli("tail", "--store", path, "-n", 3).out.splitlines()]
    before, last = (f"run_later{LATER_RUNS - n}" for n in (2, 1))

    assert tailed == [(before, "run_completed"), (last, "run_started"), (last, "run_completed")]
    assert lines[0] == before
    assert f"{last} under no policy" in lines[2]
    assert len(lines) == 4


def test_kill_finds_a_run_older_than_a_page(cli: Any, path: Path) -> None:
    """The active run is the oldest."""
    killed = cli("kill", "--all", "--store", path, "--wait", "0", "--json")

    assert [line["run_id"] for line in killed.lines] == ["run_going"]
    assert killed.code == 3


@pytest.mark.anyio
@pytest.mark.parametrize("name", [None, "run_going"])
async def test_tail_follow_continues_from_the_last_shown_event(name: str | None) -> None:
    """Every new event is shown once: in an old session, in an active one, and of more than a page of new ones."""
    store = MemoryStore()
    await fill(store)
    run = None if name is None else await store.run(name)
    before = Latest(2, lambda event: True)
    shown = await (before.of_run(store, run) if run else before.of_all(store))
    come: list[Event] = [MessageReceived(session_id=f"ses_{name}", at=AT) for name in ("over", "going", "later7")]
    come += [RunCompleted(run_id="run_going", session_id="ses_going", at=AT)]
    come += [RunStarted(run_id=f"run_new{n}", session_id=f"ses_new{n // 2}", at=AT) for n in range(LATER_RUNS)]
    stored = await store.append(come)
    expected = [event for event in stored if run is None or event.run_id == run.run_id]
    async with aclosing(cast(Any, following(store, run, before.cursor))) as events:
        followed = [await anext(events) for _ in expected]

    assert [event.run_id for event in shown] == (["run_going"] if run else [f"run_later{LATER_RUNS - 1}"] * 2)
    assert followed == expected
