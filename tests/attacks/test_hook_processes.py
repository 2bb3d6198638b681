"""No call gets past the hook of Claude Code by what becomes of its processes, its socket or its session."""

import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from hook_processes import HookProcesses, call_of, end_daemons, recorded

from proctor.adapters.hooks import daemon_client, settings
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import ApprovalAnswer
from proctor.supervisor.control import approval_inbox
from proctor.supervisor.testing.fakes import PATIENCE_S

THREE = "{name: p, limits: {max_tool_calls: {max: 3, scope: session, action: deny}}}"


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[HookProcesses]:
    """A hook under a policy that allows three calls."""
    hooked = HookProcesses(tmp_path, THREE)
    yield hooked
    end_daemons(hooked.store)


def call(id: str, **fields: Any) -> dict[str, Any]:
    return {**call_of("claude", id), **fields}


def test_hooks_at_once_share_one_budget(hooked: HookProcesses) -> None:
    """Two clients of one session, sub-agents and parallel calls mean several processes at the same time."""
    hooked.run({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "go", "prompt_id": "p0"})
    sent = [call(f"t{n}", agent_id=f"a{n % 3}", prompt_id=f"p{n % 2}") for n in range(10)]
    with ThreadPoolExecutor(10) as pool:
        passed = list(pool.map(hooked.allows, sent))

    assert sum(passed) == 3


def test_a_process_that_is_killed_while_it_judges_lets_no_more_through(hooked: HookProcesses) -> None:
    """The hooks under way ask its successor; what had been recorded counts."""
    sent = [call(f"t{n}") for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(hooked.allows, one) for one in sent]
        for each in asking:
            each.result()
            end_daemons(hooked.store)
        passed = [each.result() for each in asking]

    assert sum(passed) <= 3


def put_file(place: Path) -> None:
    (place / "socket").unlink()
    (place / "socket").write_text("=")


def put_folder(place: Path) -> None:
    (place / "socket").unlink()
    (place / "socket").mkdir()


def put_link(place: Path) -> None:
    (place / "socket").unlink()
    (place / "socket").symlink_to(place / "nowhere")


def take_lock(place: Path) -> None:
    """The lock is gone, so that a second process may judge."""
    (place / "lock").unlink()
    (place / "socket").unlink()


def link_place(place: Path) -> None:
    """The socket's folder is a link to another."""
    place.rename(place.with_name("elsewhere"))
    place.symlink_to(place.with_name("elsewhere"))


def file_place(place: Path) -> None:
    """The socket's folder is a file."""
    place.rename(place.with_name("elsewhere"))
    place.write_text("")


SPOILT = (put_file, put_folder, put_link, take_lock, link_place, file_place)


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda each: each.__name__)
@pytest.mark.parametrize("killed", [False, True], ids=["alive", "killed"])
def test_a_socket_that_was_tampered_with_lets_no_more_through(
    hooked: HookProcesses, spoil: Any, killed: bool
) -> None:
    """Another process judges by the same record, or nobody does."""
    first = hooked.allows(call("t0"))
    if killed:
        end_daemons(hooked.store)
    spoil(hooked.place)
    passed = [hooked.allows(call(f"t{n}")) for n in range(1, 5)]

    assert first
    assert sum(passed) in (0, 2)


SAID_TO = {
    "claude": (0, b'"permissionDecision": "deny"', b""),
    "codex": (0, b'"permissionDecision": "deny"', b""),
    "copilot": (0, b'"permissionDecision": "deny"', b""),
    "cursor": (2, b"", b"so it is denied"),
    "gemini": (2, b"", b"so it is denied"),
    "opencode": (2, b"", b"so it is denied"),
}
"""How each client is told of a call that nobody decided on: the exit code, and what is in both outputs."""


def is_told(ended: subprocess.CompletedProcess[bytes], agent: str) -> bool:
    """Whether the client is told in its own words that the call is refused."""
    code, out, err = SAID_TO[agent]
    return ended.returncode == code and out in ended.stdout and err in ended.stderr


