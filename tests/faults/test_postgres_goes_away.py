"""Connections lost within a transaction, and servers that are killed and restarted: no acknowledged event is lost,
none is stored twice, and nothing waits for ever.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from traceback import walk_stack

import anyio
import anyio.to_thread
import pytest
from answering import until_held
from cutting_proxy import CuttingProxy
from postgres_server import OwnServer, needs_own_server

from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.postgres.store import DatabaseReaders
from proctor.policies import Policy, parse_policies
from proctor.policies.events import TERMINAL, MessageReceived, RunFailed, ToolCallCompleted
from proctor.supervisor import Cancel, Owner, RunInfo, StoreError, Supervisor, pending
from proctor.supervisor.control.approval_inbox import answer, record_answer, wait_recorded
from proctor.supervisor.ports.stored_types import AnswerGiven, ApprovalAnswer
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter

pytestmark = [needs_own_server, pytest.mark.anyio]

PIECES = 14
"""More than an append and a reconnect take."""


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with OwnServer() as server:
        yield server


@pytest.fixture
def proxy(server: OwnServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(server.folder) as proxy:
        yield proxy


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    return f"s{abs(hash(request.node.name)):x}"[:40]


def message(text: str) -> MessageReceived:
    return MessageReceived(session_id="s", content=text)


async def _texts(store: PostgresStore) -> list[object]:
    return [event.content async for event in store.read("s") if isinstance(event, MessageReceived)]


@pytest.mark.parametrize("after", [False, True])
async def test_an_append_is_stored_once_wherever_its_connection_is_lost(
    server: OwnServer, proxy: CuttingProxy, schema: str, after: bool
) -> None:
    """Before and after each message in either direction, including the commit and its answer."""
    async with PostgresStore(proxy.url(server.url()), schema=schema, patience_s=PATIENCE_S) as store:
        await store.append([message("first")])
        for piece in range(1, PIECES):
            proxy.cut_at(piece, after=after)
            await store.append([message(str(piece))])
        proxy.cut_at(10**9)

        assert proxy.cuts >= 5
        assert await _texts(store) == ["first", *map(str, range(1, PIECES))]
        assert await store.last_seq("s") == PIECES


APPENDS = """
import sys
import anyio
from proctor.adapters.stores import PostgresStore
from proctor.policies.events import MessageReceived

async def main():
    async with PostgresStore(sys.argv[1], schema=sys.argv[2]) as store:
        for piece in sys.stdin:
            await store.append([MessageReceived(session_id="s", content=piece)])
            print(piece, end="", flush=True)

