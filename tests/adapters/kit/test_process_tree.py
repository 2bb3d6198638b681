"""Processes of clients: their trees and nothing else are ended, and their output is handled in order."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.abc
import anyio.lowlevel
import psutil
import pytest

from proctor.adapters.kit import process_tree as processes
from proctor.adapters.kit.client_process import ClientProcess, start_client
from proctor.adapters.kit.jsonrpc import ByteLines, EndlessLineError
from proctor.adapters.kit.process_tree import ProcessTree, marked_environment, process_cancel_steps
from proctor.adapters.kit.subprocesses import Subprocesses
from proctor.supervisor import ProviderUnavailableError

pytestmark = pytest.mark.anyio

DEAF = "trap '' TERM HUP INT; "


@asynccontextmanager
async def started(script: str, mark: str | None = None) -> AsyncIterator[anyio.abc.Process]:
    """A bash that runs `script` in its own session, once each sleeper of the script is running."""
    process = await anyio.open_process(
        ["bash", "-c", f"{script}\necho up; wait; exec sleep 70000"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=marked_environment(mark) if mark else None,
    )
    try:
        assert process.stdout is not None
        seen = b""
        while seen.count(b"up") < script.count("echo up") + 1:
            seen += await process.stdout.receive()
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await ProcessTree(process.pid, mark=mark).kill()
            await process.aclose()


def sleeper(seconds: int) -> str:
    """A command that signals its start and then sleeps; fits between single quotes."""
    return f'bash -c "echo up; exec sleep {seconds}"'


def sleepers(seconds: int) -> list[int]:
    """The pids of the processes started by that command."""
    ends = ([str(seconds)], [f"echo up; exec sleep {seconds}"])
    processes = psutil.process_iter(["cmdline"])
    return [process.pid for process in processes if (process.info["cmdline"] or [])[-1:] in ends]


async def those_up(seconds: int, many: int) -> list[int]:
    """This many of them, once they are visible: a process has no command line while it executes another program."""
    while len(found := sleepers(seconds)) < many:
        await anyio.sleep(0.01)
    return found


async def test_a_tree_that_obeys_terminate_is_gone_without_a_kill() -> None:
    """Children end with their parent, and the evidence names all of them."""
    async with started(f"{sleeper(70001)} & {sleeper(70001)} &") as process:
        tree = ProcessTree(process.pid)
        seen = tree.snapshot()

        evidence = await tree.terminate(10)

        assert len(seen) == 3
        assert set(seen) <= set(evidence["terminated"])
        assert "survivors" not in evidence
        assert tree.alive() == []


async def test_children_that_left_their_session_and_ignore_terminate_are_killed() -> None:
    """A setsid child is found by ancestry. One that ignores the signal is reported, then killed."""
    async with started(f"{DEAF} setsid bash -c '{sleeper(70002)} & wait' & {sleeper(70002)} &") as process:
        tree = ProcessTree(process.pid)

        was_asked = await tree.terminate(0.05)
        killed = await tree.kill()

        assert process.pid in was_asked["survivors"]
        assert set(was_asked["survivors"]) <= set(killed["killed"])
        assert "survivors" not in killed
        assert sleepers(70002) == []


LEAVES: dict[str, tuple[str, int]] = {
    "orphaned after the first look": ("setsid bash -c 'env -i {} & wait' & echo $! ", 1),
    "forked twice": (DEAF + "(setsid bash -c '{} & {} &' ) ; true", 2),
    "cleared its environment": ("(env -i bash -c '{} &') ; true", 1),
    "forks without end": ("(while :; do (setsid sleep {} &) ; done) & true", 0),
}
"""What a tree does, and how many of its processes are seen first."""


@pytest.mark.parametrize("how", LEAVES)
async def test_a_tree_that_tries_to_escape_is_gone_after_one_kill(how: str) -> None:
    """Ancestry is remembered. A double fork into its own session is found only by its environment; an orphan in the
    root's session belongs to the tree without that. All are stopped before any is killed, so none is born in between.
    """
    script, orphans = LEAVES[how]
    seconds, mark = 70003 + list(LEAVES).index(how), uuid4().hex
    filled = script.replace("{}", sleeper(seconds) if orphans else str(seconds))
    async with started(filled, mark if orphans != 1 else None) as process:
        unmarked = set(ProcessTree(process.pid).snapshot())
        seen = await those_up(seconds, orphans)
        tree = ProcessTree(process.pid, mark=mark if orphans != 1 else None)
        if how == "orphaned after the first look":
            assert len(tree.snapshot()) >= 3
            for child in psutil.Process(process.pid).children():
                child.send_signal(signal.SIGKILL)

        evidence = await tree.kill(20)

        assert "survivors" not in evidence
        assert sleepers(seconds) == []
        assert how != "forked twice" or not set(seen) & unmarked


async def test_an_unrelated_process_and_another_run_are_left_alone() -> None:
    """Only the run's own mark counts."""
    async with started(f"{sleeper(70007)} &", uuid4().hex) as other, started("true", "mine") as process:
        await ProcessTree(process.pid, mark="mine").kill()

        assert other.returncode is None
        assert len(await those_up(70007, 1)) == 1


