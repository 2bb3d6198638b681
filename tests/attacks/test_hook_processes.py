"""No failure of the processes, the socket or the session of Claude Code's hook lets a call through."""

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


def test_concurrent_hooks_share_one_budget(hooked: HookProcesses) -> None:
    """Two clients of one session, subagents and parallel calls start several processes at once."""
    hooked.run({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "go", "prompt_id": "p0"})
    sent = [call(f"t{n}", agent_id=f"a{n % 3}", prompt_id=f"p{n % 2}") for n in range(10)]
    with ThreadPoolExecutor(10) as pool:
        passed = list(pool.map(hooked.allows, sent))

    assert sum(passed) == 3


def test_a_killed_daemon_allows_no_extra_calls(hooked: HookProcesses) -> None:
    """The active hooks ask its successor. Recorded calls count."""
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


def remove_lock(place: Path) -> None:
    """The lock is gone, so a second process may evaluate."""
    (place / "lock").unlink()
    (place / "socket").unlink()


def link_folder(place: Path) -> None:
    """The socket's folder is a link to another."""
    place.rename(place.with_name("elsewhere"))
    place.symlink_to(place.with_name("elsewhere"))


def replace_folder_by_file(place: Path) -> None:
    """The socket's folder is a file."""
    place.rename(place.with_name("elsewhere"))
    place.write_text("")


MANIPULATIONS = (put_file, put_folder, put_link, remove_lock, link_folder, replace_folder_by_file)


