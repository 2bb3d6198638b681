"""A client's processes: gives them their environment, finds all of them, and ends them.

A tree is found by four marks, so that processes that left its group, its session or their parents are still found:
ancestry (remembered from every search, with creation times, so that a reused pid is never touched), the session that
its root leads, the environment variable `PROCTOR_RUN` given at launch, and on Linux a limit that its guardian sets.
On Linux the root is a guardian, which adopts all orphans (`guarded`), so that ancestry finds every one; if it was
killed, the limit finds those that have not lowered it. Elsewhere a process is missed that was never seen under its
parents, left the root's session and cleared its environment.

Waits here are in real seconds, whatever clock the event loop runs on.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import psutil

from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import CancelStep
from proctor.supervisor.ports.processes import run_of

from . import guardian

SHELLS: Final = frozenset(("ash", "bash", "dash", "fish", "sh", "zsh"))
_ADOPTING: Final = frozenset(
    ("catatonit", "docker-init", "dumb-init", "init", "launchd", "s6-svscan", "systemd", "tini")
)
"""Programs that adopt processes whose parent has died."""
_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


def session_of(pid: int) -> int | None:
    """The session of a process; None if the process is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def ourselves() -> set[int]:
    """Our own process and its ancestors: never ended, whatever marks they carry."""
    try:
        own = psutil.Process()
        return {own.pid, *(parent.pid for parent in own.parents())}
    except psutil.Error:
        return {os.getpid()}


