"""Roles of a PostgreSQL store, made by the words of the page: who supervises cannot rewrite history."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from page_blocks import ROOT, blocks
from postgres_server import OwnServer, needs_own_server

from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.tables import schema
from proctor.policies.events import RecordPruned
from proctor.policies.limits import Limits
from proctor.policies.policy import Policy
from proctor.supervisor import StoreError, run_once
from proctor.supervisor.ports.stored_types import Block, UnblockStarts
from proctor.supervisor.testing import Ask, FakeAdapter

pytestmark = needs_own_server
OPEN = Policy(name="open", limits=Limits(max_tool_calls=9))
PAGE = ROOT / "docs" / "operate" / "postgresql.md"
HISTORY = (
    "UPDATE proctor.events SET data = '{}'",
    "DELETE FROM proctor.events",
    "TRUNCATE proctor.events",
    "ALTER TABLE proctor.events ADD COLUMN x int",
    "DROP TABLE proctor.events",
    "CREATE TRIGGER t BEFORE INSERT ON proctor.events EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "UPDATE proctor.store SET store_id = 'x'",
    "DELETE FROM proctor.runs",
    "DELETE FROM proctor.instructions",
    "UPDATE proctor.instructions SET data = '{}'",
)


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    """With a store, and the roles of the page."""
    import psycopg

    own = OwnServer()

    async def made() -> None:
        await PostgresStore(own.url()).aclose()

    try:
        own.start()
        [sql] = [block.text for block in blocks(PAGE) if block.kind == "sql"]
        anyio.run(made)
        with psycopg.connect(own.url(), autocommit=True) as connection:
            connection.execute(sql)
            for role in ("worker", "retention", "reader"):
                connection.execute(f"ALTER ROLE proctor_{role} PASSWORD 'secret'")
        yield own
    finally:
        own.close()


def as_role(server: OwnServer, role: str) -> str:
    return str(server.url(user=f"proctor_{role}", password="secret"))


@pytest.mark.anyio
async def test_a_supervisor_works_and_rewrites_nothing(server: OwnServer) -> None:
    """Its role runs, orders and answers; the record it leaves is whole, and stays as it is."""
    import psycopg

    async with PostgresStore(as_role(server, "worker")) as store:
        agent = FakeAdapter([Ask(id="c1", name="read")])
        result = await run_once(agent, "go", policies=[OPEN], store=store)
        await store.send_command(Block(scope="tenant", value="x"))
        await store.send_command(UnblockStarts(scope="all"))
        with pytest.raises(StoreError, match="does not allow this to the role") as refused:
            await store.prune(
                RecordPruned(session_id=result.session_id), up_to=await store.last_seq(result.session_id)
            )
        again = await run_once(agent, "go", policies=[OPEN], store=store)

    assert (result.status, again.status, refused.value.kind) == ("completed", "completed", "unwritable")
    for statement in HISTORY:
        with (
            psycopg.connect(as_role(server, "worker"), autocommit=True) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement)
    assert audited(as_role(server, "reader")).findings == ()


@pytest.mark.anyio
async def test_only_the_role_for_retention_prunes(server: OwnServer) -> None:
    """It changes no event either."""
    import psycopg

    async with PostgresStore(as_role(server, "retention")) as store:
        result = await run_once(FakeAdapter(), "go", policies=[OPEN], store=store)
        last = await store.last_seq(result.session_id)
        pruned = await store.prune(RecordPruned(session_id=result.session_id), up_to=last)

    assert pruned is not None
    with (
        psycopg.connect(as_role(server, "retention"), autocommit=True) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(HISTORY[0])
    assert audited(as_role(server, "reader")).findings == ()


@pytest.mark.anyio
async def test_who_only_looks_sees_everything_and_writes_nothing(server: OwnServer) -> None:
    """It is told so."""
    async with PostgresStore(as_role(server, "reader")) as store:
        assert isinstance(await store.runs(), list)
        assert await store.wait(0, 0) > 0
        for attempt in (store.send_command(Block(scope="all")), store.release(1)):
            with pytest.raises(StoreError, match="does not allow this to the role"):
                await attempt


@pytest.mark.parametrize("role", ["worker", "reader"])
def test_a_role_that_may_not_create_tables_learns_who_does(
    server: OwnServer, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a store that another version has left, and of one that is not there; neither is touched."""
    import psycopg

    for statement, back, migrations, which in (
        ("", "", (("ALTER TABLE runs ADD COLUMN colour text",),), "is of an older version"),
        (
            "ALTER SCHEMA proctor RENAME TO elsewhere",
            "ALTER SCHEMA elsewhere RENAME TO proctor",
            (),
            "has no tables yet",
        ),
    ):
        monkeypatch.setattr(schema, "MIGRATIONS", migrations)
        with psycopg.connect(server.url(), autocommit=True) as owner:
            owner.execute(statement)
            try:
                with pytest.raises(
                    StoreError, match=f"{which}.*run `proctor store --make` as their owner"
                ) as refused:
                    PostgresStore(as_role(server, role))
            finally:
                owner.execute(back)

        assert refused.value.kind == "unwritable"
    assert audited(as_role(server, "reader")).findings == ()
