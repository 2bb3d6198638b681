"""Process trees: no process that an agent starts outlives its run, however it hides; Linux."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.abc
import psutil
import pytest

from proctor.adapters.agents.shell import ShellAdapter
from proctor.adapters.kit.client_process import ClientProcess, start_client
from proctor.adapters.kit.process_tree import end_orphans, guarded
from proctor.adapters.kit.subprocesses import Subprocesses
from proctor.policies import parse_policies
from proctor.supervisor import MemoryStore, ProviderError, Supervisor

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only; see docs/agents/index.md"),
]

HIDING = [
    *("(env -i setsid sleep {} &)", "(setsid env -i sleep {} &)"),
    *("(PROCTOR_RUN=other PROCTOR_CALL=9 setsid sleep {} &)", "(setsid bash -c 'env -i setsid sleep {} & exit' &)"),
    "env -i setsid bash -c '(setsid sleep {} &) & (setsid sleep {} &)' < /dev/null > /dev/null 2>&1",
    "trap '' TERM INT HUP; (env -i setsid nohup sleep {} > /dev/null 2>&1 &)",
    "exec 3>&-; (cd / && env -i setsid setsid setsid sleep {} &)",
]


def hidden(seconds: int) -> str:
    """A line that hides a process in each of these ways; each sleeps a second longer than the one before."""
    return "; ".join(hiding.replace("{}", str(seconds + n)) for n, hiding in enumerate(HIDING))


def still_hidden(seconds: int) -> list[str]:
    """The ways in which a process is still hidden."""
    running = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]  # a zombie has none
    return [hiding for n, hiding in enumerate(HIDING) if ["sleep", str(seconds + n)] in running]


def sleepers(seconds: int) -> list[int]:
    running = psutil.process_iter(["cmdline"])  # a zombie has no command line
    return [process.pid for process in running if process.info["cmdline"] == ["sleep", str(seconds)]]


def seen(word: str) -> bool:
    """Whether a process has the word in its command line. Looks repeatedly, as one look may miss a
    changing process.
    """
    lines = (process.info["cmdline"] or [] for _ in range(20) for process in psutil.process_iter(["cmdline"]))
    return any(word in line for line in lines)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition on real processes is true."""
    while not holds():
        await anyio.sleep(0.01)


async def test_hidden_processes_of_a_running_command_end_with_it(tmp_path: Path) -> None:
    """The command is cancelled. Neither a missing environment, session nor parent hides them."""
    commands = Subprocesses(uuid4().hex)
    line = f"{hidden(71100)}; sleep 71001"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: commands.run(["bash", "-c", line], cwd=tmp_path))
        await until(lambda: still_hidden(71100) == HIDING)
        tasks.cancel_scope.cancel()
    await commands.end()

    assert (still_hidden(71100), sleepers(71001)) == ([], [])


async def test_processes_that_a_command_leaves_end_with_the_run(tmp_path: Path) -> None:
    """The command itself has ended. They live until the run ends, and no longer."""
    commands = Subprocesses(uuid4().hex)

    done = await commands.run(["bash", "-c", hidden(71200)], cwd=tmp_path)
    await until(lambda: still_hidden(71200) == HIDING)
    await commands.end()

    assert done.exit_code == 0
    assert still_hidden(71200) == []


async def test_processes_that_keep_forking_are_ended(tmp_path: Path) -> None:
    """New ones start while the others are searched for."""
    commands = Subprocesses(uuid4().hex)
    line = "while :; do (env -i setsid sleep 71003 &); done"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: commands.run(["bash", "-c", line], cwd=tmp_path))
        await until(lambda: len(sleepers(71003)) > 5)
        tasks.cancel_scope.cancel()
    await commands.end()

    assert sleepers(71003) == []


HOPS = """
import os, sys

hops, then, *sessions = sys.argv[1:]
for _ in range(int(hops)):  # each child goes on where its parent ends
    if os.fork():
        os._exit(0)
    if sessions:
        os.setsid()
os.execvp("sleep", ["sleep", then])
"""


async def test_a_process_that_keeps_replacing_itself_is_not_taken_for_gone(tmp_path: Path) -> None:
    """One list of processes may contain none of them. The last lives until the run ends."""
    commands = Subprocesses(uuid4().hex)

    await commands.run([sys.executable, "-c", HOPS, "300", "71006"], cwd=tmp_path)
    await until(lambda: sleepers(71006) != [])
    await commands.end()

    assert sleepers(71006) == []


@pytest.mark.parametrize("sessions", [[], ["each in a session of its own"]], ids=["one group", "own sessions"])
async def test_a_process_that_replaces_itself_endlessly_is_ended(tmp_path: Path, sessions: list[str]) -> None:
    """Each is gone before it is inspected, and leaves nothing that marks the next."""
    commands = Subprocesses(uuid4().hex)
    hopping = ["env", "-i", sys.executable, "-c", HOPS, "20000", "71007", *sessions]

    await commands.run(hopping, cwd=tmp_path)
    await until(lambda: seen("71007"))
    await commands.end()

    assert not seen("71007")


