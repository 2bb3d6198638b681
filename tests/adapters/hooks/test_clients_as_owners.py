"""The client is the owner of its session's run: it is lost with it, and is treated as any other that was lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from proctor.adapters.hooks import daemon, hook_judge
from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import TERMINAL, Event, RunCancelled, RunFailed
from proctor.supervisor import KillSwitch, Owner, RunInfo, StoreError
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.ports.processes import as_owner
from proctor.supervisor.ports.stored_types import CLIENT
from proctor.supervisor.run.recovery import passing_owner

pytestmark = pytest.mark.anyio
POLICY = "{name: p, limits: {max_tool_calls: {max: 3, scope: session, action: deny}}}"


class Clients:
    """Processes that stand for clients: they do nothing until they are killed."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> Owner:
        """One more."""
        client = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self._running[client.pid] = client
        return as_owner(client.pid, CLIENT)

    def kill(self, client: Owner | None) -> None:
        """SIGKILL."""
        assert client is not None
        with self._running.pop(client.pid) as process:
            process.kill()

    def end(self) -> None:
        """None of them stays."""
        for process in self._running.values():
            process.kill()
            process.communicate()


@pytest.fixture
def clients() -> Iterator[Clients]:
    """The clients of a test."""
    opened = Clients()
    yield opened
    opened.end()


async def using(session: Any, use: Callable[[SQLiteStore], Any]) -> Any:
    async with SQLiteStore(session.store) as store:
        return await use(store)


async def runs(session: Any) -> list[RunInfo]:
    """The runs of the session, oldest first."""
    found: list[RunInfo] = await using(session, lambda store: store.runs())
    return found[::-1]


async def ends(session: Any) -> list[Event]:
    return [event for event in await session.events() if isinstance(event, TERMINAL)]


def begun(session: Any, client: Owner) -> None:
    """A client's run goes on, with two of three calls."""
    session.policy.write_text(POLICY)
    session.client = client
    session.prompt("p1")
    for id in ("c1", "c2"):
        assert session.pre(id, command="ls").verdict == "allow"
        session.post(id, command="ls")


async def test_a_run_is_its_clients_for_as_long_as_that_is_there(session: Any, clients: Clients) -> None:
    """Whatever becomes of the process that judges; lists name the client, and nobody ends the run as lost."""
    begun(session, clients.start())
    session.end()
    [run] = await runs(session)

    assert run.status == "running"
    assert run.owner is not None
    assert (run.owner.pid, run.owner.started, run.owner.gone) == (session.client.pid, session.client.started, False)
    assert await using(session, reap) == []
    session.post("c3", command="ls")
    session.hook("Stop")
    assert [run.status for run in await runs(session)] == ["completed"]


async def test_a_run_is_lost_with_its_client_and_ended_by_the_process_that_judges(
    session: Any, clients: Clients
) -> None:
    """By one terminal event that says whose it was; looking again ends nothing more."""
    begun(session, clients.start())
    session.look()
    there = [run.status for run in await runs(session)]
    clients.kill(session.client)
    left = [run.status for run in await runs(session)]
    session.look()
    session.look()
    [end] = await ends(session)

    assert (there, left) == (["running"], ["lost"])
    assert isinstance(end, RunFailed)
    assert (end.error or {}).get("code") == "owner_lost"
    assert f"its client, process {session.client.pid} on" in str(end.error)
    assert [run.status for run in await runs(session)] == ["failed"]


async def test_a_lost_run_is_reaped_by_whoever_uses_the_store(session: Any, clients: Clients) -> None:
    """With its client and the process that judges gone; a client that takes the session up counts on."""
    begun(session, clients.start())
    session.end()
    clients.kill(session.client)
    [reaped] = await using(session, reap)
    session.client = clients.start()
    session.prompt("p2")
    third = session.pre("c3", command="ls")
    session.post("c3", command="ls")

    assert reaped.owner.is_client
    assert (third.verdict, session.pre("c4", command="ls").verdict) == ("allow", "deny")
    assert [run.status for run in await runs(session)] == ["failed", "running"]
    events = await session.events()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("prompted", [True, False])
async def test_a_client_that_takes_a_session_up_ends_what_the_one_before_has_lost(
    session: Any, clients: Clients, prompted: bool
) -> None:
    """It did not complete; what is counted over the session goes on."""
    begun(session, clients.start())
    session.end()
    clients.kill(session.client)
    session.client = clients.start()
    if prompted:
        session.prompt("p2")
    third = session.pre("c3", command="ls")
    session.post("c3", command="ls")
    first, second = await runs(session)

    assert (first.status, second.status) == ("failed", "running")
    assert second.owner is not None
    assert second.owner.pid == session.client.pid
    assert (third.verdict, session.pre("c4", command="ls").verdict) == ("allow", "deny")
    assert len(await ends(session)) == 1


