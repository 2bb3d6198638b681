"""The client owns its session's run: if the client dies, the run is lost, and the session continues with
its counts.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hook_processes import call_of, decider_for
from stored_rows import in_store, once, stored_events, stored_rows
from terminal import Terminal

from proctor.adapters.hooks import daemon, decider, origin
from proctor.adapters.hooks.decider import HookDecider
from proctor.adapters.hooks.origin import Origin, origin_of
from proctor.adapters.stores import SQLiteStore
from proctor.policies import EventError
from proctor.policies.events import TERMINAL, Event, RunCancelled, RunFailed
from proctor.supervisor import KillSwitch, Owner, RunInfo, Store, StoreError
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.ports.processes import as_owner
from proctor.supervisor.ports.stored_types import CLIENT
from proctor.supervisor.run.recovery import passing_owner
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio

POLICY = "{name: p, limits: {max_tool_calls: {max: 3, scope: session, action: deny}}}"


class Clients:
    """Processes that stand for clients: they do nothing until they are killed."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> Owner:
        client = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self._running[client.pid] = client
        return as_owner(client.pid, CLIENT)

    def kill(self, client: Owner | None) -> None:
        assert client is not None
        with self._running.pop(client.pid) as process:
            process.kill()

    def end(self) -> None:
        for process in self._running.values():
            process.kill()
            process.communicate()


@pytest.fixture
def clients() -> Iterator[Clients]:
    opened = Clients()
    yield opened
    opened.end()


async def runs(session: Any) -> list[RunInfo]:
    """The runs of the session, oldest first."""
    found: list[RunInfo] = await session.using(lambda store: store.runs())
    return found[::-1]


async def ends(session: Any) -> list[Event]:
    return [event for event in await session.events() if isinstance(event, TERMINAL)]


def begun(session: Any, client: Owner | None) -> None:
    """A client's active run, with two of three calls."""
    session.policy.write_text(POLICY)
    session.client = client
    session.prompt("p1")
    for id in ("c1", "c2"):
        assert session.pre(id, command="ls").verdict == "allow"
        session.post(id, command="ls")


async def test_a_run_belongs_to_its_client_while_that_lives(session: Any, clients: Clients) -> None:
    """Whatever happens to the daemon. Lists name the client, and nobody ends the run as lost."""
    begun(session, clients.start())
    session.end()
    [run] = await runs(session)

    assert run.status == "running"
    assert run.owner is not None
    assert (run.owner.pid, run.owner.started, run.owner.gone) == (session.client.pid, session.client.started, False)
    assert await session.using(reap) == []
    session.post("c3", command="ls")
    session.hook("Stop")
    assert [run.status for run in await runs(session)] == ["completed"]


async def test_a_run_is_lost_with_its_client_and_ended_by_the_daemon(session: Any, clients: Clients) -> None:
    """With one terminal event that names the client. Another check ends nothing more."""
    begun(session, clients.start())
    session.check_clients()
    there = [run.status for run in await runs(session)]
    clients.kill(session.client)
    left = [run.status for run in await runs(session)]
    session.check_clients()
    session.check_clients()
    [end] = await ends(session)

    assert (there, left) == (["running"], ["lost"])
    assert isinstance(end, RunFailed)
    assert (end.error or {}).get("code") == "owner_lost"
    assert f"its client, process {session.client.pid} on" in str(end.error)
    assert [run.status for run in await runs(session)] == ["failed"]


async def test_the_next_daemon_checks_the_runs_of_the_one_before(session: Any, clients: Clients) -> None:
    """Although it got none of their hooks."""
    begun(session, clients.start())
    first, session.client = session.client, clients.start()
    session.end()
    session.hook("UserPromptSubmit", session_id="t", prompt="go")
    clients.kill(first)
    session.check_clients()

    assert {run.session_id: run.status for run in await runs(session)} == {"s": "failed", "t": "running"}


async def test_a_session_that_cannot_be_evaluated_keeps_no_other_from_its_end(session: Any, clients: Clients) -> None:
    """The failed one is retried after the others."""
    session.policy.write_text(POLICY)
    decider = HookDecider(session.line())
    for id in ("a", "b"):
        prompt = {"session_id": id, "hook_event_name": "UserPromptSubmit", "prompt": "go"}
        client = clients.start()
        decider.answer_hook(json.dumps(prompt).encode(), client)
        clients.kill(client)
    stored_rows(session.store, "UPDATE events SET data = '{' WHERE position = 1")
    decider._sessions.clear()  # as after some time without a hook
    for _ in range(2):
        with pytest.raises(StoreError):
            decider.check()
    decider.close()
    ends = "SELECT session_id FROM events JOIN sessions ON key = session_key WHERE type = 'run_failed'"

    assert stored_rows(session.store, ends) == [("b",)]