anyio.run(main)
"""


def test_a_lost_connection_prints_nothing_on_the_terminal(
    server: OwnServer, proxy: CuttingProxy, schema: str
) -> None:
    """The database client would log there. Errors that matter are raised."""
    words = [sys.executable, "-c", APPENDS, proxy.url(server.url()), schema]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for piece in range(PIECES):
            proxy.cut_at(piece or 10**9)
            program.stdin.write(f"{piece}\n")
            program.stdin.flush()
            assert program.stdout.readline() == f"{piece}\n"
        assert program.communicate()[1] == ""
    assert proxy.cuts >= 5


@pytest.mark.parametrize("after", [False, True])
async def test_commands_and_claims_are_made_once_wherever_the_connection_is_lost(
    server: OwnServer, proxy: CuttingProxy, schema: str, after: bool
) -> None:
    """A command has one number, a run one row, and a registered owner knows its epoch."""
    async with PostgresStore(proxy.url(server.url()), schema=schema, patience_s=PATIENCE_S) as store:
        numbers = []
        for piece in range(1, PIECES):
            proxy.cut_at(piece, after=after)
            numbers.append(await store.send_command(Cancel(scope="run", value=f"{piece}")))
            proxy.cut_at(piece, after=after)
            owner = await store.register(Owner(owner_id=f"o{piece}"), lease_s=3600)
            proxy.cut_at(piece, after=after)
            run = RunInfo(run_id=f"r{piece}", session_id=f"s{piece}")
            created = await store.create_run(run, epoch=owner.epoch)
            proxy.cut_at(piece, after=after)
            await store.renew(owner.epoch, lease_s=3600)
            assert created.owner is not None
            assert created.owner.epoch == owner.epoch
        found = await store.commands()

        assert numbers == list(range(1, PIECES))
        assert [(order.number, getattr(order, "value", "")) for order in found] == [(n, f"{n}") for n in numbers]
        assert len(await store.runs()) == PIECES - 1


@pytest.mark.parametrize("after", [False, True])
async def test_an_answer_counts_once_wherever_its_connection_and_that_of_the_run_are_lost(
    server: OwnServer, proxy: CuttingProxy, schema: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its author learns that it counts, the run gets it, and the call runs once, or not at all."""
    monkeypatch.setattr("proctor.adapters.stores.postgres.store._POLL_S", 0.02)
    monkeypatch.setattr("proctor.adapters.stores.postgres.store._AGAIN_S", 0.02)
    asks = parse_policies("{name: p, tool_rules: [{deny: [bash], action: request_approval}]}")
    with CuttingProxy(server.folder) as own:
        async with (
            PostgresStore(own.url(server.url()), schema=schema, patience_s=PATIENCE_S) as store,
            PostgresStore(proxy.url(server.url()), schema=schema, patience_s=PATIENCE_S) as elsewhere,
            Supervisor(store) as supervisor,
        ):
            for piece in range(1, PIECES):
                given = ApprovalAnswer(granted=piece % 2 == 0, by="ana")
                adapter = FakeAdapter([Ask(name="bash")])
                handle = await supervisor.start(adapter, "go", policies=asks)
                request = await until_held(supervisor)
                proxy.cut_at(piece, after=after)
                own.cut_at(piece, after=after)
                answered = await answer(elsewhere, request.approval_id, given)
                result = await handle.wait()

                assert (answered.recorded, answered.answer) == (True, given)
                assert (result.status, len(adapter.ran)) == ("completed", int(given.granted))
            commands = [command for command in await store.commands() if isinstance(command, AnswerGiven)]

            assert min(proxy.cuts, own.cuts) >= PIECES // 2
            assert len(commands) == PIECES - 1