@pytest.mark.parametrize("manipulate", MANIPULATIONS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("killed", [False, True], ids=["alive", "killed"])
def test_a_manipulated_socket_allows_no_extra_calls(hooked: HookProcesses, manipulate: Any, killed: bool) -> None:
    """Another process evaluates with the same event log, or none does."""
    first = hooked.allows(call("t0"))
    if killed:
        end_daemons(hooked.store)
    manipulate(hooked.place)
    passed = [hooked.allows(call(f"t{n}")) for n in range(1, 5)]

    assert first
    assert sum(passed) in (0, 2)


DENIED_OUTPUT = {
    "claude": (0, b'"permissionDecision": "deny"', b""),
    "codex": (0, b'"permissionDecision": "deny"', b""),
    "copilot": (0, b'"permissionDecision": "deny"', b""),
    "cursor": (2, b"", b"so it is denied"),
    "gemini": (2, b"", b"so it is denied"),
    "opencode": (2, b"", b"so it is denied"),
}
"""How each client learns of a call without a decision: the exit code, and the contents of both outputs."""


def denies_in_its_format(ended: subprocess.CompletedProcess[bytes], agent: str) -> bool:
    """Whether the client is told in its own format that the call is denied."""
    code, out, err = DENIED_OUTPUT[agent]
    return ended.returncode == code and out in ended.stdout and err in ended.stderr


@pytest.mark.parametrize("agent", DENIED_OUTPUT)
def test_a_daemon_that_does_not_answer_denies(hooked: HookProcesses, agent: str) -> None:
    """It is suspended. The hook times out and denies in the client's format."""
    assert hooked.allows(call("t0"))
    for pid in hooked.daemons():
        os.kill(pid, signal.SIGSTOP)
    hooked.agent = agent
    ended = hooked.run(call_of(agent, "t1"), *("timeout", "--foreground", "--preserve-status", "-s", "ALRM", "1"))

    assert denies_in_its_format(ended, agent), ended
    assert b"larm" not in ended.stderr


def test_an_endless_input_is_denied(hooked: HookProcesses) -> None:
    """Its call is unknown, so the exit code denies."""
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


def test_hooks_leave_no_thread_and_no_file(hooked: HookProcesses) -> None:
    """However many, also for calls in sessions of their own."""
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
    assert files_after <= files + 1  # the last connection may close only now
    assert threads_after <= threads + 1


@contextmanager
def served(hooked: HookProcesses, changed: str) -> Iterator[subprocess.Popen[bytes]]:
    """The hook's daemon, modified by this line."""
    hooked.place.mkdir(mode=0o700)
    script = f"import sys; from proctor.adapters.hooks import daemon; {changed}; daemon.main(sys.argv[1:])"
    daemon = subprocess.Popen([sys.executable, "-c", script, *hooked.command[4:]])
    wait_until((hooked.place / "socket").exists)
    yield daemon
    daemon.kill()
    daemon.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for an effect of another process."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline


@pytest.fixture
def hasty(hooked: HookProcesses) -> Iterator[HookProcesses]:
    """The hook, with a daemon that waits half a second for a decision."""
    with served(hooked, "daemon.DECIDE_S = 0.5"):
        yield hooked


@pytest.mark.parametrize("agent", DENIED_OUTPUT)
def test_a_store_locked_by_others_denies_every_waiting_hook(hasty: HookProcesses, agent: str) -> None:
    """Queued hooks too, each long before its client's timeout. Afterwards they work as before."""
    hasty.agent = agent
    other = sqlite3.connect(hasty.store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(hasty.run, call_of(agent, "t1")) for _ in range(3)]
        ended = [each.result() for each in asking]
    other.close()

    assert [denies_in_its_format(each, agent) for each in ended] == [True] * 3, ended
    if agent in ("claude", "codex"):
        assert b"nothing was decided within 0.5 seconds" in ended[0].stdout
    assert hasty.allows(call_of(agent, "t2", session="other"))


def test_a_call_denied_by_a_timeout_is_not_recorded_as_allowed(hasty: HookProcesses) -> None:
    """It does not count. Events of what happened are recorded."""
    first = hasty.allows(call("t0"))
    other = sqlite3.connect(hasty.store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    denied = [hasty.allows(call(f"t{n}")) for n in (1, 2, 3)]
    hasty.run({**call("t0"), "hook_event_name": "PostToolUse", "tool_response": {}})
    other.close()
    last = [hasty.allows(call(f"t{n}")) for n in (4, 5)]

    assert (first, denied, last) == (True, [False] * 3, [True] * 2)
    outcomes = ("tool_call_requested", "tool_call_started", "tool_call_completed")
    assert recorded(hasty.store, *outcomes) == [*outcomes, *outcomes[:2], *outcomes[:2]]


def test_a_daemon_that_exits_answers_the_hooks_it_has_read(hooked: HookProcesses) -> None:
    """The clients gave each hook a socket as its input, so no other process can read it again."""
    ending = (
        "daemon.LOOK_S = 0.05; needed = daemon._Daemon._needed; daemon._Daemon._check = lambda self: None;"
        " daemon._Daemon._needed = lambda self:"
        " print(sum(each.is_alive() for each in self._attending), file=open('attending', 'w'))"
        " or needed(self) or print(file=open('ends', 'w'))"
    )
    attending = hooked.place / "attending"
    with served(hooked, ending):
        assert [hook_on_a_socket(hooked, call(id)).wait(PATIENCE_S) for id in ("t1", "t2")] == [0, 0]
        wait_until(lambda: attending.read_text() == "0\n")
        other = sqlite3.connect(hooked.store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        hooks = [hook_on_a_socket(hooked, {**call(id), "hook_event_name": "PostToolUse"}) for id in ("t1", "t2")]
        wait_until(lambda: attending.read_text() == "2\n")
        (hooked.place / "socket").unlink()
        wait_until((hooked.place / "ends").exists)
        other.close()
        codes = [hook.wait(PATIENCE_S) for hook in hooks]

    assert codes == [0, 0]
    assert recorded(hooked.store, "tool_call_completed") == ["tool_call_completed"] * 2


def hook_on_a_socket(hooked: HookProcesses, hook: dict[str, Any]) -> subprocess.Popen[bytes]:
    """A hook whose input is a socket, as with Claude Code."""
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


def test_an_incomplete_answer_is_no_answer(hooked: HookProcesses) -> None:
    """Its process was killed in the middle, or has another version. An empty answer would let the call run."""
    hooked.place.mkdir(mode=0o700, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    sent_back = [b""]
    with listener, ThreadPoolExecutor() as pool:
        here = Path.cwd()
        os.chdir(hooked.place)  # a socket's path has at most about a hundred characters
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
    assert isinstance(answering.exception(), OSError)  # it read to the end


def test_an_answer_may_arrive_together_with_the_wait_for_it(hooked: HookProcesses) -> None:
    """Both are read, however they are split."""
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
def test_a_hook_of_a_pending_call_waits_for_the_answer(hooked: HookProcesses, granted: bool) -> None:
    """Anyone may give it in the store."""
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

    assert denies_in_its_format(ended, "codex") is not granted
    assert b"could not be checked" not in ended.stdout
    assert len(recorded(hooked.store, "tool_call_started")) == granted


def test_a_duplicate_key_is_evaluated_as_the_client_reads_it(hooked: HookProcesses) -> None:
    """Both use the last value; the first does not run."""
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


def test_an_id_of_another_agent_or_session_is_a_separate_call(hooked: HookProcesses) -> None:
    """A subagent's call with the id of a running one is denied. Another session counts separately."""
    assert hooked.allows(call("t1"))
    assert not hooked.allows(call("t1", agent_id="sub"))
    assert not hooked.allows(call("t1", prompt_id="other"))
    assert hooked.allows(call("t1", session_id="other"))


def test_a_full_disk_denies_until_there_is_space(hooked: HookProcesses) -> None:
    """An unrecorded call does not run. Recorded calls count afterwards."""
    assert hooked.allows(call("t0"))
    end_daemons(hooked.store)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most[1]))  # also of processes started from here on
    try:
        full = [hooked.allows(call(f"f{n}")) for n in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        end_daemons(hooked.store)
    then = [hooked.allows(call(f"t{n}")) for n in range(1, 5)]

    assert full == [False] * 3
    assert sum(then) <= 2


def test_a_renamed_folder_denies_until_it_is_back(tmp_path: Path) -> None:
    """It holds the policy and the store. The daemon does not continue from memory."""
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


def test_a_symlink_to_the_home_is_the_same_home(hooked: HookProcesses, tmp_path: Path) -> None:
    """`~` is the link's path. The folder behind it is another home, and denies."""
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