@pytest.mark.parametrize("leaves", [True, False])
async def test_processes_that_a_client_leaves_end_with_it(tmp_path: Path, leaves: bool) -> None:
    """Whether the client exits by itself or is ended."""
    line = hidden(71400) + ("" if leaves else "; sleep 71004")

    async with client_of(line, tmp_path) as client:
        if leaves:
            await ended(client)
            assert still_hidden(71400) == []
        else:
            await until(lambda: still_hidden(71400) == HIDING)

    assert (still_hidden(71400), sleepers(71004)) == ([], [])


def client_of(line: str, folder: Path) -> AbstractAsyncContextManager[ClientProcess]:
    return start_client("agent", ["bash", "-c", line], cwd=folder, env=dict(os.environ), mark=uuid4().hex)


async def ended(client: ClientProcess) -> None:
    while client.exit_code is None:
        await client.wait_exit()


SUPERVISOR = """
import anyio, os, sys
from pathlib import Path
from uuid import uuid4
from proctor.adapters.kit.client_process import start_client
from proctor.adapters.kit.subprocesses import Subprocesses

async def main():
    command = ["bash", "-c", sys.argv[1]]
    if sys.argv[2] == "command":
        await Subprocesses(uuid4().hex).run(command, cwd=Path.cwd())
    async with start_client("agent", command, cwd=Path.cwd(), env=os.environ, mark=uuid4().hex):
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.parametrize("of", ["command", "client"])
async def test_a_killed_supervisor_leaves_no_process(tmp_path: Path, of: str) -> None:
    """It had no time to end any: the guardian notices that its parent is gone."""
    line = f"{hidden(71500)}; sleep 71005"
    supervisor = await anyio.open_process([sys.executable, "-c", SUPERVISOR, line, of], cwd=tmp_path)
    await until(lambda: still_hidden(71500) == HIDING)

    supervisor.kill()
    await supervisor.wait()

    await until(lambda: still_hidden(71500) == [] == sleepers(71005))


async def test_a_command_does_not_outlive_a_guardian_that_it_kills(tmp_path: Path) -> None:
    """The command is ended too."""
    commands = Subprocesses(uuid4().hex)

    done = await commands.run(["bash", "-c", "kill -9 $PPID; sleep 71006"], cwd=tmp_path)
    await commands.end()

    assert done.exit_code == -signal.SIGKILL
    assert sleepers(71006) == []


@pytest.mark.parametrize(("line", "code"), [
    *(("exit 7", 7), ("kill -TERM $$", -15), ("kill -9 $$", -9), ("true", 0)),
    *(("kill -9 0", -9), ("kill -HUP $PPID; kill -INT $PPID; exit 7", 7)),
])  # fmt: skip
async def test_a_guardian_exits_as_its_command_does(tmp_path: Path, line: str, code: int) -> None:
    """For a command of a run, and for a client."""
    commands = Subprocesses(uuid4().hex)
    done = await commands.run(["bash", "-c", line], cwd=tmp_path)
    await commands.end()
    async with client_of(line, tmp_path) as client:
        await ended(client)

    assert (done.exit_code, client.exit_code) == (code, code)


async def test_a_guardian_passes_a_request_to_end_to_its_client(tmp_path: Path) -> None:
    """A library that started the client knows only the guardian."""
    line = "trap 'exit 5' TERM; kill -TERM $PPID; sleep 71013 & wait"
    async with client_of(line, tmp_path) as client:
        await ended(client)

    assert client.exit_code == 5


async def test_no_guardian_remains(tmp_path: Path) -> None:
    """Neither after a command that left nothing, nor after the run."""
    commands = Subprocesses(uuid4().hex)
    await commands.run(["true"], cwd=tmp_path)
    await until(lambda: guardians() == [])
    await commands.run(["bash", "-c", "sleep 71007 &"], cwd=tmp_path)
    await commands.end()

    assert guardians() == []


async def test_a_guardian_whose_pipe_is_closed_ends_its_processes(tmp_path: Path) -> None:
    """Although its parent lives: the parent no longer knows what the guardian has adopted."""
    reader, writer = os.pipe()
    command = ["bash", "-c", "(setsid sleep 71012 &)"]
    line = guarded(command, cwd=tmp_path, env=os.environ, mark=uuid4().hex, status_fd=writer)
    async with await anyio.open_process(line, stdout=None, stderr=None, pass_fds=[writer]) as guardian:
        os.close(writer)
        await until(lambda: sleepers(71012) != [])
        os.close(reader)
        await guardian.wait()

    assert sleepers(71012) == []


def guardians() -> list[int]:
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.Error):  # it ended during the look
            found += [process.pid] if "guardian.py" in " ".join(process.cmdline()) else []
    return found


async def test_runs_with_the_same_id_in_two_stores_are_separate(tmp_path: Path) -> None:
    """Ending the processes of one leaves those of the other. Both are ended in the end."""
    policies = parse_policies("{name: org, limits: {max_tool_calls: 9}}")
    async with AsyncExitStack() as opened:
        handles = []
        for seconds in (71008, 71009):
            supervisor = await opened.enter_async_context(Supervisor(MemoryStore()))
            line = f"(setsid sleep {seconds} &); sleep {seconds}"
            adapter = ShellAdapter(cwd=tmp_path)
            handles.append(await supervisor.start(adapter, line, policies=policies, run_id="nightly"))
        await until(lambda: [len(sleepers(seconds)) for seconds in (71008, 71009)] == [2, 2])

        await handles[0].cancel()
        first = await handles[0].wait()

        assert (first.status, len(sleepers(71008)), len(sleepers(71009))) == ("cancelled", 0, 2)

        await handles[1].cancel()
        await handles[1].wait()

    assert sleepers(71009) == []


KILLS = """
import os, sys

