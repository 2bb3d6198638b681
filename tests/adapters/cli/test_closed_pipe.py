"""Every command with its output in a pipe whose reader has gone works as usual."""

import fcntl
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from termios import FIONREAD
from typing import Any

import pytest
from answering import token_of

from proctor.adapters.cli.app import COMMANDS as COMMANDS_THERE_ARE
from tests.forked_programs import warm_proctor

COMMANDS = {
    "demo": (),
    "run": ("--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml", "Tidy up"),
    "init": ("--agent", "shell", "--force"),
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


def closed(*words: str) -> tuple[int, str]:
    """Runs a command whose output nobody reads: the exit code and its standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    env = os.environ | token_of(words)
    program = [warm_proctor(), *words]
    try:
        ran = subprocess.run(
            program, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, text=True, env=env
        )
    finally:
        os.close(writing)
    return ran.returncode, ran.stderr


ELSEWHERE = {"approve", "deny", "kill"}
"""Commands that need an active run: below."""
SERVERS = {"mcp", "serve", "audit", "budgets", "fleet", "prune", "reap", "store", "export", "import"}
"""Commands whose own tests close their output, or that write almost nothing."""

FORMS = [(name, *form) for name in COMMANDS for form in ((), ("--json",)) if not (form and name.startswith("--"))]


def test_a_closed_pipe_is_no_error_of_any_command(ran: Any, place: Path) -> None:
    """There is no traceback and no message; the exit code still reflects the policy."""
    item = {"type": "tool_call", "id": "c", "name": "read", "input": {}}
    place.joinpath("trace.jsonl").write_text(json.dumps({"id": "s", "events": [item]}) + "\n")
    place.joinpath("one.test.yaml").write_text(TESTS)
    ended = {(name, *form): closed(name, *COMMANDS[name], *form) for name, *form in FORMS}

    assert {
        each: errors for each, (_, errors) in ended.items() if "Traceback" in errors or "BrokenPipe" in errors
    } == {}
    assert {each for each, (code, _) in ended.items() if code not in ((1,) if each[0] == "run" else (0, 1))} == set()


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    "words", [("eval", "--policy", "org.yaml", "trace.jsonl"), ("test", "one.test.yaml"), ("prove", "none.yaml")]
)
def test_findings_count_although_nobody_reads_them(words: tuple[str, ...], form: Any, place: Path) -> None:
    """Otherwise `proctor eval ... | head` would pass on a violation, and write no report."""
    item = {"type": "tool_call", "id": "c", "name": "delete", "input": {}}
    place.joinpath("trace.jsonl").write_text((json.dumps({"id": "s", "events": [item]}) + "\n") * 2)
    place.joinpath("one.test.yaml").write_text(TESTS)
    place.joinpath("none.yaml").write_text("name: none\ntool_rules: [{deny: [a, a*]}, {deny: [a]}]\n")

    assert closed(*words, *form, "--junit", "found.xml") == (1, "")
    assert "<failure" in place.joinpath("found.xml").read_text()


def test_a_run_whose_reader_leaves_finishes(place: Path, cli: Any) -> None:
    """Before its first line, or early, as with `| head -3`, however much it writes afterwards."""
    closed("run", *COMMANDS["run"])
    assert [line["status"] for line in cli("runs", "--json").lines] == ["completed"]
    steps = "".join(f"  - say: {'word ' * 200}{n}\n" for n in range(400))
    place.joinpath("agent.yaml").write_text(f"name: agent\nsteps:\n{steps}")
    words = " ".join([warm_proctor(), "run", *COMMANDS["run"][:-1], "x"])
    done = subprocess.run(["sh", "-c", f"{words} | head -3"], capture_output=True, text=True, timeout=120)

    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""
    assert [line["status"] for line in cli("runs", "--json").lines] == ["completed"] * 2


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_run_whose_reader_stops_reading_keeps_its_limits(place: Path, cli: Any, form: Any) -> None:
    """A pager, or a terminal suspended by Ctrl-S. Once it reads again, it gets everything."""
    steps = "".join(f"  - say: {'word ' * 200}{n}\n" for n in range(40))
    place.joinpath("agent.yaml").write_text(f"name: agent\nsteps:\n{steps}  - silence: forever\n")
    place.joinpath("org.yaml").write_text("name: org\nlimits: {max_idle: 300ms}\n")
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen([warm_proctor(), "run", *COMMANDS["run"], *form], stdout=writing) as process:
        os.close(writing)
        while "cancelled" not in (runs := cli("runs", "--json").out):
            assert process.poll() is None, runs
            time.sleep(0.05)
        with open(reading, encoding="utf-8") as pipe:
            lines = pipe.read().splitlines()

    assert process.returncode == 1
    assert sum("word word" in line for line in lines) >= 40


def test_a_nonblocking_pipe_gets_everything(place: Path) -> None:
    """Some programs start others with such a pipe."""
    reading, writing = os.pipe()
    room = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    with subprocess.Popen([sys.executable, "-m", "proctor", "schema"], stdout=writing) as process:
        os.close(writing)
        while struct.unpack("i", fcntl.ioctl(reading, FIONREAD, b"\0" * 4))[0] < room and process.poll() is None:
            time.sleep(0.01)
        with open(reading, "rb") as pipe:
            assert json.load(pipe)["$schema"]


def test_a_policy_from_a_nonblocking_pipe_is_read_to_its_end(place: Path) -> None:
    """Even if the rest is late: half of it would allow what the policy denies."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    command = [sys.executable, "-m", "proctor", "check", "-"]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, text=True) as process:
        with open(writing, "wb", buffering=0) as pipe:
            pipe.write(b"name: p\ntool_rules:\n  - deny: [a]\n")
            while struct.unpack("i", fcntl.ioctl(reading, FIONREAD, b"\0" * 4))[0]:
                time.sleep(0.01)
            os.close(reading)
            pipe.write(b"  - deny: [b]\n")
        assert process.communicate()[0] == "p: 2 tool rules\nok\n"


def test_every_command_is_tested() -> None:
    """Here, or in its own tests."""
    assert set(COMMANDS_THERE_ARE) - set(COMMANDS) <= ELSEWHERE | SERVERS


WAITING = "name: agent\ntools: [deploy]\nsteps:\n  - {call: deploy}\n"


@pytest.mark.parametrize(
    ("command", "form", "status"),
    [("approve", (), "completed"), ("deny", ("--json",), "completed"), ("kill", (), "cancelled")],
)
def test_an_answer_or_a_cancel_takes_effect_although_nobody_reads_the_output(
    command: str, form: tuple[str, ...], status: str, place: Path, cli: Any
) -> None:
    """The pending run continues, or ends. The pipe is not mentioned."""
    place.joinpath("waits.yaml").write_text(WAITING)
    words = (
        *("run", "--adapter", "scripted", "--set", "script=waits.yaml", "--policy", "team.yaml", "--no-prompt", "x"),
    )
    with subprocess.Popen([warm_proctor(), *words], stdout=subprocess.DEVNULL) as run:
        while not (waiting := cli("approvals", "--json").lines):
            assert run.poll() is None
            time.sleep(0.05)
        about = ("--all",) if command == "kill" else (waiting[0]["approval_id"],)
        assert closed(command, *about, *form) == (0, "")

    assert [line["status"] for line in cli("runs", "--json").lines] == [status]
