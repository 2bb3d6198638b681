"""Stores changed by SQL: tables of PostgreSQL beside the events, and a run rewritten with every digest anew."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import pytest
from calling import called
from postgres_server import either_store, needs_postgres, new_database, server_url
from stored_rows import in_store

from proctor.adapters.stores.audit.audit import audited
from proctor.policies import Policy, parse_policies
from proctor.policies.events import TokenUsageUpdated
from proctor.supervisor import KillSwitch, Store, create_run, run_once
from proctor.supervisor.testing import Ask, FakeAdapter

from .test_a_tampered_cell import record

if TYPE_CHECKING:
    import psycopg

NEEDS_POSTGRES: pytest.MarkDecorator = needs_postgres

CHANGES = (
    *("CREATE RULE r AS ON INSERT TO events DO INSTEAD NOTHING", "CREATE POLICY p ON events"),
    "UPDATE runs SET spec = convert_to('{\"model\":\"x\"}', 'utf8') WHERE run_id = 'drawing'",
    "UPDATE runs SET labels = convert_to('{\"a\": \"', 'utf8') || '\\xff'::bytea || convert_to('\"}', 'utf8')",
    "UPDATE runs SET labels = convert_to('{\"a\": ' || repeat('[', 9999), 'utf8')",
    "UPDATE runs SET label_texts = label_texts || '4:team=other'::text WHERE run_id = 'drawing'",
    "DELETE FROM budget_parts; DELETE FROM budget_shares; DELETE FROM budgets",
)
"""Besides each column and each row alone, which `test_a_tampered_cell` changes."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A store with approvals, a budget that a run is drawing on, and runs that are over."""
    with new_database() as url:
        in_store(url, record)
        yield url


@contextmanager
def tampering(url: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A copy of the database, and a connection that may do anything to it."""
    import psycopg
    from psycopg import sql

    name = urlsplit(url).path.strip("/")
    copy = f"{name}_copy"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(copy), sql.Identifier(name))
        )
        try:
            copied = urlsplit(url)._replace(path=f"/{copy}").geturl()
            with psycopg.connect(copied, autocommit=True) as tampered:
                tampered.execute("SET search_path = proctor")
                yield copied, tampered
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(copy)))


@NEEDS_POSTGRES
@pytest.mark.parametrize("change", CHANGES)
def test_what_no_event_tells_is_held_to_what_was_written(url: str, change: str) -> None:
    """Approvals whole, runs as they were created and whose they are, owners, budgets; each change alone."""
    with tampering(url) as (changed, tampered):
        untouched = audited(changed).findings
        for statement in change.split("; "):
            assert tampered.execute(statement.encode()).rowcount > 0 or "CREATE" in statement
        report = audited(changed)

    assert untouched == ()
    assert {finding.code for finding in report.findings} == {"planted" if "CREATE" in change else "list_changed"}
    assert not report.intact


Records: TypeAlias = list[dict[str, Any]]
empty = either_store


@pytest.fixture
def place(empty: str) -> str:
    """A store with one run of two calls that reported what they used."""

    async def recorded(store: Store) -> None:
        steps: list[TokenUsageUpdated | Ask] = [
            TokenUsageUpdated(input_tokens=100, output_tokens=10),
            Ask(name="bash", input={"command": "echo 1"}),
            Ask(name="bash", input={"command": "echo 2"}),
        ]
        policies = [Policy(name="open")]
        await run_once(FakeAdapter(steps), "go", policies=policies, store=store, session_id="s", run_id="r")

    in_store(empty, recorded)
    return empty


@pytest.mark.parametrize(
    "sums",
    [((0, 100, 0.5), (0, 150, 0.7)), ((0, 100, 0.5), (0, 20, 0.1)), ((0, 10, None), (0, 20, 0.9), (5, 30, 1.0))],
    ids=["over runs", "from zero", "costs from prices"],
)
def test_runs_of_one_session_add_up(empty: str, sums: Sequence[Any]) -> None:
    """Each to its own part of a sum that goes on over the session's runs; a run that never began has none."""
    priced = parse_policies({"name": "p", "prices": {"*": {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 0}}})

    async def recorded(store: Store) -> None:
        given: Any = {"policies": priced, "store": store, "session_id": "s", "continuation": "replay"}
        for more, tokens, cost in sums:
            steps = [
                TokenUsageUpdated(scope="cumulative", input_tokens=tokens, cost_usd=cost, model="m"),
                TokenUsageUpdated(input_tokens=more, model="m"),
            ]
            await run_once(FakeAdapter(steps), "go", **given)
        await create_run(store, "go", run_id="r", session_id="s")
        await KillSwitch(store).kill(by="ana", run_id="r")

    in_store(empty, recorded)
    report = audited(empty)

    assert (report.intact, [finding.message for finding in report.findings]) == (True, [])


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
    return [each for each in records if each["type"] in types]


def nothing(records: Records) -> None: ...


def used_less(records: Records) -> None:
    """What was reported is less than what the run ended with."""
    of_type(records, "token_usage_updated")[0]["input_tokens"] = 1


def used_more(records: Records) -> None:
    of_type(records, "token_usage_updated")[0]["input_tokens"] = 1_000_000


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
    [(nothing, set()), (used_less, {"adds_up"}), (used_more, {"adds_up"}), (started_again, {"started_twice"})],
    ids=["nothing", "less", "more", "a second start"],
)
def test_a_run_that_cannot_have_been_so(
    place: str, change: Callable[[Records], None], expected: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Found though every digest is right, with the run's session; the command says so and fails."""
    rewrite(place, change)
    report = audited(place)
    answer = called(capsys, "audit", "verify", "--store", place)

    assert {finding.code for finding in report.findings} - {"list_changed"} == expected
    assert report.intact is not bool(expected)
    assert answer.code == (1 if expected else 0), answer
    assert all(finding.session_id == "s" for finding in report.findings)
