"""Processes that a supervised run starts can't answer approvals or end runs: they are recognised by their environment
or their parents.
"""

import os
import shlex
import sys
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from proctor.adapters.kit.process_tree import guarded
from proctor.adapters.kit.subprocesses import Subprocesses
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import RunInfo
from proctor.supervisor.testing.store_approvals import requested

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),  # the attacked process must be another one
    pytest.mark.skipif(
        sys.platform != "linux", reason="who a process descends from is hidden elsewhere; see own_tree"
    ),
]

COMMANDS = {"approve": "approve r.1", "deny": "deny r.1", "kill": "kill --all", "kill a session": "kill --session s"}
WAYS = {
    "as it is": "{}",
    "without its environment": "env -i {}",
    "with another mark": "PROCTOR_RUN= {}",
    "in a session of its own": "setsid env -i {}",
    "re-parented, with its environment": "(setsid {} &)",
    "re-parented, without its environment": "(setsid env -i {} &)",
    "re-parented twice, without its environment": "(setsid bash -c 'env -i setsid {} & exit' &)",
}


CALLS = """
import sys
from proctor.adapters.cli import main
for words in sys.argv[2:]:
    try:
        main([*words.split(), "--store", sys.argv[1]])
    except SystemExit as ended:
        print("ended with", ended.code)
"""
"""Runs commands on a store, one after another."""


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_processes_of_a_run_can_answer_and_end_nothing(waiting: Path, tmp_path: Path, way: str) -> None:
    """The commands fail with a message, wherever in the run's process tree they are called."""
    script, output = asking(waiting, tmp_path, *COMMANDS.values())
    run = Subprocesses(uuid4().hex)

    await run.run(["bash", "-c", way.format(script)], cwd=tmp_path)
    answer = await until(output)
    await run.end()
    async with SQLiteStore(waiting) as store:
        orders = await store.blocks()

    assert answer.count("is for people") == len(COMMANDS)
    assert (await state_of(waiting), list(orders)) == ("requested", [])


DAEMON = """
import os, signal, sys
guardian = os.getppid()
if os.fork():
    signal.pause()
os.setsid()
if os.fork():
    os._exit(0)
os.kill(guardian, 9)
os.execve(sys.argv[1], sys.argv[1:2], {"PATH": os.environ["PATH"]})
"""


def asking(path: Path, folder: Path, *commands: str) -> tuple[Path, Path]:
    """A program that runs the commands, and the path of its output."""
    output, script = folder / "output", folder / "ask"
    line = shlex.join([sys.executable, "-c", CALLS, str(path), *commands])
    script.write_text(f"#!/bin/bash\n{line} > {output}.part 2>&1\nmv {output}.part {output}\n")
    script.chmod(0o755)
    (folder / "daemon.py").write_text(DAEMON)
    return script, output


async def state_of(path: Path) -> str:
    async with SQLiteStore(path) as store:
        [approval] = await store.approvals()
        return str(approval.state)