@pytest.mark.parametrize(("prompted", "reaps"), [(True, True), (False, True), (True, False), (False, False)])
async def test_a_lost_run_is_ended_by_any_process_that_uses_the_store_and_its_session_continues(
    session: Any, clients: Clients, prompted: bool, reaps: bool
) -> None:
    """Both its client and the daemon are gone. It is ended by a reader, or by the client that resumes the session,
    with a prompt or with an unknown call. Session counts continue, and no event is lost.
    """
    begun(session, clients.start())
    session.end()
    clients.kill(session.client)
    if reaps:
        [reaped] = await session.using(reap)
        assert reaped.owner.is_client
    before = await session.events()
    session.client = clients.start()
    if prompted:
        session.prompt("p2")
    third = session.pre("c3", command="ls")
    session.post("c3", command="ls")
    fourth = session.pre("c4", command="ls")
    first, second = await runs(session)
    after = await session.events()

    assert (first.status, second.status) == ("failed", "running")
    assert second.owner is not None
    assert second.owner.pid == session.client.pid
    assert (third.verdict, fourth.verdict) == ("allow", "deny")
    assert after[: len(before)] == before
    assert [event.seq for event in after] == list(range(1, len(after) + 1))
    [end] = await ends(session)
    assert isinstance(end, RunFailed)
    assert (end.error or {}).get("code") == "owner_lost"


async def test_another_client_in_the_same_session_does_not_take_its_run(session: Any, clients: Clients) -> None:
    """The run stays with the client that started it while that lives, and one log has the calls of both."""
    begun(session, clients.start())
    first, session.client = session.client, clients.start()
    third = session.pre("c3", command="ls")
    session.post("c3", command="ls")
    [run] = await runs(session)

    assert run.owner is not None
    assert (run.owner.pid, run.status, run.calls) == (first.pid, "running", 3)
    assert third.verdict == "allow"
    assert session.pre("c4", command="ls").verdict == "deny"


async def test_a_run_is_killed_while_its_client_lives(session: Any, clients: Clients) -> None:
    """At once, since no owner reads commands for it. Its next call is denied, and its next prompt is a new run."""
    begun(session, clients.start())
    [outcome] = await session.using(lambda store: KillSwitch(store).kill(by="ana", everything=True, wait_s=30))
    after = session.pre("c3", command="ls")
    session.prompt("p2")

    assert (outcome.status, outcome.ended) == ("cancelled", True)
    assert (after.verdict, after.stop) == ("deny", True)
    assert session.pre("c4", command="ls").verdict == "allow"
    assert [type(end) for end in await ends(session)] == [RunCancelled]
    assert [run.status for run in await runs(session)] == ["cancelled", "running"]


async def test_hooks_record_nothing_of_a_run_that_is_being_ended(session: Any, clients: Clients) -> None:
    """Between the claim and the end, hooks deny: there is one writer, so there is one end."""
    begun(session, clients.start())
    [run] = await runs(session)
    before = await session.events()
    async with SQLiteStore(session.store) as store, passing_owner(store) as ending:
        await store.release(run.owner.epoch if run.owner else 0)
        await store.claim_run(run.run_id, epoch=ending.epoch, lost=True)
        for name in ("PreToolUse", "UserPromptSubmit", "Stop"):
            with pytest.raises(StoreError) as raised:
                session.hook(name, tool_use_id="c9", tool_name="Bash")
            assert raised.value.kind == "fenced"

    assert await session.events() == before
    assert [run.status for run in await session.using(reap)] == ["lost"]


async def test_a_run_without_an_owner_becomes_its_clients_with_the_next_hook(session: Any, clients: Clients) -> None:
    """It was recorded before clients were known."""
    begun(session, clients.start())
    session.client = None
    session.end()
    stored_rows(session.store, "UPDATE runs SET epoch = 0")
    session.post("c2", command="ls")
    [nobodys] = await runs(session)
    session.client = clients.start()
    session.pre("c3", command="ls")
    [run] = await runs(session)

    assert nobodys.owner is None
    assert run.owner is not None
    assert run.owner.pid == session.client.pid