@pytest.mark.parametrize("agent", SAID_TO)
def test_a_process_that_listens_and_says_nothing_is_no_answer(hooked: HookProcesses, agent: str) -> None:
    """It is stopped: the hook's own alarm makes it refuse, as the client understands it."""
    assert hooked.allows(call("t0"))
    for pid in hooked.daemons():
        os.kill(pid, signal.SIGSTOP)
    hooked.agent = agent
    ended = hooked.run(call_of(agent, "t1"), *("timeout", "--foreground", "--preserve-status", "-s", "ALRM", "1"))

    assert is_told(ended, agent), ended
    assert b"larm" not in ended.stderr


def test_an_input_that_never_ends_is_refused(hooked: HookProcesses) -> None:
    """What it asks about is not known, so the exit code refuses."""
    of_a_second = (
        "import sys; from proctor.adapters.hooks import daemon_client as hook; hook.ALARM_S = hook.LAST_S = 1"
    )
    words = [sys.executable, "-c", f"{of_a_second}; sys.exit(hook.main(sys.argv[1:]))", *hooked.command[4:]]
    read, write = os.pipe()
    os.write(write, b'{"session_id": "s"')
    with open(read, "rb") as given, open(write, "wb"):
        ended = subprocess.run(words, stdin=given, capture_output=True)

    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr == b"This could not be checked against the policy, so it is denied.\n"


def test_hooks_leave_no_thread_and_no_file_behind(hooked: HookProcesses) -> None:
    """However many; those of one call each in a session of its own, too."""
    assert hooked.allows(call("t0"))
    folder, here = hooked.command[4], Path.cwd()
    open_then = []
    for n in range(200):
        data = json.dumps(call("t1", session_id=f"s{n % 50}")).encode()
        assert daemon_client.daemon_answer(folder, hooked.command[5:], data)[:1] == b"="
        process = psutil.Process(hooked.daemons()[0]) if n in (9, 199) else None
        if process is not None:
            open_then.append((process.num_fds(), process.num_threads()))
    os.chdir(here)

    (files, threads), (files_after, threads_after) = open_then
    assert files_after <= files + 1  # the last connection may be closed only now
    assert threads_after <= threads + 1


@contextmanager
def served(hooked: HookProcesses, changed: str) -> Iterator[subprocess.Popen[bytes]]:
    """The hook's daemon, changed by this line."""
    hooked.place.mkdir(mode=0o700)
    script = f"import sys; from proctor.adapters.hooks import daemon; {changed}; daemon.main(sys.argv[1:])"
    daemon = subprocess.Popen([sys.executable, "-c", script, *hooked.command[4:]])
    wait_until((hooked.place / "socket").exists)
    yield daemon
    daemon.kill()
    daemon.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline


@pytest.fixture
def hasty(hooked: HookProcesses) -> Iterator[HookProcesses]:
    """The hook, before a daemon that waits half a second for a decision."""
    with served(hooked, "daemon.DECIDE_S = 0.5"):
        yield hooked


@pytest.mark.parametrize("agent", SAID_TO)
def test_a_store_that_others_do_not_let_go_refuses_every_hook_that_waits_for_it(
    hasty: HookProcesses, agent: str
) -> None:
    """Those behind the first, too, each long before its client's own patience is over; then they are as before."""
    hasty.agent = agent
    other = sqlite3.connect(hasty.store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(hasty.run, call_of(agent, "t1")) for _ in range(3)]
        ended = [each.result() for each in asking]
    other.close()

    assert [is_told(each, agent) for each in ended] == [True] * 3, ended
    if agent in ("claude", "codex"):
        assert b"nothing was decided within 0.5 seconds" in ended[0].stdout
    assert hasty.allows(call_of(agent, "t2", session="other"))


