"""A store's tables in PostgreSQL changed by SQL, beside the events: `audit` finds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import pytest
from postgres_server import needs_postgres, new_database, server_url

from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.audit.audit import audited
from proctor.policies import parse_policies
from proctor.policies.events.run_context import RunContext
from proctor.supervisor import create_run, run_once
from proctor.supervisor.ports.stored_types import Block
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover
from proctor.supervisor.testing.store_approvals import draw, money
from proctor.supervisor.testing.store_runs import begun, owner

if TYPE_CHECKING:
    import psycopg

pytestmark = needs_postgres

CHANGES = (
    "UPDATE approvals SET answered_at = '2020-01-01T00:00:00+00:00'",
    "UPDATE approvals SET held = NOT held",
    "UPDATE approvals SET run_id = 'other'",
    "DELETE FROM approvals",
    "CREATE RULE r AS ON INSERT TO events DO INSTEAD NOTHING",
    "CREATE POLICY p ON events",
    "UPDATE runs SET created_ms = 1",
    "UPDATE runs SET tenant = 'other' WHERE status = 'created'",
    "UPDATE store SET store_id = 'x'",
    "UPDATE runs SET provider = 'other' WHERE status = 'created'",
    "UPDATE sessions SET provider_session_id = 'other'",
    "UPDATE sessions SET provider = 'other'",
    "UPDATE runs SET calls_in_flight = 'x' WHERE run_id = 'drawing'",
    "UPDATE runs SET spec = convert_to('{\"model\":\"x\"}', 'utf8') WHERE run_id = 'drawing'",
    "UPDATE runs SET after = after + 1",
    "UPDATE runs SET epoch = 0",
    "UPDATE owners SET host = 'other'",
    "UPDATE owners SET pid = pid + 1",
    "UPDATE owners SET until = now() + interval '1 year'",
    "DELETE FROM owners",
    "UPDATE budgets SET most = most + 1",
    "UPDATE budget_parts SET used = 0",
    "UPDATE budget_shares SET held = 0",
    "UPDATE runs SET label_texts = '{}' WHERE label_texts != '{}'",
    "UPDATE runs SET label_texts = label_texts || '4:team=other'::text WHERE run_id = 'drawing'",
    "DELETE FROM budget_parts",
    "DELETE FROM budget_shares",
    "DELETE FROM budget_parts; DELETE FROM budget_shares; DELETE FROM budgets",
)

TEAM = RunContext(labels={"team": "a"})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A store with approvals, a budget that a run is drawing on, and runs that are over."""
    policies = parse_policies("{name: p, rules: [{type: blocklist, tools: [bash], action: request_approval}]}")

    async def recorded(url: str) -> None:
        async with PostgresStore(url) as store:
            for _ in range(2):
                adapter, approver = FakeAdapter([Ask(name="bash")]), FakeApprover(True)
                await run_once(adapter, "go", policies=policies, store=store, approver=approver, context=TEAM)
            await create_run(store, "go", context=TEAM)
            epoch = await owner(store)
            await begun(store, epoch, "drawing", "s-drawing")
            for used in (2, 3):
                await draw(store, epoch, "drawing", money(), used=used, want=1)
            await store.send_command(Block(scope="tenant", value="other"))

    with new_database() as url:
        anyio.run(recorded, url)
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
