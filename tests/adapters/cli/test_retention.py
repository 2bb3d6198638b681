"""`store`, `prune`, `export` and `import`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from stored_rows import stored_rows

from proctor.adapters.cli.options import size_text
from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import PolicyViolated, RunCompleted, RunStarted


async def fill(path: Path) -> None:
    """Two sessions of 100 days ago, one with a violation, and one of today."""
    async with SQLiteStore(path) as store:
        for name, days in (("old", 100), ("broken", 100), ("new", 0)):
            ids: Any = {"run_id": f"run_{name}", "session_id": name, "at": datetime.now(UTC) - timedelta(days=days)}
            found = [PolicyViolated(**ids)] if name == "broken" else []
            await store.append([RunStarted(**ids), *found, RunCompleted(**ids)])


@pytest.fixture
def path(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_STORE", str(place / "some.db"))
    anyio.run(fill, place / "some.db")
    return place / "some.db"


def test_store_prints_its_location_and_its_size(cli: Any, path: Path) -> None:
    """For people and for programs."""
    [found] = cli("store", "--json").lines

    assert (found["path"], found["sessions"], found["runs"], found["events"]) == (str(path), 3, {"completed": 3}, 7)
    assert found["bytes"] > 10_000
    assert f"store     {path}\n" in cli("store").out
    assert "runs      3: 3 completed\n" in cli("store").out


def test_prune_lists_what_it_would_remove_and_what_it_removed(cli: Any, path: Path) -> None:
    """And what it kept, with the reason."""
    tried = cli("prune", "--older-than", "90d", "--dry-run")
    kept = cli("prune", "--older-than", "90d", "--keep-violations", "--by", "ops")
    [rest] = cli("prune", "--older-than", "90d", "--json").lines

    assert tried.out == "would remove 2 sessions: 2 runs, 5 events\n"
    assert kept.out.startswith("removed 1 session: 1 run, 2 events\nkept 1 with violations\nthe store was ")
    assert (rest["sessions"], rest["events"], rest["dry_run"]) == (1, 3, False)
    assert [line["run_id"] for line in cli("runs", "--json").lines] == ["run_new"]
    types = [line["type"] for line in cli("tail", "--json").lines]
    assert types == ["run_started", "run_completed", *["record_pruned"] * 2]


def test_an_unreadable_session_is_kept_and_keeps_no_other(cli: Any, path: Path) -> None:
    stored_rows(path, "UPDATE events SET data = x'00' WHERE run_id = 'run_old' AND type = 'run_completed'")
    pruned = cli("prune", "--older-than", "90d").out

    assert pruned.startswith("removed 1 session: 1 run, 3 events\nkept 1 that cannot be read (`proctor audit verify`")


def test_all_ended_sessions_can_be_removed(cli: Any, path: Path) -> None:
    """Of any age. The rest is intact, in this store and after an import."""
    assert cli("prune", "--older-than", "0s").out.startswith("removed 3 sessions")
    cli("export", "-o", "record.jsonl")
    cli("import", "record.jsonl", "--store", "other.db")

    assert cli("audit", "verify").code == 0
    assert cli("audit", "verify", "--store", "other.db").code == 0


def test_an_export_can_be_imported_elsewhere(cli: Any, path: Path, place: Path) -> None:
    """From a file or through standard output and input; with an editor's byte order mark."""
    lines = cli("export").out
    written = cli("export", "-o", "record.jsonl", "--session", "broken")
    first = cli("import", "-", "--store", "other.db", stdin="\ufeff" + lines)
    second = cli("import", "record.jsonl", "--store", "other.db", "--json")

    assert [json.loads(line)["event"]["type"] for line in lines.splitlines()[-2:]] == ["run_started", "run_completed"]
    assert written.err == "4 lines in record.jsonl\n"
    assert first.out == "stored 3 runs and 7 events\n"
    assert second.lines == [{"runs": 0, "events": 0, "already_there": 3}]
    assert cli("export", "--store", "other.db").out.splitlines()[1:] == lines.splitlines()[1:]
    assert cli("runs", "--json", "--store", "other.db").lines == cli("runs", "--json").lines


def test_sizes_are_short() -> None:
    """As a file manager shows them."""
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1_048_500: "1023.9 KiB", 5 * 2**20: "5.0 MiB"}
    assert {size: size_text(size) for size in sizes} == sizes