async def test_a_reused_pid_is_not_the_client(session: Any, clients: Clients) -> None:
    """A client is its process and its start time; another process with the pid changes nothing."""
    begun(session, clients.start())
    session.end()
    stored_rows(session.store, "UPDATE owners SET started = started - 1")

    assert [run.status for run in await runs(session)] == ["lost"]
    assert len(await session.using(reap)) == 1


async def test_an_invisible_client_is_gone_when_its_lease_expires(
    session: Any, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen from another pid namespace. The daemon renews the lease while the client lives."""
    begun(session, clients.start())
    stored_rows(session.store, "UPDATE owners SET machine = machine || '0', until = 0")
    left = [run.status for run in await runs(session)]
    monkeypatch.setattr(decider, "LEASE_S", -1.0)
    session.check_clients()

    assert left == ["lost"]
    assert [run.status for run in await runs(session)] == ["running"]


async def test_a_client_in_the_reading_process_is_not_taken_for_a_closed_owner(session: Any) -> None:
    """A supervisor that this process has closed says nothing about a client."""
    begun(session, as_owner(os.getpid(), CLIENT))

    assert [run.status for run in await runs(session)] == ["running"]


@pytest.mark.parametrize("watches", [True, False])
def test_the_daemon_stays_while_a_client_has_a_run(
    watches: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any hooks too, as it ends that run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(daemon, "IDLE_S", -1.0)

    with daemon._listening() as listener:
        assert daemon._Daemon(listener, cast(Any, SimpleNamespace(watches=watches)))._needed() is watches


IN_ANOTHER_PROCESS = """
import socket
made, other = socket.socketpair()
socket.send_fds(socket.socket(fileno=0), [b"x"], [made.fileno()])
"""
BY_KERNEL = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not say who made a socket")


@BY_KERNEL
def test_an_input_that_another_process_made_is_not_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook is the client's child, but what it reads is not from there. Nor is it where the client has listened,
    and somebody has connected.
    """
    monkeypatch.chdir(tmp_path)
    door, connected = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    door.bind("door")
    door.listen()
    connected.connect("door")
    ours, theirs = socket.socketpair()
    mine, other = socket.socketpair()
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS], stdin=theirs.fileno(), check=True, timeout=PATIENCE_S)
    _, [descriptor], *_ = socket.recv_fds(ours, 1, 1)
    foreign = socket.socket(fileno=descriptor)
    with (
        door,
        connected,
        ours,
        theirs,
        mine,
        other,
        foreign,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as hook,
    ):
        origin = origin_of(hook.pid, mine)
        for given in (foreign, connected):
            with pytest.raises(EventError, match="does not come from the process that started it"):
                origin_of(hook.pid, given)

    assert (origin.client.pid, origin.by_socket) == (os.getpid(), True)


def test_a_hook_that_comes_another_way_than_its_clients_others_is_denied(tmp_path: Path) -> None:
    """A model can start one from a pipe, and make no socket in its client's name."""
    deciding = decider_for(tmp_path, "{name: p}")
    client = as_owner(os.getpid(), CLIENT)
    for id in ("c1", "c2"):
        deciding.answer_hook(json.dumps(call_of("claude", id)).encode(), origin=Origin(client=client, by_socket=True))
    for session in ("s", "another"):
        data = call_of("claude", "c3", session=session)
        with pytest.raises(EventError, match="was not started by the agent"):
            deciding.answer_hook(json.dumps(data).encode(), origin=Origin(client=client, by_socket=False))
    deciding.close()