@pytest.mark.parametrize("kills", [False, True])
async def test_a_process_that_is_found_during_a_look_disturbs_no_other(
    kills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel step and the client's end look at one tree at once, in threads."""
    async with started(f"{sleeper(7006)} &", mark := uuid4().hex) as process, started("") as found:
        tree = ProcessTree(process.pid, mark=mark)
        runs = processes.runs

        def finds(looked_at: psutil.Process) -> bool:
            tree.add(found.pid)
            return runs(looked_at)

        monkeypatch.setattr(processes, "runs", finds)
        if kills:
            await tree.kill()
        alive = tree.alive()
        monkeypatch.setattr(processes, "runs", runs)

    assert (process.pid in alive) is not kills


async def test_a_tree_never_ends_the_calling_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor with the same mark does not find itself."""
    async with started("true", "nested") as process:
        monkeypatch.setattr(psutil.Process, "environ", lambda self: {processes.RUN_MARK: "nested"})
        everybody = [psutil.Process(), psutil.Process(process.pid)]
        monkeypatch.setattr(psutil, "process_iter", lambda: iter(everybody))

        assert os.getpid() not in ProcessTree(process.pid, mark="nested").snapshot()


async def test_the_exit_code_still_reaches_the_parent_of_the_root() -> None:
    """Waiting for the tree does not reap it. If the root is gone already, the tree is empty."""
    async with started("true") as process:
        await ProcessTree(process.pid).kill()
        assert await process.wait() == -signal.SIGKILL
        gone = ProcessTree(process.pid)

        assert gone.snapshot() == []
        assert await gone.kill() == {"killed": []}


async def test_the_cancel_steps_close_then_terminate_then_kill() -> None:
    """Each step acts and reports it; the last one ends the stream."""
    async with started(f"{DEAF} {sleeper(70008)} &") as process:
        done: list[str] = []

        async def close() -> None:
            done.append("closed")

        async def ended() -> None:
            done.append("ended")

        tree = ProcessTree(process.pid)
        steps = process_cancel_steps(tree, close=close, ended=ended, terminate_s=0.05)
        evidence = {step.name: await step.act() for step in steps}

        assert list(evidence) == ["close", "terminate", "kill"]
        assert process.pid in (evidence["close"] or {})["seen"]
        assert process.pid in (evidence["kill"] or {})["killed"]
        assert done == ["closed", "ended"]
        assert sleepers(70008) == []


async def test_a_client_without_an_input_to_close_has_no_such_step() -> None:
    """A step without effect is not listed."""
    async with started("true") as process:
        steps = process_cancel_steps(ProcessTree(process.pid))

        assert [step.name for step in steps] == ["terminate", "kill"]


async def test_the_evidence_says_what_the_platform_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no process adopts orphans."""
    monkeypatch.setattr(processes, "GUARDS", False)

    assert len((await ProcessTree().kill())["notes"]) == 1


@asynccontextmanager
async def client_of(script: str, folder: Path, **how: Any) -> AsyncIterator[ClientProcess]:
    """A client that is a few lines of Python."""
    command = [sys.executable, "-S", "-c", script]
    async with start_client("it", command, cwd=folder, env=os.environ, mark=uuid4().hex, **how) as client:
        yield client


WRITING = r"""
import pathlib, sys
for n in range(3):
    print("x" * 10_000, flush=True)
pathlib.Path("written").touch()
sys.stdin.read()
"""


async def opened(folder: Path) -> None:
    """It has written everything."""
    while not (folder / "written").exists():
        await anyio.sleep(0.01)


async def test_all_output_is_handled_before_the_end(tmp_path: Path) -> None:
    """Including unread output, and output that the reader is still handling."""
    handled: list[int] = []

    async def read(client: ClientProcess, go_on: anyio.Event) -> None:
        async for line in ByteLines(client.stdout):
            await go_on.wait()
            handled.append(len(line))

    async with client_of(WRITING, tmp_path) as client:
        await opened(tmp_path)
        go_on = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, client, go_on)
            tasks.start_soon(client.read_stderr)
            with anyio.move_on_after(0):
                await client.stdout.wait_until_handled()
            before = list(handled)
            go_on.set()
            await client.stdout.wait_until_handled()
            after = list(handled)
            await client.close_input()

    assert (before, after) == ([], [10_000] * 3)


async def test_nothing_waits_for_a_client_that_has_ended(tmp_path: Path) -> None:
    """Neither after its end nor once it is closed, including callers that were already waiting."""
    async with client_of(WRITING, tmp_path) as client:
        await opened(tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.stdout.wait_until_handled)
            await anyio.wait_all_tasks_blocked()
            await client.stdout.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await client.stdout.receive()
        await client.close_input()
    await client.stdout.wait_until_handled()