async def test_an_answer_during_an_outage_reports_what_is_known(
    server: OwnServer, proxy: CuttingProxy, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded answer is no error, although nobody can see whether the run acts on it. If its record may have been
    lost, the error says so. The run continues once the server is back.
    """
    monkeypatch.setattr("proctor.adapters.stores.postgres.store._AGAIN_S", 0.02)
    asks = parse_policies("{name: p, tool_rules: [{deny: [bash], action: request_approval}]}")
    given = ApprovalAnswer(granted=True, by="ana")
    async with (
        PostgresStore(server.url(), schema=schema) as store,
        PostgresStore(proxy.url(server.url()), schema=schema, patience_s=0.2) as elsewhere,
        Supervisor(store) as supervisor,
    ):
        handles = [await supervisor.start(FakeAdapter([Ask(name="bash")]), "go", policies=asks) for _ in range(2)]
        while len(requests := await pending(store)) < 2:
            await anyio.sleep(0.01)
        recorded = await record_answer(elsewhere, requests[0].approval_id, given)
        proxy.refuses = True
        proxy.cut()
        seen = await wait_recorded(elsewhere, recorded, wait_s=0.5)
        unsure = False
        while not unsure:  # a cut before the transaction is known to have stored nothing
            proxy.refuses = False
            await elsewhere.send_command(Cancel(scope="run", value="other"))  # it reconnects, writes and reads
            await elsewhere.last_command()
            proxy.refuses = True
            proxy.cut_at(8)  # two queries were answered by then, and the transaction has started
            with pytest.raises(StoreError) as raised:
                await answer(elsewhere, requests[1].approval_id, given)
            unsure = "whether the answer counts is not known" in str(raised.value)
        proxy.refuses = False
        await answer(elsewhere, requests[1].approval_id, given)
        results = [await handle.wait() for handle in handles]

    assert (seen.state, seen.answer) == ("granted", given)
    assert raised.value.kind == "unwritable"
    assert [result.status for result in results] == ["completed", "completed"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGQUIT])
async def test_a_killed_and_restarted_server_has_all_acknowledged_events(
    server: OwnServer, schema: str, how: signal.Signals
) -> None:
    """Once each, in order, with many appends in parallel. They continue if the server is back in time."""
    acknowledged: list[int] = []
    async with PostgresStore(server.url(), schema=schema, patience_s=PATIENCE_S) as store:

        async def append(task: int) -> None:
            for n in range(30):
                [event] = await store.append([message(f"{task}:{n}")])
                acknowledged.append(event.seq)

        async with anyio.create_task_group() as tasks:
            for task in range(8):
                tasks.start_soon(append, task)
            token = 0
            for kills in range(1, 4):
                while len(acknowledged) < 40 * kills:
                    token = await store.wait(token, PATIENCE_S)
                await anyio.to_thread.run_sync(server.stop, how)
                await anyio.to_thread.run_sync(server.start)
        texts = await _texts(store)

        assert sorted(acknowledged) == list(range(1, 241))
        assert sorted(texts, key=str) == sorted((f"{task}:{n}" for task in range(8) for n in range(30)), key=str)
        for task in range(8):
            mine = [text for text in texts if str(text).startswith(f"{task}:")]
            assert mine == [f"{task}:{n}" for n in range(30)]


async def test_a_server_that_stays_away_is_an_error_and_the_store_closes(
    server: OwnServer, proxy: CuttingProxy, schema: str
) -> None:
    """For appends and for queries, within their timeouts. Once the server is back, the store works again."""
    async with PostgresStore(proxy.url(server.url()), schema=schema, patience_s=0.2) as store:
        await store.append([message("a")])
        proxy.refuses = True
        proxy.cut()
        for attempt in (store.append([message("b")]), store.last_seq("s"), store.send_command(Cancel(scope="all"))):
            with pytest.raises(StoreError, match="cannot be reached") as raised:
                await attempt
            assert raised.value.kind == "unwritable"
        proxy.refuses = False
        await store.append([message("c")])

        assert await _texts(store) == ["a", "c"]


async def test_a_silent_server_blocks_neither_a_cancel_nor_the_close(
    server: OwnServer, proxy: CuttingProxy, schema: str
) -> None:
    """A waiting call can be cancelled, and the store closes. No remaining thread keeps the process alive."""
    async with PostgresStore(proxy.url(server.url()), schema=schema) as store:
        await store.append([message("a")])
        proxy.mute()
        cancelled = []
        for waiting in (store.append([message("b")]), store.last_seq("s"), store.wait(0, PATIENCE_S)):
            with anyio.move_on_after(0.05) as scope:
                await waiting
            cancelled.append(scope.cancelled_caught)
        while _reading():
            await anyio.sleep(0.01)
        proxy.mute(on=False)
        proxy.cut()

    assert cancelled == [True, True, True]


async def test_a_cancelled_query_of_a_server_that_is_gone_is_not_tried_again(
    server: OwnServer, proxy: CuttingProxy, schema: str
) -> None:
    """However patient the store is: the thread would try on after the store was closed."""
    async with PostgresStore(proxy.url(server.url()), schema=schema, patience_s=PATIENCE_S) as store:
        await store.append([message("a")])
        proxy.refuses = True
        with anyio.move_on_after(0.05) as scope:
            await store.last_seq("s")
        with anyio.fail_after(PATIENCE_S / 4):
            while _reading():
                await anyio.sleep(0.01)

    assert scope.cancelled_caught


@pytest.mark.parametrize("piece", [2, 4])
async def test_a_cancelled_query_whose_connection_is_being_opened_leaves_no_thread(
    server: OwnServer, proxy: CuttingProxy, schema: str, piece: int
) -> None:
    """The server is silent after it accepted the connection, or after it accepted the settings."""
    async with PostgresStore(proxy.url(server.url()), schema=schema) as store:
        await store.append([message("a")])
        proxy.mute_at(piece)
        with anyio.move_on_after(0.2) as scope:
            await store.last_seq("s")
        with anyio.fail_after(PATIENCE_S / 4):
            while _reading():
                await anyio.sleep(0.01)
        proxy.mute(on=False)
        proxy.cut()

    assert scope.cancelled_caught


def _reading() -> bool:
    """Whether a thread is within a query of a store."""
    stacks = (walk_stack(frame) for frame in sys._current_frames().values())
    return any(frame.f_code is DatabaseReaders._query.__code__ for stack in stacks for frame, _ in stack)


async def test_many_readers_of_a_silent_server_leave_threads_for_others(
    server: OwnServer, proxy: CuttingProxy, schema: str
) -> None:
    """Cancelling an agent needs a thread, and so does closing the store."""
    async with PostgresStore(proxy.url(server.url()), schema=schema) as store:
        await store.append([message("a")])
        proxy.mute()
        async with anyio.create_task_group() as tasks:
            for _ in range(60):
                tasks.start_soon(store.last_seq, "s")
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(lambda: None)
            tasks.cancel_scope.cancel()
    proxy.mute(on=False)
    proxy.cut()


async def test_a_server_that_stops_answering_is_lost_after_a_while(
    server: OwnServer, proxy: CuttingProxy, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store reconnects and checks whether its last write was stored."""
    monkeypatch.setattr("proctor.adapters.stores.postgres.store._ANSWER_S", 0.3)
    monkeypatch.setattr("proctor.adapters.stores.postgres.store._FOUND_S", 0.3)
    async with PostgresStore(proxy.url(server.url()), schema=schema, patience_s=PATIENCE_S) as store:
        await store.append([message("a")])
        for attempt in (partial(store.append, [message("b")]), partial(store.last_seq, "s")):
            proxy.mute()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt)
                await anyio.sleep(0.01)
                proxy.mute(on=False)

        assert await _texts(store) == ["a", "b"]