def test_what_is_refused_for_time_is_not_recorded_as_allowed(hasty: HookProcesses) -> None:
    """Nor does it count; what has happened is recorded all the same."""
    first = hasty.allows(call("t0"))
    other = sqlite3.connect(hasty.store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused = [hasty.allows(call(f"t{n}")) for n in (1, 2, 3)]
    hasty.run({**call("t0"), "hook_event_name": "PostToolUse", "tool_response": {}})
    other.close()
    last = [hasty.allows(call(f"t{n}")) for n in (4, 5)]

    assert (first, refused, last) == (True, [False] * 3, [True] * 2)
    outcomes = ("tool_call_requested", "tool_call_started", "tool_call_completed")
    assert recorded(hasty.store, *outcomes) == [*outcomes, *outcomes[:2], *outcomes[:2]]


def test_a_daemon_that_ends_answers_the_hooks_that_it_has_read(hooked: HookProcesses) -> None:
    """Its clients gave each hook a socket, so that nobody else can read them again."""
    ending = (
        "daemon.LOOK_S = 0.05; needed = daemon._Daemon._needed;"
        " daemon._Daemon._needed = lambda self: needed(self) or print(file=open('ends', 'w'))"
    )
    with served(hooked, ending) as daemon:
        assert [told_by_socket(hooked, call(id)).wait(PATIENCE_S) for id in ("t1", "t2")] == [0, 0]
        other = sqlite3.connect(hooked.store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        threads = psutil.Process(daemon.pid).num_threads()
        hooks = [told_by_socket(hooked, {**call(id), "hook_event_name": "PostToolUse"}) for id in ("t1", "t2")]
        wait_until(lambda: psutil.Process(daemon.pid).num_threads() == threads + 2)
        (hooked.place / "socket").unlink()
        wait_until((hooked.place / "ends").exists)
        other.close()
        codes = [hook.wait(PATIENCE_S) for hook in hooks]

    assert codes == [0, 0]
    assert recorded(hooked.store, "tool_call_completed") == ["tool_call_completed"] * 2


def told_by_socket(hooked: HookProcesses, hook: dict[str, Any]) -> subprocess.Popen[bytes]:
    """A hook whose input is a socket, as Claude Code gives it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        started = subprocess.Popen(hooked.command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        ours.sendall(json.dumps(hook).encode())
    return started


DENIES = json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}).encode()
HALVES = (
    b"",
    b"=",
    b"=" + DENIES[:40],
    b"=" + DENIES,
    b"~",
    b"~600",
    b"~600\n",
    b"~600\n=",
    b"~x\n=\0",
    b"?=\0",
    b"{}\0",
)


def test_an_answer_that_is_not_whole_is_none(hooked: HookProcesses) -> None:
    """Its process was killed in the middle, or is of another version: nothing at all would let the call run."""
    hooked.place.mkdir(mode=0o700, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    sent_back = [b""]
    with listener, ThreadPoolExecutor() as pool:
        here = Path.cwd()
        os.chdir(hooked.place)  # a socket's path may have no more than a hundred letters
        listener.bind("socket")
        os.chdir(here)
        listener.listen()

        def answer() -> None:
            while True:  # the hook asks again
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    while connection.recv(1 << 16):
                        pass
                    connection.sendall(sent_back[0])

        answering = pool.submit(answer)
        passed = []
        for sent_back[0] in HALVES:
            passed += [sent_back[0]] if hooked.allows(call("t0")) else []
        listener.shutdown(socket.SHUT_RDWR)

    assert passed == []
    assert isinstance(answering.exception(), OSError)  # it listened to the end


def test_an_answer_may_come_at_once_with_the_wait_for_it(hooked: HookProcesses) -> None:
    """Both are read, however they are cut."""
    from proctor.adapters.hooks import daemon_client

    waited: list[int] = []
    for cut in range(1, 8):
        ours, theirs = socket.socketpair()
        with theirs, ThreadPoolExecutor() as pool, pytest.MonkeyPatch.context() as patched:
            patched.setattr(daemon_client, "wait_on", waited.append)
            answer = pool.submit(daemon_client.exchanged, ours, b"{}")
            for part in (b"~570\n={}\0"[:cut], b"~570\n={}\0"[cut:]):
                theirs.sendall(part)
            theirs.shutdown(socket.SHUT_WR)
            assert answer.result() == b"={}"

    assert waited == [570] * 7


@pytest.mark.parametrize("granted", [True, False])
def test_a_hook_of_a_held_call_waits_for_the_answer(hooked: HookProcesses, granted: bool) -> None:
    """Which anybody gives in the store."""
    hooked.policy.write_text("{name: p, tool_rules: [{deny: [bash], action: request_approval}]}")
    hooked.more = ("--hold", "60")

    async def answer() -> None:
        async with SQLiteStore(hooked.store) as store:
            while not (waiting := await approval_inbox.pending(store)):
                await anyio.sleep(0.01)
            await approval_inbox.answer(store, waiting[0].approval_id, ApprovalAnswer(granted=granted, by="ana"))

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(anyio.run, answer)
        hooked.agent = "codex"
        ended = hooked.run(call("t1"))
        answering.result(PATIENCE_S)

    assert is_told(ended, "codex") is not granted
    assert b"could not be checked" not in ended.stdout
    assert len(recorded(hooked.store, "tool_call_started")) == granted


def test_a_key_that_stands_twice_is_judged_as_the_client_reads_it(hooked: HookProcesses) -> None:
    """Both take the last; the first is not what runs."""
    hooked.policy.write_text(
        "{name: p, on_violation: deny, tool_rules: [{deny: [{tool: bash, where: [{path: $.command, runs: rm}]}]}]}"
    )
    text = json.dumps(call("t1"))
    last = text.replace('{"command": "ls"}', '{"command": "ls", "command": "rm x"}')
    first = text.replace('{"command": "ls"}', '{"command": "rm x", "command": "ls"}').replace("t1", "t2")
    named = text.replace('"tool_name": "Bash"', '"tool_name": "Read", "tool_name": "Bash"').replace('"ls"', '"rm x"')

    assert not hooked.allows(last.encode())
    assert hooked.allows(first.encode())
    assert not hooked.allows(named.replace("t1", "t3").encode())


def test_an_id_of_another_agent_or_session_is_a_call_of_its_own(hooked: HookProcesses) -> None:
    """A sub-agent's call under the id of one that runs is refused; another session counts for itself."""
    assert hooked.allows(call("t1"))
    assert not hooked.allows(call("t1", agent_id="sub"))
    assert not hooked.allows(call("t1", prompt_id="other"))
    assert hooked.allows(call("t1", session_id="other"))


def test_a_full_disk_refuses_until_there_is_room(hooked: HookProcesses) -> None:
    """What cannot be recorded does not run; what was recorded counts afterwards."""
    assert hooked.allows(call("t0"))
    end_daemons(hooked.store)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most[1]))  # of what is started from here on, too
    try:
        full = [hooked.allows(call(f"f{n}")) for n in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        end_daemons(hooked.store)
    then = [hooked.allows(call(f"t{n}")) for n in range(1, 5)]

    assert full == [False] * 3
    assert sum(then) <= 2


def test_a_folder_that_is_renamed_refuses_until_it_is_back(tmp_path: Path) -> None:
    """That of the policy and the store: the process that judges does not go on with what it remembers."""
    (tmp_path / "inner").mkdir()
    inner = HookProcesses(tmp_path / "inner", THREE)
    assert inner.allows(call("t0"))
    (tmp_path / "inner").rename(tmp_path / "other")
    gone = inner.allows(call("t1"))
    (tmp_path / "other").rename(tmp_path / "inner")
    then = [inner.allows(call(f"t{n}")) for n in range(2, 6)]
    end_daemons(inner.store)

    assert not gone
    assert sum(then) == 2


def test_a_link_in_place_of_the_home_is_the_same_home(hooked: HookProcesses, tmp_path: Path) -> None:
    """`~` is what the link is called; the folder behind it is another home, and refuses."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    hooked.policy.write_text(
        "{name: p, on_violation: deny, tool_rules: [{deny: [{tool: Read, where: "
        "[{path: $.file_path, within: ~/.ssh}]}]}]}"
    )
    line = settings.command([hooked.policy], hooked.store, home=str(link))

    def answer(home: Path, path: str) -> bytes:
        hook = call("t" + path, tool_name="Read", tool_input={"file_path": path})
        env = {**os.environ, "HOME": str(home)}
        return subprocess.run(line, input=json.dumps(hook).encode(), capture_output=True, env=env).stdout

    assert b'"deny"' not in answer(link, "/work/x")
    assert b'"deny"' in answer(link, "~/.ssh/id")
    assert b'"deny"' in answer(link, str(link / ".ssh" / "id"))
    assert b'"deny"' in answer(real, "/work/x")
