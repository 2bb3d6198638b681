"""Access to a PostgreSQL store: the documented roles, and TLS to the intended server."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest
from certificates import certificate_of
from page_blocks import ROOT, blocks
from postgres_server import DEBIANS, HBA, OwnServer, needs_debians_server, needs_own_server

from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.tables import schema
from proctor.policies import Limits, Policy
from proctor.policies.events import MessageReceived, RecordPruned
from proctor.supervisor import StoreError, run_once
from proctor.supervisor.ports.stored_types import Block, UnblockStarts
from proctor.supervisor.testing import Ask, FakeAdapter

NEEDS_DEBIANS_SERVER: pytest.MarkDecorator = needs_debians_server
NEEDS_OWN_SERVER: pytest.MarkDecorator = needs_own_server

OPEN = Policy(name="open", limits=Limits(max_tool_calls=9))
PAGE = ROOT / "docs" / "operate" / "postgresql.md"
HISTORY = (
    *("UPDATE proctor.events SET data = '{}'", "DELETE FROM proctor.events", "TRUNCATE proctor.events"),
    *("ALTER TABLE proctor.events ADD COLUMN x int", "DROP TABLE proctor.events"),
    "CREATE TRIGGER t BEFORE INSERT ON proctor.events EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    *("UPDATE proctor.store SET store_id = 'x'", "DELETE FROM proctor.runs", "DELETE FROM proctor.instructions"),
    "UPDATE proctor.instructions SET data = '{}'",
)


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    """With a store, and the documented roles."""
    import psycopg

    own = OwnServer(listen_addresses="127.0.0.1")
    own.put("pg_hba.conf", f"{HBA}host all all 127.0.0.1/32 trust\n".encode())

    async def made() -> None:
        await PostgresStore(own.url()).aclose()

    with own:
        [sql] = [block.text for block in blocks(PAGE) if block.kind == "sql"]
        anyio.run(made)
        with psycopg.connect(own.url(), autocommit=True) as connection:
            connection.execute(sql)
            for role in ("worker", "retention", "reader"):
                connection.execute(f"ALTER ROLE proctor_{role} PASSWORD 'secret'")
        yield own


def as_role(server: OwnServer, role: str) -> str:
    return str(server.url(user=f"proctor_{role}", password="secret"))


def check_denied(server: OwnServer, role: str, *statements: str) -> None:
    """The server rejects this for that role."""
    import psycopg

    for statement in statements:
        with (
            psycopg.connect(as_role(server, role), autocommit=True) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement)


@NEEDS_OWN_SERVER
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_each_role_has_exactly_the_documented_permissions(server: OwnServer) -> None:
    """A supervisor runs, sends commands and answers, and rewrites nothing. Retention prunes, and changes no event. A
    reader sees everything and writes nothing. The log stays intact.
    """
    agent = FakeAdapter([Ask(id="c1", name="read")])
    async with PostgresStore(as_role(server, "worker")) as store:
        result = await run_once(agent, "go", policies=[OPEN], store=store)
        await store.send_command(Block(scope="tenant", value="x"))
        await store.send_command(UnblockStarts(scope="all"))
        last = await store.last_seq(result.session_id)
        with pytest.raises(StoreError, match="does not allow this to the role") as raised:
            await store.prune(RecordPruned(session_id=result.session_id), up_to=last)
        again = await run_once(agent, "go", policies=[OPEN], store=store)
    async with PostgresStore(as_role(server, "retention")) as store:
        pruned = await store.prune(RecordPruned(session_id=result.session_id), up_to=last)
    async with PostgresStore(as_role(server, "reader")) as store:
        assert isinstance(await store.runs(), list)
        assert await store.wait(0, 0) > 0
        for attempt in (store.send_command(Block(scope="all")), store.release(1)):
            with pytest.raises(StoreError, match="does not allow this to the role"):
                await attempt

    assert (result.status, again.status, raised.value.kind) == ("completed", "completed", "unwritable")
    assert pruned is not None
    check_denied(server, "worker", *HISTORY)
    check_denied(server, "retention", HISTORY[0])
    assert audited(as_role(server, "reader")).findings == ()


@NEEDS_OWN_SERVER
@pytest.mark.parametrize("role", ["worker", "reader"])
def test_a_role_that_may_not_create_tables_learns_who_may(
    server: OwnServer, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a store of another version, and for a missing one. Neither is touched."""
    import psycopg

    for statement, back, migrations, which in (
        ("", "", (*schema.MIGRATIONS, ("ALTER TABLE runs ADD COLUMN colour text",)), "is of an older version"),
        (
            "ALTER SCHEMA proctor RENAME TO elsewhere",
            "ALTER SCHEMA elsewhere RENAME TO proctor",
            schema.MIGRATIONS,
            "has no tables yet",
        ),
    ):
        monkeypatch.setattr(schema, "MIGRATIONS", migrations)
        with psycopg.connect(server.url(), autocommit=True) as owner:
            owner.execute(statement)
            try:
                with pytest.raises(StoreError, match=f"{which}.*run `proctor store --make` as their owner") as raised:
                    PostgresStore(as_role(server, role))
            finally:
                owner.execute(back)

        assert raised.value.kind == "unwritable"
    assert audited(as_role(server, "reader")).findings == ()


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    """A server with a certificate for `localhost`, which rejects network connections without TLS."""
    tls_server = OwnServer(DEBIANS, listen_addresses="127.0.0.1", ssl="on")
    certificate, key = certificate_of("localhost")
    tls_server.put("server.crt", certificate)
    tls_server.put("server.key", key)
    tls_server.put("pg_hba.conf", b"local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
    with tls_server:
        yield tls_server


@pytest.fixture
def root(tls_server: OwnServer, tmp_path: Path) -> Path:
    """The certificate that clients get."""
    path = tmp_path / "root.pem"
    path.write_bytes((tls_server.data / "server.crt").read_bytes())
    return path


def url(tls_server: OwnServer, host: str = "localhost", **options: object) -> str:
    more = "&".join(f"{name}={quote(str(value), safe='/')}" for name, value in options.items())
    return f"postgresql://postgres@{host}:{tls_server.port}/postgres?hostaddr=127.0.0.1&{more}"


@NEEDS_DEBIANS_SERVER
def test_a_server_with_the_right_certificate_is_used_only_over_tls(tls_server: OwnServer, root: Path) -> None:
    """For every connection of the store: to create its tables, to write, to read, to listen."""
    import psycopg

    async def main() -> list[tuple[object, ...]]:
        found = url(tls_server, sslmode="verify-full", sslrootcert=root)
        async with PostgresStore(found, schema="named") as store:
            await store.append([MessageReceived(session_id="s", content="a")])
            await store.wait(0, 0)
            assert await store.last_seq("s") == 1
            with psycopg.connect(tls_server.url()) as connection:
                sql = """SELECT ssl, version FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                    WHERE application_name LIKE 'proctor%'"""
                return connection.execute(sql).fetchall()

    found = anyio.run(main)

    assert len(found) == 3
    assert set(found) == {(True, "TLSv1.3")}


@NEEDS_DEBIANS_SERVER
@pytest.mark.parametrize(("host", "options", "message"), [
    ("127.0.0.1", {"sslrootcert": "root.pem"}, "shows the certificate of another host"),
    ("localhost", {"sslrootcert": "other.pem"}, "a certificate that `sslrootcert` does not vouch for"),
    ("localhost", {"sslrootcert": "none.pem"}, "`sslrootcert` names no file"),
    ("localhost", {"sslmode": "disable"}, "does not let this role in from here: see pg_hba.conf"),
])  # fmt: skip
def test_another_server_is_not_used(
    tls_server: OwnServer, root: Path, host: str, options: dict[str, str], message: str
) -> None:
    """Nor is this one in plain text, which fails at once with a message about the cause."""
    root.with_name("other.pem").write_bytes(certificate_of("localhost")[0])
    if "sslrootcert" in options:
        options = {"sslmode": "verify-full", "sslrootcert": str(root.with_name(options["sslrootcert"]))}

    with pytest.raises(StoreError, match=message) as raised:
        PostgresStore(url(tls_server, host, **options), schema="refused", patience_s=3600)

    assert raised.value.kind == "unwritable"


@NEEDS_OWN_SERVER
def test_a_server_without_tls_is_not_used_in_plain_text_instead(server: OwnServer) -> None:
    """If the URL requires TLS."""
    with pytest.raises(StoreError, match="speaks no TLS, as the URL demands"):
        PostgresStore(url(server, sslmode="require"), schema="refused", patience_s=3600)