def runs(process: psutil.Process) -> bool:
    """Whether a process runs: a zombie does not; one that may not be inspected does."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except _GONE:
        return False
    except psutil.Error:
        return True


def adopts(process: psutil.Process) -> bool:
    """Whether it adopts processes whose parent has died. Raises psutil.Error."""
    name = process.name()
    return name in _ADOPTING or (process.pid == 1 and name in SHELLS)


def is_guardian(process: psutil.Process) -> bool:
    """Whether it is a guardian, and not its child that is about to become the command; or not known yet.

    A process has no command line for a moment when it begins a program (between Linux's `exec` and its end).
    """
    try:
        line = process.cmdline()
        if not line:
            return True
        if guardian.__file__ not in line[:4]:
            return False
        parent = process.parent()
        return parent is None or parent.cmdline() != line
    except psutil.Error:
        return False


def send(process: psutil.Process, number: int) -> bool:
    """Send a signal; False if the process is gone, or the system refuses."""
    try:
        process.send_signal(number)
    except psutil.Error:
        return False
    return True


def terminate(process: psutil.Process) -> bool:
    """Ask a process to end, even a stopped one. Returns as `send` does."""
    sent = send(process, signal.SIGTERM)
    send(process, signal.SIGCONT)  # a stopped process would not hear it
    return sent


RUN_MARK: Final = "PROCTOR_RUN"
"""The environment variable that names the run a process belongs to."""
CALL_MARK: Final = "PROCTOR_CALL"
"""The same for one call of the run, if calls are processes of their own."""
NOT_FOR_RUNS: Final = ("PROCTOR_TOKEN", "PROCTOR_WEB_TOKEN", "PROCTOR_WEBHOOK_SECRET")
"""The variables that only people and services may have."""
T = TypeVar("T")
_LOOK_AGAIN_S: Final = 0.2
KILL_S: Final = 5.0
"""Seconds after which a kill is given up."""


def marked_environment(
    mark: str, env: Mapping[str, str] | None = None, *, call_id: str | None = None
) -> dict[str, str]:
    """The environment to launch a provider with: marked with the run, with its trace if it has one, and without the
    variables that only people and services may have.

    Args:
        mark: `Launch.mark` of the run.
        env: the environment to mark; this process's if not given.
        call_id: the call that the process is started for, if it is for one.
    """
    given = {name: value for name, value in (os.environ if env is None else env).items() if name not in NOT_FOR_RUNS}
    return {**given, **_marks(mark, call_id), **_carried.get(run_of(mark), {})}


class ProcessTree:
    """A process, or several, and everything that descends from them, remembered over time.

    Args:
        pid: the root process's id; start it with `start_new_session=True` so that its session marks it too.
        mark: the mark in its environment, see `marked_environment`.
        call_id: the call also marked there; then the tree is only that call's processes.
    """

    def __init__(self, pid: int | None = None, *, mark: str | None = None, call_id: str | None = None) -> None:
        self._marks = _marks(mark, call_id)
        self._limit = None if mark is None or call_id is not None else limit_of(mark)
        self._roots: list[psutil.Process] = []
        self._processes: dict[psutil.Process, None] = {}
        self._limiter: anyio.CapacityLimiter | None = None
        if pid is not None:
            self.add(pid)

    def add(self, pid: int) -> None:
        """Add a root; one that is gone is no error, as its mark may still find what it started."""
        try:
            root = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return
        self._roots.append(root)
        self._processes[root] = None

    def snapshot(self) -> list[int]:
        """Find and remember the whole tree; returns the pids that are alive, parents first."""
        self._scan()
        return self.alive()

    def alive(self) -> list[int]:
        """The remembered processes that still run; a zombie does not."""
        return [process.pid for process in self._running()]

    async def terminate(self, grace_s: float) -> dict[str, Any]:
        """Ask every process of the tree to end and wait `grace_s` seconds at most; returns evidence."""
        deadline = time.monotonic() + grace_s
        signalled: dict[int, None] = {}
        while fresh := [p for p in await self._rescan() if p.pid not in signalled]:
            signalled.update(dict.fromkeys(p.pid for p in fresh if terminate(p)))
            await self._wait_until(deadline)
            if time.monotonic() >= deadline or all(p.pid not in signalled for p in fresh):
                break
        return self._evidence("terminated", signalled)

    async def kill(self, bound_s: float = KILL_S) -> dict[str, Any]:
        """Kill every process of the tree, what it starts meanwhile included; returns evidence.

        Evidence names what was killed and, if the bound passed or the system refused, what survived.
        """
        start = time.monotonic()
        deadline = start + bound_s
        killed: dict[int, None] = {}
        while True:
            patient = time.monotonic() < start + bound_s / 2
            killed.update(dict.fromkeys(await self._in_thread(partial(self._freeze_and_kill, patient))))
            await self._wait_until(min(deadline, time.monotonic() + _LOOK_AGAIN_S))
            if time.monotonic() >= deadline or not await self._rescan():
                return self._evidence("killed", killed)

    def _evidence(self, what: str, pids: Mapping[int, None]) -> dict[str, Any]:
        evidence: dict[str, Any] = {what: list(pids)}
        if left := self.alive():
            evidence["survivors"] = left
        if not GUARDS:
            notes = [f"`{sys.platform}` does not adopt orphans: one without session and mark is not found"]
            evidence["notes"] = notes
        return evidence

    async def _in_thread(self, function: Callable[[], T]) -> T:
        # a look reads every process of the machine: milliseconds the event loop must not lose
        self._limiter = self._limiter or anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(function, limiter=self._limiter)

    async def _rescan(self) -> list[psutil.Process]:
        await self._in_thread(self._scan)
        return self._running()

    def _running(self) -> list[psutil.Process]:
        return [process for process in self._remembered() if runs(process)]

    def _remembered(self) -> list[psutil.Process]:
        """A copy, as a search in another thread may find more meanwhile."""
        return list(self._processes)

    async def _wait_until(self, deadline: float) -> None:
        """Wait until no remembered process runs; not by `psutil.wait`, which would steal exit codes."""
        pause = 0.002
        while self.alive() and time.monotonic() < deadline:
            await anyio.sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def _scan(self) -> None:
        children: dict[int, list[psutil.Process]] = {}
        marked: list[psutil.Process] = []
        spared = ourselves()
        sessions = self._led_sessions()
        for process in psutil.process_iter():
            try:
                children.setdefault(process.ppid(), []).append(process)
                if process.pid not in spared and self._is_marked(process, sessions):
                    marked.append(process)
            except psutil.Error:
                continue
        self._processes.update(dict.fromkeys(marked))
        pending = [process for process in self._remembered() if process.is_running()]
        while pending:
            found = [child for child in children.get(pending.pop(0).pid, ()) if child not in self._processes]
            self._processes.update(dict.fromkeys(found))
            pending.extend(found)

    def _led_sessions(self) -> set[int]:
        """The sessions led by living roots; after a root's end its number may be reused."""
        return {root.pid for root in self._roots if root.is_running() and session_of(root.pid) == root.pid}

    def _is_marked(self, process: psutil.Process, sessions: set[int]) -> bool:
        if sessions and session_of(process.pid) in sessions:
            return True
        if self._limit is not None and has_limit(process.pid, self._limit):
            return True
        if not self._marks:
            return False
        try:
            return self._marks.items() <= process.environ().items()
        except (OSError, psutil.Error):
            return False

    def _freeze_and_kill(self, patient: bool) -> list[int]:
        """Stop and kill all once; returns what was killed.

        A stopped process cannot fork, so the tree is complete once a search finds nothing new to stop, except for a
        process started during that search by one that then ended: the guardian that adopts it ends it, and then
        itself. A root that is a guardian is never killed; another process that looks like one only if it has not
        ended in time.
        """
        frozen: set[psutil.Process] = set()
        spared: set[psutil.Process] = set()
        while True:
            self._scan()
            fresh = [p for p in self._running() if p not in frozen and p not in spared]
            spared.update(p for p in fresh if (patient or p in self._roots) and is_guardian(p))
            fresh = [p for p in fresh if p not in spared]
            if not fresh:
                break
            frozen.update(fresh)
            for process in fresh:
                send(process, signal.SIGSTOP)
            for process in spared:
                send(process, signal.SIGCONT)  # whoever stopped it
        return [process.pid for process in self._remembered() if process in frozen and send(process, signal.SIGKILL)]


def process_cancel_steps(
    tree: ProcessTree,
    *,
    close: Callable[[], Awaitable[None]] | None = None,
    ended: Callable[[], Awaitable[None]] | None = None,
    close_s: float = 2.0,
    terminate_s: float = 2.0,
) -> list[CancelStep]:
    """The last cancel steps of every subprocess client: close, terminate, kill.

    Args:
        tree: the client's processes; remembered once more before the first step acts.
        close: closes the client's input, so that a well-behaved client ends; None for no such step.
        ended: called after the kill, to end the stream of events of a client whose pipes did not.
        close_s: seconds the close may take.
        terminate_s: seconds after which a terminate is given up.
    """

    async def do_close() -> dict[str, Any] | None:
        seen = tree.snapshot()
        if close is not None:
            await close()
        return {"seen": seen}

    async def do_terminate() -> dict[str, Any]:
        return await tree.terminate(terminate_s)

    async def do_kill() -> dict[str, Any]:
        try:
            return await tree.kill(KILL_S)
        finally:
            if ended is not None:
                await ended()

    steps = [CancelStep(name="close", act=do_close, bound_s=close_s)] if close is not None else []
    return [
        *steps,
        CancelStep(name="terminate", act=do_terminate, bound_s=terminate_s + 1),
        CancelStep(name="kill", act=do_kill, bound_s=KILL_S + 1),
    ]


def _marks(mark: str | None, call_id: str | None) -> dict[str, str]:
    marks = {RUN_MARK: mark, CALL_MARK: call_id}
    return {name: value for name, value in marks.items() if value is not None}


async def end_orphans(mark: str) -> dict[str, Any]:
    """End the processes with this mark and their descendants; returns evidence if there were any."""
    tree = ProcessTree(mark=mark)
    return await tree.kill() if tree.snapshot() else {}


GUARDS: Final = sys.platform == "linux"
"""Whether this system lets a process adopt the orphans below it."""
_MARKED: Final = 1 << 61


def guarded(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], mark: str, status_fd: int = guardian.NO_PIPE
) -> list[str]:
    """The command below a guardian; unchanged if the system has none, or the command cannot start. `mark` is
    `Launch.mark` of the run.

    With a `status_fd`, the guardian writes the command's status there and stays with the processes left until the
    other end is closed; without one, it ends them, and exits as the command did.
    """
    if not GUARDS or not _is_startable(command[0], cwd, env):
        return list(command)
    return [*_guardian(mark, status_fd), *command]


