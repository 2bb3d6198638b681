"""What people and agents may write into a PostgreSQL store, and the store backed up while a run writes."""

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
async def test_runs_are_found_by_what_their_ids_begin_with_whatever_that_is(place: tuple[str, str]) -> None:
    """By nothing else either."""
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
async def test_an_id_is_the_same_to_a_process_whose_client_has_another_encoding(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PGCLIENTENCODING is taken for the encoding of what is sent, unless the store says another."""
    url, schema = place
    async with PostgresStore(url, schema=schema) as store:
        assert await store.run("\u4e2d\xe9") is None
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        async with PostgresStore(url, schema=schema) as other:
            await other.create_run(RunInfo(run_id="\u4e2d\xe9", session_id="s"))

            assert await store.run("\u4e2d\xe9") is not None


@NEEDS_POSTGRES
async def test_whatever_an_agent_reports_is_kept_or_refused_alone(place: tuple[str, str]) -> None:
    """An event's id of any length counts once, and any amount of tokens; an id that no index holds is refused, and
    what else is written goes on.
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
            with pytest.raises(StoreError, match="cannot keep an id this long") as refused:
                await store.append([event])
            assert refused.value.kind == "bad_record"
        for _ in range(3):
            await store.append([RunStarted(**about), *[most] * 10])
        run = await store.run("r")

        assert first == again
        assert await store.last_seq("s") == len(ids)
        assert run is not None
        assert run.usage.input_tokens == pytest.approx(3e19)


@NEEDS_POSTGRES
async def test_a_schema_has_a_name_that_the_server_keeps_whole(place: tuple[str, str]) -> None:
    """A longer one would be cut, and could be another store's; whatever else is in it, it is a name."""
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
    """With an empty database beside the first one, to restore into."""
    import psycopg

    with OwnServer() as own:
        with psycopg.connect(own.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE restored")
        yield own


def _command(server: OwnServer, begins: str) -> None:
    """The command of the page that begins so, with this server's URLs in place of those it names."""
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


async def _asked_for(supervisor: Supervisor, run_id: str) -> str:
    """The approval that a run waits for, once it does."""
    async with supervisor.subscribe(run_id=run_id) as events:
        async for event in events:
            if isinstance(event, ToolApprovalRequested):
                return event.approval_id
    raise AssertionError("the run ended")


@NEEDS_OWN_SERVER
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_database_is_restored_as_it_was_in_one_moment(server: OwnServer) -> None:
    """The commands of the page. A cursor that was kept is good; the run waits there still."""
    async with PostgresStore(server.url()) as store, Supervisor(store) as supervisor:
        agent = FakeAdapter([Ask(id="c1", name="deploy", input={"to": "prod"})])
        handle = await supervisor.start(agent, "Deploy", policies=ASKS)
        approval_id = await _asked_for(supervisor, handle.run_id)
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
