"""Every command into a pipe whose reader has gone: nothing is hurt by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from answering import token_of

from proctor.adapters.cli.app import COMMANDS as COMMANDS_THERE_ARE

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


def closed(*arguments: str) -> tuple[int, str]:
    """Run a command with nobody reading its output: the exit code, and what it says on standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command, env = [*PROCTOR, *arguments], os.environ | token_of(arguments)
        done = subprocess.run(command, env=env, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120)
    finally:
        os.close(writing)
    return done.returncode, done.stderr


ELSEWHERE = {"approve", "deny", "kill"}
"""Commands that need a run that goes on: below."""
SERVERS = {"mcp", "serve", "audit", "budgets", "fleet", "prune", "reap", "store", "export", "import"}
"""Commands whose own tests close what they write to, or that write nothing to speak of."""

FORMS = [(name, *form) for name in COMMANDS for form in ((), ("--json",)) if not (form and name.startswith("--"))]


@pytest.mark.parametrize("command", FORMS, ids=" ".join)
def test_a_closed_pipe_is_no_error(command: tuple[str, ...], ran: Any, place: Path) -> None:
    """Neither a traceback nor a word of it; what a policy did still gives the exit code."""
    name, *form = command
    item = {"type": "tool_call", "id": "c", "name": "read", "input": {}}
    place.joinpath("trace.jsonl").write_text(json.dumps({"id": "s", "events": [item]}) + "\n")
    place.joinpath("one.test.yaml").write_text(TESTS)
    code, errors = closed(name, *COMMANDS[name], *form)

    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors
    assert code in ((1,) if name == "run" else (0, 1))


def test_a_run_nobody_reads_is_finished(place: Path, cli: Any) -> None:
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
    command: str, status: str, form: tuple[str, ...], place: Path, cli: Any
) -> None:
    """The run that waits goes on, or ends; nothing is said of the pipe."""
    place.joinpath("waits.yaml").write_text(WAITING)
    words = (
        "run",
        "--adapter",
        "scripted",
        "--set",
        "script=waits.yaml",
        "--policy",
        "team.yaml",
        "--no-prompt",
        "x",
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