FAILING = r"""
import sys
print(sys.stdin.read())
sys.stderr.write("old\n" * 50 + "z" * 9999 + "\nlast\n")
sys.exit(3)
"""


class Pieces:
    """A stream of bytes with these pieces and an end."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop(0)

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(("pieces", "lines"), [
    ([b"a\nb", b"c\n"], [b"a", b"bc", b""]),
    ([b"a", b"b", b"\n\n", b"rest"], [b"ab", b"", b"rest"]),
    ([], [b""]),
])  # fmt: skip
async def test_lines_are_assembled_from_pieces(pieces: list[bytes], lines: list[bytes]) -> None:
    """The rest at the end of the stream is the last line."""
    assert [line async for line in ByteLines(Pieces(*pieces))] == lines  # type: ignore[arg-type]


async def test_an_endless_line_is_an_error_after_the_lines_before_it() -> None:
    """Its beginning is kept."""
    lines = ByteLines(Pieces(b"whole\n" + b"x" * 10, b"y" * 10), max_bytes=15)  # type: ignore[arg-type]
    first = await anext(lines)
    with pytest.raises(EndlessLineError) as caught:
        await anext(lines)

    assert first == b"whole"
    assert caught.value.start == b"x" * 10 + b"y" * 10


async def test_a_failed_client_is_reported_with_its_last_output(tmp_path: Path) -> None:
    """The newest lines, each cut at its start."""
    async with client_of(FAILING, tmp_path) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.read_stderr)
            await client.write_input("told")
            lines = [line async for line in ByteLines(client.stdout)]
        await client.wait_exit()
    error = client.exit_error("it failed")

    words = error.details["stderr"].split("\n")
    assert lines[0] == b"told"
    assert (str(error), error.details["exit_code"], words[-1], len(words)) == ("it failed", 3, "last", 20)
    assert len(words[-2]) == 4096


SLEEPS = "import time; time.sleep(10000)"


async def test_leaving_ends_a_client_that_does_not_exit_by_itself(tmp_path: Path) -> None:
    """Whether it would exit at the end of its input is known, and the wait is bounded."""
    for leaves in (True, False):
        async with client_of(SLEEPS, tmp_path, leaves=leaves) as client:
            assert client.exit_code is None

        assert client.exit_code == -9


async def test_a_guardian_without_a_command_line_yet_is_left_to_exit_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program has none while it starts. If proctor killed it, it would seem killed by the agent."""
    shown = psutil.Process.cmdline
    empty: set[int] = set()

    def cmdline(process: psutil.Process) -> list[str]:
        line = shown(process)
        if process.pid in empty:
            return line
        empty.add(process.pid)
        return []

    async with client_of(SLEEPS, tmp_path, leaves=False) as client:
        monkeypatch.setattr(psutil.Process, "cmdline", cmdline)

    assert client.guardian_killed() is None
    assert client.exit_code == -9
    assert empty


AT_ITS_END = """
import pathlib, sys
print("up", flush=True)
sys.stdin.read()
pathlib.Path("end-of-input").touch()
"""


@pytest.mark.parametrize("leaves", [True, False])
async def test_only_a_client_that_exits_by_itself_gets_the_time_for_it(tmp_path: Path, leaves: bool) -> None:
    """At the end of its input it finishes its work and exits. Any other is ended with its input still open."""
    async with client_of(AT_ITS_END, tmp_path, leaves=leaves) as client:
        assert await anext(aiter(ByteLines(client.stdout))) == b"up"

    assert (tmp_path / "end-of-input").exists() is leaves
    assert client.exit_code == (0 if leaves else -9)


async def test_a_client_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    """Its streams are closed, and nothing of it remains."""
    async with client_of("print('up')", tmp_path) as client:
        assert await anext(aiter(ByteLines(client.stdout))) == b"up"
        await client.wait_exit()

    assert client.exit_code == 0
    for stream in (client.stdout, client.stdin):
        with pytest.raises((anyio.ClosedResourceError, anyio.BrokenResourceError)):
            await (stream.receive() if hasattr(stream, "receive") else stream.send(b"x"))


async def test_a_client_that_cannot_be_started_is_named_with_the_remedy(tmp_path: Path) -> None:
    """In one error."""
    with pytest.raises(
        ProviderUnavailableError, match=r"it cannot be started: `.*/none`: no such file or directory; install it"
    ):
        async with start_client("it", [str(tmp_path / "none")], cwd=tmp_path, env={}, mark="r", advice="install it"):
            pass


async def test_commands_that_start_at_once_close_what_ended_before_once(tmp_path: Path) -> None:
    """An agent that calls tools in parallel does so turn after turn."""
    commands, codes = Subprocesses(uuid4().hex), list[int]()

    async def run() -> None:
        codes.append((await commands.run(["true"], cwd=tmp_path)).exit_code)

    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(run)
        for each in commands._guarded:
            await each.process.wait()
    await commands.end()

    assert codes == [0] * 6
