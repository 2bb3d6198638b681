"""Every command into a pipe whose reader has gone: nothing is hurt by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answering import token_of

from proctor.adapters.cli.app import COMMANDS as COMMANDS_THERE_ARE

Closed = Callable[..., tuple[int, str]]
PROCTOR = (sys.executable, "-m", "proctor.adapters.cli")
COMMANDS = {
    "demo": (),
    "run": ("--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml", "Tidy up"),
    "init": ("--agent", "shell"),
    "check": ("org.yaml",),
    "eval": ("--policy", "org.yaml", "trace.jsonl"),
    "diff": ("org.yaml", "team.yaml", "trace.jsonl"),
    "explain": ("last",),
    "narrow": ("--policy", "org.yaml", "trace.jsonl"),
    "graph": ("team.yaml",),
    "runs": (),
    "show": ("last",),
    "tail": (),
    "approvals": (),
    "adapters": (),
    "migrate": ("org.yaml",),
    "schema": (),
    "test": ("one.test.yaml",),
    "hook": ("settings", "--policy", "org.yaml"),
    "prove": ("org.yaml",),
    "suggest": ("trace.jsonl",),
    "kill": ("--all",),
    "watch": (),
    "--help": (),
    "--version": (),
}

TESTS = "policies: [org.yaml]\ntests:\n  - {name: a, calls: [{tool: read}]}\n  - {name: b, calls: [{tool: delete}]}\n"
WAITING = "name: agent\ntools: [deploy]\nsteps:\n  - {call: deploy}\n"

PARENT = """
import gc, json, os, sys
import anyio._backends._asyncio, rich.table, yaml
import proctor.adapters.agents.scripted, proctor.adapters.stores.sqlite, proctor.supervisor.api.run_once
from proctor.adapters.cli import main
from proctor.adapters.cli.app import COMMANDS, app
for name in COMMANDS:
    app.get_command(None, name)
gc.freeze()
for line in sys.stdin:
    words, folder, env, errors = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)
    os.close(writing)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    main(words)
"""
"""Each command is a process of its own that ends as every other does, without reading in the program once more."""


@pytest.fixture(scope="module")
def parent() -> Iterator[subprocess.Popen[str]]:
    """The process that starts commands."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        yield parent


@pytest.fixture
def closed(parent: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory) -> Closed:
    """Runs a command with nobody reading its output: the exit code, and what it says on standard error."""
    errors = tmp_path_factory.mktemp("closed") / "errors"

    def run(*arguments: str) -> tuple[int, str]:
        assert parent.stdin is not None
        assert parent.stdout is not None
        env = os.environ | token_of(arguments)
        parent.stdin.write(json.dumps([arguments, os.getcwd(), env, str(errors)]) + "\n")
        parent.stdin.flush()
        return int(parent.stdout.readline()), errors.read_text()

    return run


ELSEWHERE = {"approve", "deny", "kill"}
"""Commands that need a run that goes on: below."""
SERVERS = {"mcp", "serve", "audit", "budgets", "fleet", "prune", "reap", "store", "export", "import"}
"""Commands whose own tests close what they write to, or that write nothing to speak of."""

FORMS = [(name, *form) for name in COMMANDS for form in ((), ("--json",)) if not (form and name.startswith("--"))]


@pytest.mark.parametrize("command", FORMS, ids=" ".join)
def test_a_closed_pipe_is_no_error(command: tuple[str, ...], ran: Any, place: Path, closed: Closed) -> None:
    """Neither a traceback nor a word of it; what a policy did still gives the exit code."""
    name, *form = command
    item = {"type": "tool_call", "id": "c", "name": "read", "input": {}}
    place.joinpath("trace.jsonl").write_text(json.dumps({"id": "s", "events": [item]}) + "\n")
    place.joinpath("one.test.yaml").write_text(TESTS)
    code, errors = closed(name, *COMMANDS[name], *form)

    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors
    assert code in ((1,) if name == "run" else (0, 1))


def test_a_run_nobody_reads_is_finished(place: Path, cli: Any, closed: Closed) -> None:
    """Its calls are done and its end is on record."""
    closed("run", *COMMANDS["run"])
    [line] = cli("runs", "--json").lines

    assert line["status"] == "completed"


def test_a_run_whose_reader_leaves_early_is_finished(place: Path, cli: Any) -> None:
    """As with `| head -3`: however much it has to say afterwards."""
    steps = "".join(f"  - say: {'word ' * 200}{n}\n" for n in range(400))
    place.joinpath("agent.yaml").write_text(f"name: agent\nsteps:\n{steps}")
    words = " ".join([*PROCTOR, "run", *COMMANDS["run"][:-1], "x"])
    done = subprocess.run(["sh", "-c", f"{words} | head -3"], capture_output=True, text=True, timeout=120)
    [line] = cli("runs", "--json").lines

    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""
    assert line["status"] == "completed"


def test_every_command_is_tried() -> None:
    """Here, or where its own tests are."""
    assert set(COMMANDS_THERE_ARE) - set(COMMANDS) <= ELSEWHERE | SERVERS


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    ("command", "status"), [("approve", "completed"), ("deny", "completed"), ("kill", "cancelled")]
)
def test_who_answers_or_ends_a_run_unread_has_done_it(
    command: str, status: str, form: tuple[str, ...], place: Path, cli: Any, closed: Closed
) -> None:
    """The run that waits goes on, or ends; nothing is said of the pipe."""
    place.joinpath("waits.yaml").write_text(WAITING)
    words = (
        *("run", "--adapter", "scripted", "--set", "script=waits.yaml", "--policy", "team.yaml", "--no-prompt", "x"),
    )
    with subprocess.Popen([*PROCTOR, *words], stdout=subprocess.DEVNULL) as run:
        while not (waiting := cli("approvals", "--json").lines):
            assert run.poll() is None
            time.sleep(0.05)
        [approval] = waiting
        about = ("--all",) if command == "kill" else (approval["approval_id"],)
        code, errors = closed(command, *about, *form)
    [line] = cli("runs", "--json").lines

    assert (code, errors) == (0, "")
    assert line["status"] == status