async def test_another_client_in_the_same_session_does_not_take_its_run(session: Any, clients: Clients) -> None:
    """The run stays with the client that began it while that is there, and one record has the calls of both."""
    begun(session, clients.start())
    first, session.client = session.client, clients.start()
    third = session.pre("c3", command="ls")
    session.post("c3", command="ls")
    [run] = await runs(session)

    assert run.owner is not None
    assert (run.owner.pid, run.status, run.calls) == (first.pid, "running", 3)
    assert third.verdict == "allow"
    assert session.pre("c4", command="ls").verdict == "deny"


async def test_a_run_is_killed_while_its_client_is_there(session: Any, clients: Clients) -> None:
    """At once, as nobody reads orders for it; its next call is refused, and its next prompt is a run of its own."""
    begun(session, clients.start())
    [outcome] = await using(session, lambda store: KillSwitch(store).kill(by="ana", everything=True, wait_s=30))
    after = session.pre("c3", command="ls")
    session.prompt("p2")

    assert (outcome.status, outcome.ended) == ("cancelled", True)
    assert (after.verdict, after.stop) == ("deny", True)
    assert session.pre("c4", command="ls").verdict == "allow"
    assert [type(end) for end in await ends(session)] == [RunCancelled]
    assert [run.status for run in await runs(session)] == ["cancelled", "running"]


async def test_hooks_write_nothing_of_a_run_that_somebody_is_ending(session: Any, clients: Clients) -> None:
    """Between the claim and the end a hook is refused: there is one writer, so there is one end."""
    begun(session, clients.start())
    [run] = await runs(session)
    before = await session.events()
    async with SQLiteStore(session.store) as store, passing_owner(store) as ending:
        await store.release(run.owner.epoch if run.owner else 0)
        await store.claim_run(run.run_id, epoch=ending.epoch, lost=True)
        for name in ("PreToolUse", "UserPromptSubmit", "Stop"):
            with pytest.raises(StoreError) as refused:
                session.hook(name, tool_use_id="c9", tool_name="Bash")
            assert refused.value.kind == "fenced"

    assert await session.events() == before
    assert [run.status for run in await using(session, reap)] == ["lost"]


async def test_a_run_of_nobody_becomes_its_clients_with_the_next_hook(session: Any, clients: Clients) -> None:
    """One that was recorded before clients were known."""
    begun(session, clients.start())
    session.client = None
    session.end()
    with sqlite3.connect(session.store) as connection:
        connection.execute("UPDATE runs SET epoch = 0")
    session.post("c2", command="ls")
    [nobodys] = await runs(session)
    session.client = clients.start()
    session.pre("c3", command="ls")
    [run] = await runs(session)

    assert nobodys.owner is None
    assert run.owner is not None
    assert run.owner.pid == session.client.pid


async def test_a_pid_that_is_used_again_is_not_the_client(session: Any, clients: Clients) -> None:
    """A client is its process and the moment that started: another one under the same pid changes nothing."""
    begun(session, clients.start())
    session.end()
    with sqlite3.connect(session.store) as connection:
        connection.execute("UPDATE owners SET started = started - 1")

    assert [run.status for run in await runs(session)] == ["lost"]
    assert len(await using(session, reap)) == 1


async def test_a_client_that_nobody_can_see_is_gone_with_its_lease(
    session: Any, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from another namespace of pids; the process that judges renews it while the client is there."""
    begun(session, clients.start())
    with sqlite3.connect(session.store) as connection:
        connection.execute("UPDATE owners SET machine = machine || '0', until = 0")
    left = [run.status for run in await runs(session)]
    monkeypatch.setattr(hook_judge, "LEASE_S", -1.0)
    session.look()

    assert left == ["lost"]
    assert [run.status for run in await runs(session)] == ["running"]


async def test_a_client_in_the_process_that_reads_is_not_taken_for_one_that_has_left(session: Any) -> None:
    """What a supervisor of this process has left says nothing of a client."""
    begun(session, as_owner(os.getpid(), CLIENT))

    assert [run.status for run in await runs(session)] == ["running"]


@pytest.mark.parametrize("watches", [True, False])
async def test_the_process_that_judges_stays_while_a_client_has_a_run(
    watches: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long nobody asks: it is who ends that run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(daemon, "IDLE_S", -1.0)

    class Judge:
        def __init__(self) -> None:
            self.watches = watches

    with daemon._listening() as listener:
        assert daemon._Daemon(listener, cast(Any, Judge()))._needed() is watches
