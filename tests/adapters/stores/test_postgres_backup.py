"""A database backed up while a run writes, and restored beside it, by the tools of PostgreSQL itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import anyio
import pytest
from page_blocks import ROOT, words
from postgres_server import OwnServer, needs_own_server

from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.audit.audit import audited
from proctor.policies import parse_policies
from proctor.policies.events import ToolApprovalRequested
from proctor.supervisor import Supervisor
from proctor.supervisor.testing import Ask, FakeAdapter

pytestmark = needs_own_server
PAGE = ROOT / "docs" / "operate" / "backup.md"
ASKS = parse_policies("{name: p, rules: [{type: blocklist, tools: [deploy], action: request_approval}]}")


@pytest.fixture
def server() -> Iterator[OwnServer]:
    """With an empty database beside the first one, to restore into."""
    import psycopg

    own = OwnServer()
    try:
        own.start()
        with psycopg.connect(own.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE restored")
        yield own
    finally:
        own.close()


def _command(server: OwnServer, begins: str) -> None:
    """The command of the page that begins so, with this server's URLs in place of those it names."""
    [line] = [line for line in PAGE.read_text().splitlines() if line.startswith(begins)]
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


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_database_is_restored_as_it_was_in_one_moment(server: OwnServer, anyio_backend: str) -> None:
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