def guardian_killed(returncode: int | None) -> ProviderError | None:
    """The error for a killed guardian, by its exit code: what it guarded may have escaped for a moment."""
    if not GUARDS or returncode is None or returncode >= 0:
        return None
    return ProviderError(
        f"the guardian of the agent's processes was killed (signal {-returncode}); whatever is left of them has been "
        "ended, but what they did since was not supervised",
        details={"code": "guardian_killed", "signal": -returncode},
    )


def limit_of(mark: str) -> int:
    """The limit on locks that marks the processes of a run: a very large number, almost certainly unique."""
    return _MARKED | int.from_bytes(hashlib.sha256(mark.encode()).digest()[:7], "big")


def has_limit(pid: int, limit: int | None = None) -> bool:
    """Whether a process has this limit on locks; with None, any such limit, which no process outside of runs has."""
    if not GUARDS:
        return False
    import resource

    try:
        found = resource.prlimit(pid, guardian.RLIMIT_LOCKS)[1]
    except (OSError, ValueError):  # it is gone, or another user's
        return False
    return found != resource.RLIM_INFINITY if limit is None else found == limit


def _guardian(mark: str, status_fd: int) -> list[str]:
    return [sys.executable, "-I", "-S", guardian.__file__, str(status_fd), str(limit_of(mark))]


