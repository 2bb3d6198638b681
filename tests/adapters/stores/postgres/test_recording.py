"""Texts that people and agents may write into a PostgreSQL store, and a backup of it while a run writes."""

import subprocess
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from page_blocks import ROOT, words
from postgres_server import OwnServer, needs_own_server, needs_postgres, new_schema

from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.audit.audit import audited
from proctor.policies import parse_policies
from proctor.policies.events import MessageReceived, RunStarted, TokenUsageUpdated, ToolApprovalRequested
from proctor.supervisor import RunFilter, RunInfo, StoreError, Supervisor, UsageError
from proctor.supervisor.testing import Ask, FakeAdapter

pytestmark = pytest.mark.anyio

NEEDS_OWN_SERVER: pytest.MarkDecorator = needs_own_server
NEEDS_POSTGRES: pytest.MarkDecorator = needs_postgres


@pytest.fixture
def place() -> Iterator[tuple[str, str]]:
    with new_schema() as found:
        yield found


@NEEDS_POSTGRES
async def test_runs_are_found_by_any_prefix_of_their_ids(place: tuple[str, str]) -> None:
    """And by nothing else."""
    url, schema = place
    texts = ["\0", "\\0", "\\\\0", "a\\", "%", "%s", "$1", "''", '"', "\\ud800", "_", "\x7f"]
    ids = {*(f"{text}{more}" for text in texts for more in ("x", "\\y")), "x", "\\", "\\\\", "\\0x", "z"}
    async with PostgresStore(url, schema=schema) as store:
        for id in ids:
            context: dict[str, Any] = {"tenant": id, "labels": {id: id}}
            await store.create_run(RunInfo(run_id=id, session_id=f"s{id}", spec={"context": context}))
        for text in (*texts, "\ud800"):
            found = {run.run_id for run in await store.runs(where=RunFilter(begins=text))}
            labelled = [run.run_id for run in await store.runs(where=RunFilter(labels={f"{text}x": f"{text}x"}))]

            assert found == {id for id in ids if id.startswith(text)}
            assert labelled == [f"{text}x"] * (text in texts)
            assert await store.run(text) is None


@NEEDS_POSTGRES
async def test_an_id_is_the_same_for_a_client_with_another_encoding(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PGCLIENTENCODING would be used for sent text, unless the store sets another."""
    url, schema = place
    async with PostgresStore(url, schema=schema) as store:
        assert await store.run("\u4e2d\xe9") is None
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        async with PostgresStore(url, schema=schema) as other:
            await other.create_run(RunInfo(run_id="\u4e2d\xe9", session_id="s"))

            assert await store.run("\u4e2d\xe9") is not None


@NEEDS_POSTGRES
async def test_an_agents_event_is_stored_or_rejected_alone(place: tuple[str, str]) -> None:
    """An event id of any length counts once, and so does any number of tokens. An id too long for an index is
    rejected, and other writes continue.
    """
    url, schema = place
    long = "".join(f"{n}:" for n in range(4000))
    about: Any = {"run_id": "r", "session_id": "used"}
    most = TokenUsageUpdated(input_tokens=10**18 - 1, cost_usd=1e17, **about)
    async with PostgresStore(url, schema=schema) as store:
        ids = ["x" * 100_000, "x" * 100_000 + "y", "\0" * 400, "é" * 300]
        first = [await store.append([MessageReceived(session_id="s", event_id=id, content=id)]) for id in ids]
        again = [await store.append([MessageReceived(session_id="s", event_id=id)]) for id in ids]
        for event in (MessageReceived(session_id=long), MessageReceived(session_id="s", run_id=long)):
            with pytest.raises(StoreError, match="cannot keep an id this long") as raised:
                await store.append([event])
            assert raised.value.kind == "bad_record"
        for _ in range(3):
            await store.append([RunStarted(**about), *[most] * 10])
        run = await store.run("r")

        assert first == again
        assert await store.last_seq("s") == len(ids)
        assert run is not None
        assert run.usage.input_tokens == pytest.approx(3e19)


@NEEDS_POSTGRES
async def test_a_schema_name_must_not_be_truncated_by_the_server(place: tuple[str, str]) -> None:
    """A longer one could become another store's. Other characters are part of the name."""
    import psycopg
    from psycopg import sql

    url, schema = place
    for name in ("", "a\0b", "x" * 64, "é" * 32):
        with pytest.raises(UsageError, match="`schema` is a name of at most 63 bytes"):
            PostgresStore(url, schema=name)
    odd = f'{schema[:30]}"; DROP TABLE é --%s'
    async with PostgresStore(url, schema=odd) as store, PostgresStore(url, schema=schema) as other:
        await store.append([MessageReceived(session_id="s")])

        assert (await store.last_seq("s"), await other.last_seq("s")) == (1, 0)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(odd)))


PAGE = ROOT / "docs" / "operate" / "backup.md"
ASKS = parse_policies("{name: p, rules: [{type: blocklist, tools: [deploy], action: request_approval}]}")


@pytest.fixture
def server() -> Iterator[OwnServer]:
    """With an empty second database to restore into."""
    import psycopg

    with OwnServer() as own:
        with psycopg.connect(own.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE restored")
        yield own


def _command(server: OwnServer, begins: str) -> None:
    """The page's command with this beginning, with this server's URLs."""
    [line] = [line for line in PAGE.read_text().replace("\\\n", " ").splitlines() if line.startswith(begins)]
    [given] = words(line)
    urls = {"proctor": server.url(), "restored": server.url("restored")}
    program, *arguments = [
        urls[word.rpartition("/")[2]] if word.startswith("postgresql:") else word for word in given
    ]
    done = subprocess.run(
        [server.program(program), *arguments], cwd=server.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


async def _pending_approval(supervisor: Supervisor, run_id: str) -> str:
    """The pending approval of a run, once there is one."""
    async with supervisor.subscribe(run_id=run_id) as events:
        async for event in events:
            if isinstance(event, ToolApprovalRequested):
                return event.approval_id
    raise AssertionError("the run ended")


@NEEDS_OWN_SERVER
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_database_is_restored_as_of_one_moment(server: OwnServer) -> None:
    """With the page's commands. A saved cursor is valid, and the run is still pending there."""
    async with PostgresStore(server.url()) as store, Supervisor(store) as supervisor:
        agent = FakeAdapter([Ask(id="c1", name="deploy", input={"to": "prod"})])
        handle = await supervisor.start(agent, "Deploy", policies=ASKS)
        approval_id = await _pending_approval(supervisor, handle.run_id)
        cursor = str(await store.place())
        await anyio.to_thread.run_sync(_command, server, "pg_dump")
        await supervisor.approve(approval_id, by="ana")
        result = await handle.wait()
    await anyio.to_thread.run_sync(_command, server, "pg_restore")

    assert result.status == "completed"
    assert audited(server.url("restored")).findings == ()
    async with PostgresStore(server.url("restored"), make=False) as restored:
        assert str(await restored.place()) == cursor
        [run] = await restored.runs()
        assert run.run_id == handle.run_id
        assert run.status != "completed"
