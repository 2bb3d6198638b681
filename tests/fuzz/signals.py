"""`proctor run`, signalled or killed at any moment of its start, its work and its end: a share is some moments."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Final, NamedTuple

import psutil

from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.answering import token_for
from tests.stored_rows import in_store

from .ledger import Share

MOMENTS: Final = 24
"""Of one share."""
AFTER_IMPORTS: Final = 350
"""Roughly the number of a run's moments after all imports."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
PROGRAM: Final = """
import atexit, os, signal, sys, threading
from proctor.adapters.cli import main
moment, number, main_thread = int(sys.argv.pop(1)), int(sys.argv.pop(1)), threading.main_thread()
seen = 0

def look(event, arguments):
    global seen
    if threading.current_thread() is main_thread:
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), number)

def at_work(*_):
    global seen
    if seen < moment:
        seen = moment
        os.kill(os.getpid(), number)

signal.signal(signal.SIGUSR1, at_work)
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it would be ignored,
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and this under nohup
if moment == 0:
    atexit.register(lambda: print(seen, file=sys.stderr))
sys.addaudithook(look)
main()
"""
"""Signals itself, once: at the n-th event of the interpreter's audit hook (an import, a file, ...), or when the agent
is reported to be working, if that comes first.
"""
PROCTOR: Final = (sys.executable, "-m", "proctor")
POLICY: Final = "{name: open, limits: {max_tool_calls: 9}}"


class Ran(NamedTuple):
    """The exit code of the program, and its output."""

    code: int
    out: str
    err: str


def signals(seed: int, number: int) -> Share:
    """One share."""
    chance = random.Random(f"{seed}:{number}")
    seen = {"starts signalled": MOMENTS, "of them with a run": 0}
    found = []
    latest = _latest()
    for _ in range(MOMENTS):
        moment = chance.randint(chance.choice((1, *[latest - AFTER_IMPORTS] * 3)), latest)
        sent, ends = chance.choice(SIGNALS), chance.random() < 0.5
        statuses, wrong = signalled(moment, sent, ends=ends)
        seen["of them with a run"] += bool(statuses)
        found += [f"share {number}: {sent.name} at {moment} of {latest}: {one}" for one in wrong]
    return Share(seen, found)


def signalled(moment: int, sent: signal.Signals, *, ends: bool) -> tuple[list[str], list[str]]:
    """The outcome of a run that is signalled at that moment, if there is one, and what is wrong afterwards.

    Its agent `ends` at once or never. In the latter case it is signalled once it is working, if it was not before.
    `proctor reap` ends leftovers of SIGKILL.
    """
    with tempfile.TemporaryDirectory() as folder:
        store, agent = Path(folder, "s.db"), f"{'true' if ends else 'sleep 86400'} && echo {uuid.uuid4().hex}"
        ran = _run(moment, sent, store, agent)
        if sent is signal.SIGKILL and store.exists():
            env = os.environ | token_for(store)
            subprocess.run([*PROCTOR, "reap", "--store", store], check=True, capture_output=True, env=env)
        runs = in_store(store, lambda kept: kept.runs()) if store.exists() else []
    statuses = [run.status for run in runs]
    found = [f"the agent is alive: {process.pid}" for process in _alive(agent)]
    return statuses, [*_wrong(ran, sent, statuses, ends=ends), *found]


@cache
def _latest() -> int:
    """The number of moments of a run whose agent ends at once."""
    with tempfile.TemporaryDirectory() as folder:
        return int(_run(0, signal.SIGINT, Path(folder, "s.db"), "true").err.split()[-1])


def _run(moment: int, sent: signal.Signals, store: Path, agent: str) -> Ran:
    policy = store.with_name("policy.yaml")
    policy.write_text(POLICY)
    program = [sys.executable, "-c", PROGRAM, str(moment), str(int(sent))]
    given = ["run", "--json", "--store", str(store), "--adapter", "shell", "--policy", str(policy), agent]
    with (
        Path(store.with_name("err")).open("w+") as err,
        subprocess.Popen([*program, *given], stdout=subprocess.PIPE, stderr=err, text=True) as process,
    ):
        late = Timer(PATIENCE_S, process.kill)
        late.start()
        try:
            out = ""
            assert process.stdout is not None
            for line in process.stdout:
                out += line
                if '"type":"tool_call_started"' in line and "sleep" in agent:
                    process.send_signal(signal.SIGUSR1)
            code = process.wait()
        finally:
            late.cancel()
            process.kill()
        err.seek(0)
        return Ran(code, out, err.read())


def _wrong(ran: Ran, sent: signal.Signals, statuses: list[str], *, ends: bool) -> list[str]:
    """A signal before a run exists may end the program as usual; afterwards, the run's end has the exit code. A kill
    may come too late, or before a created run has started, which nobody reaps.
    """
    codes = {"failed": -sent, "created": -sent} if sent is signal.SIGKILL else {"cancelled": 3}
    if ends:
        codes["completed"] = 0
    found = []
    if len(statuses) > 1 or not set(statuses) <= set(codes):
        found.append(f"runs are {statuses}")
    wanted = {codes.get(status, 3) for status in statuses} or ({3} if sent is signal.SIGINT else {3, -sent})
    if sent is signal.SIGKILL and ends:
        wanted |= {0, -sent}
    if ran.code not in wanted:
        found.append(f"exit code {ran.code}, runs {statuses}, {ran.err}")
    if "Traceback" in ran.err:
        found.append(ran.err)
    return found


def _alive(agent: str) -> list[psutil.Process]:
    """Processes of the agent that do not end."""
    until = time.monotonic() + PATIENCE_S
    while found := [process for process in psutil.process_iter() if agent in " ".join(_arguments(process))]:
        if time.monotonic() > until:
            return found
        psutil.wait_procs(found, timeout=1)
    return []


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