@pytest.mark.parametrize("piece", [2, 4])
async def test_a_server_that_stops_answering_while_a_store_is_opened_is_an_error(
    server: OwnServer, proxy: CuttingProxy, schema: str, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """After it accepted the connection, and after it accepted the settings."""
    monkeypatch.setattr("proctor.adapters.stores.postgres.store._ANSWER_S", 0.3)
    proxy.mute_at(piece)

    with pytest.raises(StoreError, match=r"no answer within 0\.3 s"):
        PostgresStore(proxy.url(server.url()), schema=schema, patience_s=0)


async def test_a_listener_keeps_its_connection_while_nothing_is_stored(
    server: OwnServer, proxy: CuttingProxy, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a wait for notifications is no lost connection."""
    monkeypatch.setattr("proctor.adapters.stores.postgres.store._POLL_S", 0.02)
    monkeypatch.setattr("proctor.adapters.stores.postgres.store._AGAIN_S", 0.02)
    async with PostgresStore(proxy.url(server.url()), schema=schema) as store:
        token = await store.wait(0, 0)
        connections = proxy.connections
        await store.wait(token, 0.2)

        assert proxy.connections == connections


@pytest.mark.parametrize("how", ["statement_timeout", "transaction_timeout", "pg_cancel_backend"])
async def test_a_waiting_commit_outlasts_the_servers_usual_timeouts(server: OwnServer, schema: str, how: str) -> None:
    """The store's own limits apply. If an administrator cancels the commit, it is retried."""
    import psycopg

    from proctor.adapters.stores.postgres.recording import LOCK_LOG

    with psycopg.connect(server.url(), autocommit=True) as others:
        limited = how.endswith("timeout")
        if limited:
            others.execute(f"ALTER DATABASE postgres SET {how} = '100ms'")
        try:
            async with PostgresStore(server.url(), schema=schema, patience_s=0 if limited else PATIENCE_S) as store:
                await store.append([message("a")])
                others.execute(f"SET search_path = {schema}")
                async with anyio.create_task_group() as tasks:
                    with others.transaction():
                        others.execute(LOCK_LOG)
                        tasks.start_soon(store.append, [message("b")])
                        while others.execute(WAITING).fetchone() != (1,):
                            await anyio.sleep(0.01)
                        others.execute("SELECT pg_sleep(0.2)")
                        if how == "pg_cancel_backend":
                            others.execute(f"SELECT pg_cancel_backend(pid) FROM {WAITERS}")
                assert await _texts(store) == ["a", "b"]
        finally:
            others.execute("ALTER DATABASE postgres RESET ALL")


WAITERS = "pg_stat_activity WHERE application_name LIKE 'proctor %' AND wait_event_type = 'Lock'"
WAITING = f"SELECT count(*) FROM {WAITERS}"


async def test_a_commit_that_waits_too_long_is_rejected_with_the_time_and_not_stored(
    server: OwnServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session holds the lock of the store's order. The error says so, and the next append works."""
    import psycopg

    from proctor.adapters.stores.postgres.recording import LOCK_LOG

    monkeypatch.setattr("proctor.adapters.stores.postgres.store._ANSWER_S", 0.3)
    async with PostgresStore(server.url(), schema=schema, patience_s=0.3) as store:
        await store.append([message("a")])
        with psycopg.connect(server.url()) as others:
            others.execute(f"SET search_path = {schema}")
            others.execute(LOCK_LOG)
            with pytest.raises(StoreError, match=r"no answer within 0\.3 s") as raised:
                await store.append([message("b")])
        await store.append([message("c")])

        assert raised.value.kind == "unwritable"
        assert await _texts(store) == ["a", "c"]


async def test_a_subscriber_misses_nothing_when_its_connections_are_lost(
    server: OwnServer, proxy: CuttingProxy, schema: str
) -> None:
    """Notifications are lost with them; events stored meanwhile are read."""
    async with (
        PostgresStore(server.url(), schema=schema) as writing,
        PostgresStore(proxy.url(server.url()), schema=schema) as following,
    ):
        seen: list[int] = []
        token = await following.wait(0, 0)
        for n in range(1, 6):
            proxy.cut()
            await writing.append([message(str(n))])
            while len(seen) < n:
                token = await following.wait(token, PATIENCE_S)
                seen += [entry.seq async for entry in following.log(after=len(seen))]

        assert seen == [1, 2, 3, 4, 5]


async def test_a_subscriber_on_a_standby_gets_events_within_a_second(server: OwnServer, schema: str) -> None:
    """A standby sends no notifications, so it is polled."""
    standby = server.standby()
    try:
        async with PostgresStore(server.url(), schema=schema) as writing:
            standby.start()
            async with PostgresStore(standby.url(), schema=schema) as following:
                token = await following.wait(0, 0)
                await writing.append([message("a")])
                await following.wait(token, 2 * PATIENCE_S)

                assert await _texts(following) == ["a"]
    finally:
        standby.close()


@pytest.mark.parametrize("since", [0, 30])
async def test_a_copy_without_the_latest_rows_ends_the_affected_runs_and_their_subscribers_get_an_error(
    since: int,
) -> None:
    """As after a failover to a late standby: no call runs if its log would have a gap. Subscribers get the error even
    if the copy has more events by now.
    """
    with ExitStack() as stack:
        server = stack.enter_context(OwnServer())
        proxy = stack.enter_context(CuttingProxy(server.folder))
        copies: list[OwnServer] = []

        async def copy() -> None:
            copies.append(stack.enter_context(closing(await anyio.to_thread.run_sync(server.standby))))

        async def fail_over() -> None:
            async for event in following:
                if isinstance(event, ToolCallCompleted) and event.tool_call_id == "c1":
                    break
            server.stop(signal.SIGKILL)
            (copies[0].data / "standby.signal").unlink()
            copies[0].start()
            proxy.lead_to(copies[0].folder)
            await store.append([message(str(n)) for n in range(since)])
            with pytest.raises(StoreError, match="an older copy"):
                await anext(following)

        adapter = FakeAdapter(
            [Ask(id=f"c{n}", name="bash", first=act) for n, act in enumerate((None, copy, fail_over))]
        )
        async with PostgresStore(proxy.url(server.url())) as store, Supervisor(store) as supervisor:
            following = supervisor.subscribe()
            with pytest.raises(StoreError, match="an older copy") as raised:
                await (await supervisor.start(adapter, "go", policies=[Policy(name="open")])).wait()
            [run] = await store.runs()
            events = [event async for event in store.read(run.session_id)]

    assert raised.value.kind == "gone"
    assert [call.id for call in adapter.ran] == ["c0", "c1"]
    assert [type(event) for event in events if isinstance(event, TERMINAL)] == [RunFailed]
    assert (run.status, type(events[-1])) == ("failed", RunFailed)


async def test_a_connection_that_the_server_closes_as_idle_is_reopened(server: OwnServer, schema: str) -> None:
    """As administrators may configure it; for reads and for writes."""
    import psycopg

    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'proctor %'"
    with psycopg.connect(server.url(), autocommit=True) as others:
        others.execute("ALTER DATABASE postgres SET idle_session_timeout = '500ms'")
        try:
            store = PostgresStore(server.url(), schema=schema)
            await store.append([message("a")])
            assert await store.last_seq("s") == 1
        finally:
            others.execute("ALTER DATABASE postgres RESET idle_session_timeout")
        async with store:
            while others.execute(left).fetchone() != (0,):
                await anyio.sleep(0.01)
            assert await store.last_seq("s") == 1
            await store.append([message("b")])
            assert await store.last_seq("s") == 2


async def test_a_server_that_is_read_only_for_a_while_is_written_to_again(server: OwnServer, schema: str) -> None:
    """As a standby before it takes over. The store reconnects, in case another server has taken over."""
    import psycopg

    async with PostgresStore(server.url(), schema=schema, patience_s=PATIENCE_S) as store:
        await store.append([message("a")])
        with psycopg.connect(server.url(), autocommit=True) as others:
            others.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
            others.execute(CUT_OFF)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, [message("b")])
                with anyio.move_on_after(0.3):
                    await anyio.sleep_forever()
                others.execute("ALTER DATABASE postgres RESET default_transaction_read_only")

        assert await _texts(store) == ["a", "b"]


@pytest.mark.parametrize(("change", "back", "words"), [
    ("ROLE ana CONNECTION LIMIT 0", "ROLE ana CONNECTION LIMIT -1", "cannot be reached .*too many connections"),
    ("DATABASE small CONNECTION LIMIT 0", "DATABASE small CONNECTION LIMIT -1", "cannot be reached .*too many"),
    ("DATABASE small ALLOW_CONNECTIONS false", "DATABASE small ALLOW_CONNECTIONS true", "cannot be reached .*not"),
    ("ROLE ana NOLOGIN", "ROLE ana LOGIN", "does not let this role in"),
])  # fmt: skip
async def test_a_server_without_a_free_connection_is_waited_for(
    server: OwnServer, change: str, back: str, words: str
) -> None:
    """A server that rejects the role is an error at once."""
    import psycopg

    url = server.url("small", "ana", "x")
    with psycopg.connect(server.url(), autocommit=True) as others:
        with suppress(psycopg.errors.DuplicateObject):
            others.execute("CREATE ROLE ana LOGIN PASSWORD 'x'")
            others.execute("CREATE DATABASE small OWNER ana")
        others.execute(f"ALTER {change}")
        waits = "reached" in words
        with pytest.raises(StoreError, match=words):
            PostgresStore(url, patience_s=0 if waits else 10 * PATIENCE_S)

        async def opened() -> None:
            store = await anyio.to_thread.run_sync(partial(PostgresStore, url, patience_s=PATIENCE_S))
            await store.aclose()

        async with anyio.create_task_group() as tasks:
            if waits:
                tasks.start_soon(opened)
            others.execute(f"ALTER {back}")
        await opened()


CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()"


@pytest.mark.parametrize("changes", [
    ["UPDATE replaced.store SET store_id = 'other'", CUT_OFF],
    ["DROP SCHEMA replaced CASCADE", CUT_OFF],
    ["DROP SCHEMA replaced CASCADE"],
], ids=["another", "none, seen anew", "none"])  # fmt: skip
def test_a_store_is_gone_after_its_database_was_restored_elsewhere(
    server: OwnServer, tmp_path: Path, changes: list[str]
) -> None:
    """A process that uses the replaced store gets an error: its cursors and claims are invalid there."""
    import psycopg

    async def main() -> str:
        async with PostgresStore(server.url(), schema="replaced", patience_s=0.2) as store:
            await store.append([message("a")])
            with psycopg.connect(server.url(), autocommit=True) as connection:
                for change in changes:
                    connection.execute(change)
            try:
                await store.append([message("b")])
            except StoreError as error:
                return error.kind
        return ""

    assert anyio.run(main) == "gone"