def kill(*about):
    guardian = os.getppid()
    while b"guardian.py" not in open(f"/proc/{guardian}/cmdline", "rb").read():
        guardian = int(open(f"/proc/{guardian}/stat").read().rpartition(")")[2].split()[1])
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    open(sys.argv[1], "w").close()
    os.kill(guardian, 9)
    os.environ.clear()
    os.execv("/bin/sleep", ["sleep", sys.argv[2]])
"""
"""By a daemon without the run's session, environment or parent, which stays."""


def killing(folder: Path) -> str:
    """A command whose daemon kills the guardian and stays."""
    program = folder / "killer.py"
    program.write_text(f"{KILLS}\nkill()\n")
    return f"{sys.executable} {program} {folder / 'killed'} 71010"


async def test_a_killed_guardian_fails_the_run_and_the_killer_is_ended(tmp_path: Path) -> None:
    """Whatever the command's exit code is. The event log says what happened."""
    policies = parse_policies("{name: org, limits: {max_tool_calls: 9}}")
    async with Supervisor(MemoryStore()) as supervisor:
        line = f"{killing(tmp_path)}; sleep 71010"
        handle = await supervisor.start(ShellAdapter(cwd=tmp_path), line, policies=policies)
        with pytest.raises(ProviderError, match="the guardian of the agent's processes was killed"):
            await handle.wait()

    assert (tmp_path / "killed").exists()
    assert sleepers(71010) == []


async def test_a_guardian_killed_after_its_command_ended_fails_the_run(tmp_path: Path) -> None:
    """The guardian stays for the processes that the command left, one of which kills it."""
    commands = Subprocesses(uuid4().hex)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = f"(read _ < {pipe}; {killing(tmp_path)}) & true"
    done = await commands.run(["bash", "-c", line], cwd=tmp_path)
    pipe.write_text("now\n")
    await until(lambda: sleepers(71010) != [])
    await until(lambda: guardians() == [])
    await commands.end()

    assert done.exit_code == 0
    assert "was killed" in str(commands.tampered)
    with pytest.raises(ProviderError, match="was killed"):
        await commands.run(["true"], cwd=tmp_path)
    assert sleepers(71010) == []


async def test_a_client_whose_guardian_is_killed_has_failed(tmp_path: Path) -> None:
    """Also if nobody notices the client's end. The killer is ended too."""
    with pytest.raises(ProviderError, match=r"was killed \(signal 9\)"):  # noqa: PT012 - leaving is what raises
        async with client_of(f"{killing(tmp_path)}; sleep 71010", tmp_path) as client:
            await until(lambda: (tmp_path / "killed").exists())
            await ended(client)
            assert "was killed" in str(client.exit_error("it has ended"))

    assert sleepers(71010) == []


async def test_processes_of_a_lost_run_are_found_without_environment_and_parents(tmp_path: Path) -> None:
    """By the resource limit that the guardian set. The limit of another run differs."""
    mark = uuid4().hex
    line = f"{killing(tmp_path)}; exec sleep 71011"
    async with start_client("agent", ["bash", "-c", line], cwd=tmp_path, env=dict(os.environ), mark=mark) as client:
        client.guardian_killed = lambda: None  # type: ignore[method-assign]  # its supervisor is gone, too
        await until(lambda: len(sleepers(71010)) == 1)
        await until(lambda: sleepers(71011) == [])  # the client itself ends with its guardian

        others = await end_orphans(uuid4().hex)
        left = len(sleepers(71010))
        evidence = await end_orphans(mark)

    assert (others, left) == ({}, 1)
    assert len(evidence["killed"]) >= 1
    assert sleepers(71010) == []