@contextmanager
def guarded_program(program: str, mark: str) -> Iterator[str]:
    """The path of a program that runs this one below a guardian, for a library that starts a client itself; this one
    if there can be no guardian. `mark` is `Launch.mark` of the run.
    """
    if not GUARDS or not _is_startable(program, Path.cwd(), os.environ):
        yield program
        return
    with tempfile.TemporaryDirectory(prefix="proctor-client-") as folder:
        script = Path(folder) / "client"
        command = shlex.join([*_guardian(mark, guardian.NO_PIPE), program])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o700)
        yield str(script)


def _is_startable(program: str, cwd: Path, env: Mapping[str, str]) -> bool:
    if os.sep in program:
        path = cwd / program
        return path.is_file() and os.access(path, os.X_OK)
    return shutil.which(program, path=os.pathsep.join(os.get_exec_path(env))) is not None


def bash_for_commands(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a client run commands with bash, as `runs` reads them; empty without bash."""
    bash = shutil.which("bash", path=env.get("PATH"))
    return {} if bash is None else {"SHELL": bash}


def shell_of(env: Mapping[str, str]) -> str | None:
    """The shell that a client with this environment runs commands with."""
    return "bash" if bash_for_commands(env) else None


def home_of(env: Mapping[str, str]) -> str | None:
    """The absolute home directory of a process with this environment; None if unknown."""
    home = env.get("HOME") or env.get("USERPROFILE")
    return home if home is not None and os.path.isabs(home) else None


_carried: dict[str, dict[str, str]] = {}


def carry_trace(run_id: str, carrier: Mapping[str, str]) -> None:
    """Set the trace context for new processes of a run; an empty one removes it."""
    if carrier:
        _carried[run_id] = {name.upper(): value for name, value in carrier.items()}
    else:
        _carried.pop(run_id, None)