def test_what_clients_noted_before_the_machine_was_started_again_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session leaves a note, for as long as the store has it: a hook would take longer with every one."""
    deciding, decoded = decider_for(tmp_path, "{name: p}"), list[bytes]()
    origin_here = Origin(client=as_owner(os.getpid(), CLIENT), by_socket=True)

    def hears(session: str) -> None:
        deciding.answer_hook(json.dumps(call_of("claude", "c1", session=session)).encode(), origin=origin_here)

    with monkeypatch.context() as earlier:
        earlier.setattr(origin, "machine", lambda: "an earlier start")
        for number in range(20):
            hears(f"before-{number}")
    decode = origin._decode

    def counted(data: bytes) -> Any:
        decoded.append(data)
        return decode(data)

    monkeypatch.setattr(origin, "_decode", counted)
    for session in ("now", "before-3", "now"):
        hears(session)
    deciding.close()

    assert len(decoded) == 5  # its own of `before-3`; those of today, of which `now` has one
    assert sum(b"an earlier start" in data for data in decoded) == 1


def test_a_session_is_continued_neither_from_above_its_client_nor_from_below_another(
    tmp_path: Path, clients: Clients
) -> None:
    """A model may have started either of them, and ended it."""
    deciding = decider_for(tmp_path, "{name: p}")
    me, below, later = as_owner(os.getpid(), CLIENT), clients.start(), clients.start()

    def hears(client: Owner, session: str) -> None:
        data = call_of("claude", f"{client.pid}", session=session)
        deciding.answer_hook(json.dumps(data).encode(), origin=Origin(client=client, by_socket=True))

    hears(below, "s")
    with pytest.raises(EventError, match="still running"):
        hears(later, "s")
    clients.kill(below)
    with pytest.raises(EventError, match="a process below the agent has reported in its name"):
        hears(me, "s")
    hears(me, "another")
    with pytest.raises(EventError, match="comes from below another agent"):
        hears(later, "s")
    deciding.close()


async def test_a_session_whose_client_died_continues_with_its_next_prompt(session: Any) -> None:
    """If no client is known, the old run ends then, and its usage counts."""
    begun(session, None)
    session.end()
    left = [run.status for run in await runs(session)]
    session.prompt("p2")
    third = session.pre("c3", command="ls")
    session.post("c3", command="ls")

    assert left == ["running"]
    assert [run.status for run in await runs(session)] == ["completed", "running"]
    assert (third.verdict, session.pre("c4", command="ls").verdict) == ("allow", "deny")


@pytest.fixture
def working(governed: Any) -> Iterator[Any]:
    """The client, whose first command reads from a pipe until the test has ended."""
    pipe = governed.cwd / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    governed.govern("{name: p, limits: {max_tool_calls: {max: 2, scope: session, action: deny}}}")
    governed.api.say(governed.api.reply(governed.api.bash(f"cat {pipe}")))
    yield governed
    os.close(held)


def started(working: Any) -> Any:
    """The client, once the store has its first call and its own log has the prompt, so that it can be resumed."""
    client, its_own = working.start(), Path(working.env["CLAUDE_CONFIG_DIR"], "projects")

    def is_resumable(run: RunInfo) -> bool:
        return any(b'"user"' in file.read_bytes() for file in its_own.glob(f"*/{run.session_id}.jsonl"))

    run = until(working.store, lambda run: run.calls == 1 and is_resumable(run))
    assert run.owner is not None
    assert (run.owner.pid, run.status) == (client.pid, "running")
    return client


def until(path: Any, there: Callable[[RunInfo], bool]) -> RunInfo:
    """The latest run, once it is as expected."""

    async def look(store: Store) -> RunInfo | None:
        return next((run for run in await store.runs(limit=1) if there(run)), None)

    found: RunInfo = in_store(path, lambda store: once(store, look))
    return found


@pytest.mark.claude
def test_its_run_fails_with_a_response_that_the_model_does_not_give(governed: Any) -> None:
    """With the text that its user sees. The client is ready for the next prompt."""
    governed.govern("{name: p}")
    governed.api.say(*[governed.api.reply(status=400)] * 9)
    command, env = governed.at_a_terminal()
    terminal = Terminal(command, env, governed.cwd, columns=120, rows=40)
    for words, keys in (("manual mode on", "go"), ("go\n", "\r"), ("API Error", "")):
        terminal.until(words)
        terminal.press(keys)
    run = until(governed.store, lambda run: run.status == "failed")
    terminal.close()
    end = events(governed.store, run.session_id)[-1]

    assert isinstance(end, RunFailed)
    assert (end.error or {})["message"] == "API Error: 400 scripted 400"


def events(path: Any, session_id: str) -> Any:
    return in_store(path, lambda store: stored_events(store, session_id))


@pytest.mark.claude
def test_its_run_is_ended_by_the_daemon(working: Any) -> None:
    """Another client continues the session, as a new run with the counts so far."""
    client, api = started(working), working.api
    with client:
        client.kill()
    run = until(working.store, lambda run: run.status == "failed")
    never = working.cwd / "never"
    api.say(api.reply(api.bash("echo second")), api.reply(api.bash(f"touch {never}")), api.reply(api.text("done")))
    working.run("--resume", run.session_id)
    ends = [(event.run_id, event.type) for event in events(working.store, run.session_id) if "run_" in event.type]

    assert not never.exists()
    assert ends == [
        (f"{run.session_id}-1", "run_started"),
        (f"{run.session_id}-1", "run_failed"),
        (f"{run.session_id}-2", "run_started"),
        (f"{run.session_id}-2", "run_completed"),
    ]
