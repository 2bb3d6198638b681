"""A run's events rewritten by SQL, with every digest made anew: `audit` finds that the run cannot have been so."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from postgres_server import needs_postgres, new_database

from proctor.adapters.cli import main
from proctor.adapters.stores import open_store
from proctor.adapters.stores.audit.audit import audited
from proctor.policies import Policy
from proctor.policies.events import TokenUsageUpdated
from proctor.supervisor import run_once
from proctor.supervisor.testing import Ask, FakeAdapter

Records: TypeAlias = list[dict[str, Any]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=needs_postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store with one run of two calls that reported what they used."""

    async def recorded(place: str) -> None:
        steps: list[TokenUsageUpdated | Ask] = [
            TokenUsageUpdated(input_tokens=100, output_tokens=10),
            Ask(name="bash", input={"command": "echo 1"}),
            Ask(name="bash", input={"command": "echo 2"}),
        ]
        store = open_store(place)
        async with store:
            policies = [Policy(name="open")]
            await run_once(FakeAdapter(steps), "go", policies=policies, store=store, session_id="s", run_id="r")

    if request.param == "sqlite":
        anyio.run(recorded, str(tmp_path / "s.db"))
        yield str(tmp_path / "s.db")
        return
    with new_database() as url:
        anyio.run(recorded, url)
        yield url


def rewrite(place: str, change: Callable[[Records], None]) -> None:
    """Change the records of the one session, and compute digests anew, as somebody would who knows how."""
    if place.startswith("postgresql:"):
        import psycopg

        connected: Any = psycopg.connect(place)
        connected.execute("SET search_path = proctor")
        mark = "%s"
    else:
        connected, mark = sqlite3.connect(place), "?"
    update = f"UPDATE events SET type = {mark}, data = {mark}, digest = {mark} WHERE position = {mark}"
    with closing(connected) as connection:
        rows = connection.execute("SELECT position, data FROM events ORDER BY seq").fetchall()
        events = [json.loads(bytes(data)) for _, data in rows]
        change(events)
        digest = sha256(b"proctor record\0s").digest()
        for (position, _), event in zip(rows, events, strict=True):
            data = json.dumps(event, separators=(",", ":")).encode()
            digest = sha256(digest + data).digest()
            connection.execute(update, (event["type"], data, digest, position))
        connection.commit()


def of_type(records: Records, *types: str) -> Records:
    """Those of one of these types."""
    return [each for each in records if each["type"] in types]


def nothing(records: Records) -> None:
    """Only written again."""


def used_less(records: Records) -> None:
    """What was reported is less than what the run ended with."""
    of_type(records, "token_usage_updated")[0]["input_tokens"] = 1


def started_again(records: Records) -> None:
    """The end of the first call becomes its start."""
    first = of_type(records, "tool_call_started")[0]
    ended = of_type(records, "tool_call_completed")[0]
    own: dict[str, Any] = {name: ended[name] for name in ("event_id", "seq", "at") if name in ended}
    ended.clear()
    ended.update(first)
    ended.update(own)


@pytest.mark.parametrize(
    ("change", "expected"),
    [(nothing, set()), (used_less, {"adds_up"}), (started_again, {"started_twice"})],
    ids=["nothing", "usage", "a second start"],
)
def test_a_run_that_cannot_have_been_so(
    place: str, change: Callable[[Records], None], expected: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Found though every digest is right, with the run's session; the command says so and fails."""
    rewrite(place, change)
    report = audited(place)
    with pytest.raises(SystemExit) as ended:
        main(["audit", "verify", "--store", place])
    shown = capsys.readouterr()

    assert {finding.code for finding in report.findings} - {"list_changed"} == expected
    assert report.intact is not bool(expected)
    assert ended.value.code == (1 if expected else 0), shown
    assert all(finding.session_id == "s" for finding in report.findings)