@pytest.fixture
async def waiting(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    async with SQLiteStore(path) as store:
        await store.create_run(RunInfo(run_id="r", session_id="s"))
        await store.append([requested("r.1")])
    return path


async def until(output: Path) -> str:
    while not os.path.exists(output):  # noqa: ASYNC240 - nobody else waits
        await anyio.sleep(0.01)
    return await anyio.Path(output).read_text()


@pytest.mark.parametrize("terminal", [False, True], ids=["no terminal", "a terminal of its own"])
async def test_a_daemon_that_has_killed_its_guardian_can_answer_nothing(
    waiting: Path, tmp_path: Path, terminal: bool
) -> None:
    """It has neither the run's mark nor its parents. What remains is the run's resource limit, which it
    can't raise.
    """
    script, output = asking(waiting, tmp_path, "approve r.1")
    around = tmp_path / "around"
    around.write_text(f"#!/bin/sh\nexec script -qec {script} /dev/null\n")
    around.chmod(0o755)
    program = [sys.executable, str(tmp_path / "daemon.py"), str(around if terminal else script)]
    env = dict(os.environ)
    process = await anyio.open_process(guarded(program, cwd=tmp_path, env=env, mark=uuid4().hex), env=env)
    answer = await until(output)
    await process.wait()
    await process.aclose()

    assert "is for people" in answer
    assert "limit on locks" in answer
    assert await state_of(waiting) == "requested"


async def test_processes_of_an_agent_get_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the supervisor's environment has them."""
    for name in ("PROCTOR_TOKEN", "PROCTOR_WEB_TOKEN", "PROCTOR_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "nobody-else-s")
    commands = Subprocesses(uuid4().hex)
    done = await commands.run(["env"], cwd=tmp_path)
    await commands.end()

    assert "PROCTOR_RUN" in done.stdout
    assert "nobody-else-s" not in done.stdout


async def test_a_process_without_a_terminal_needs_a_token(waiting: Path) -> None:
    """Outside of runs too. A live parent proves nothing, since an agent's shell has one."""
    commands = [*COMMANDS.values(), "kill --lift", "reap"]
    calls = [sys.executable, "-c", CALLS, str(waiting), *commands]
    ended = await anyio.run_process(calls, start_new_session=True)
    answer = ended.stderr.decode()

    assert ended.stdout.decode().splitlines() == ["ended with 2"] * len(commands)
    assert answer.count("no terminal") == len(commands)
    assert answer.count(f"set PROCTOR_TOKEN to a token of `{waiting}-tokens`") == len(commands)
    assert await state_of(waiting) == "requested"


PSEUDO = {
    "script": "script -qec {} /dev/null",
    "python": f"{sys.executable} -c 'import pty, sys; pty.spawn(sys.argv[1:])' {{}}",
}
LEFT = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
while os.getppid() != int(sys.argv[1]):
    pass
os.execve("/bin/sh", ["sh", "-c", sys.argv[2]], {"PATH": os.environ["PATH"]})
"""


@pytest.mark.parametrize("terminal", PSEUDO.values(), ids=PSEUDO)
async def test_a_daemon_with_a_terminal_that_it_opened_is_not_a_person(
    waiting: Path, tmp_path: Path, terminal: str
) -> None:
    """It never had a mark or a limit: a tool in this process started it, and it left its parent long ago."""
    script, output = asking(waiting, tmp_path, "approve r.1")
    left = tmp_path / "left.py"
    left.write_text(LEFT)
    waits = f"while [ ! -e {output} ]; do sleep 0.05; done"
    init = f"{sys.executable} {left} $$ {shlex.quote(terminal.format(script))}; {waits}"
    await anyio.run_process(["unshare", "-rpf", "--mount-proc", "sh", "-c", init])
    answer = await until(output)

    assert "its terminal belongs to a daemon" in answer
    assert await state_of(waiting) == "requested"


SUPERVISES = """
import subprocess, sys, time
import anyio
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import Supervisor
from proctor.supervisor.testing import FakeAdapter, Pause
from proctor.supervisor.testing.fakes import PATIENCE_S

async def main():
    path, line, output = sys.argv[1:]
    async with SQLiteStore(path) as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=())
        await anyio.run_process(["bash", "-c", line], check=False, stdin=None, stdout=None, stderr=None)
        with anyio.fail_after(PATIENCE_S):
            while not await anyio.Path(output).exists():
                await anyio.sleep(0.01)
        await handle.cancel()

anyio.run(main)
"""
FOREGROUND = """
import os, signal, sys
while os.getppid() != 1:
    pass
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(os.open("/dev/tty", os.O_RDWR), os.getpgrp())
os.execv(sys.argv[1], sys.argv[1:2])
"""
LEAVING = ["{}", "(env -i {} &)", "(set -m; env -i {} &)", "(setsid env -i {} &)"]


@pytest.mark.parametrize(
    ("session", "terminal", "left"),
    [("", PSEUDO["script"], left) for left in LEAVING]
    + [("setsid -w ", PSEUDO["python"], left) for left in LEAVING[::3]],
)
async def test_a_process_started_by_a_supervising_process_is_not_a_person(
    waiting: Path, tmp_path: Path, terminal: str, left: str, session: str
) -> None:
    """A tool within the supervisor's process starts commands without a mark or a guardian."""
    script, output = asking(waiting, tmp_path, "approve r.1")
    line = session + supervising(tmp_path, left.format(terminal.format(script)))
    await anyio.run_process(["unshare", "-rpf", "--mount-proc", "sh", "-c", line])
    answer = await until(output)

    assert "is for people" in answer
    assert "supervises a run" in answer or "belongs to a daemon" in answer
    assert await state_of(waiting) == "requested"


@pytest.mark.parametrize("left", ["({} &)", "(set -m; {} &)"])
async def test_a_process_that_takes_the_foreground_of_a_containers_terminal_is_not_a_person(
    waiting: Path, tmp_path: Path, left: str
) -> None:
    """Process 1 is the container's shell. The supervisor and a tool's leftover process run in its terminal."""
    script, output = asking(waiting, tmp_path, "approve r.1")
    takes = tmp_path / "takes.py"
    takes.write_text(FOREGROUND)
    line = supervising(tmp_path, left.format(shlex.join([sys.executable, str(takes), str(script)])))
    await in_a_container(line)

    assert "supervises a run" in await until(output)
    assert await state_of(waiting) == "requested"


async def in_a_container(line: str) -> None:
    """Run a line in a shell that is process 1 and has a terminal, as with `docker run -it`."""
    keyboard, terminal = os.openpty()
    try:
        await anyio.run_process(["unshare", "-rpf", "--mount-proc", "setsid", "-c", "sh", "-c", line], stdin=terminal)
    finally:
        os.close(keyboard)
        os.close(terminal)


def supervising(folder: Path, line: str) -> str:
    """A shell line for a program that supervises a run and meanwhile starts this line."""
    program = folder / "supervises.py"
    program.write_text(SUPERVISES)
    words = [sys.executable, str(program), str(folder / "other.db"), line, str(folder / "output")]
    return f"{shlex.join(words)}; true"


async def test_a_person_can_answer_on_a_terminal(waiting: Path, tmp_path: Path) -> None:
    """Its parent is still there and supervises nothing."""
    script, output = asking(waiting, tmp_path, "approve r.1")
    await in_a_container(f"{script}; true")

    assert "nobody owns its run" in await until(output)


async def test_a_service_can_answer_with_a_token_of_the_store(waiting: Path, tmp_path: Path) -> None:
    """With an unknown token, or one without the role, it can't. With a valid one, nothing else is checked."""
    tokens = anyio.Path(f"{waiting}-tokens")
    lines = f"tokens: [{{name: bot, token: {'b' * 20}, roles: [answer]}}, {{name: eye, token: {'e' * 20}}}]"
    command = [sys.executable, "-m", "proctor"]

    async def answer_to(what: str, token: str) -> str:
        env = {**os.environ, "PROCTOR_TOKEN": token}
        line = [*command, *what.split(), "--store", str(waiting)]
        ended = await anyio.run_process(line, env=env, check=False)
        return (ended.stdout + ended.stderr).decode()

    assert "cannot be read" in await answer_to("approve r.1", "b" * 20)
    await tokens.write_text(lines)
    await tokens.chmod(0o600)
    assert "holds none of the tokens" in await answer_to("approve r.1", "c" * 20)
    assert "its roles lack `answer`" in await answer_to("approve r.1", "e" * 20)
    assert "its roles lack `stop`" in await answer_to("kill --all", "b" * 20)
    assert await state_of(waiting) == "requested"
    assert "nobody owns its run" in await answer_to("approve r.1", "b" * 20)
