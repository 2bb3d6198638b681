"""Text of agents, traces and policies on a terminal: no control, escape or bidirectional character reaches it raw."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answering import ANSWERING, token_for

HOSTILE = "a\x1b[2J\x1b]0;t\x07b\u202ec\u2066d\u200be\x9b31mf\x7fg\rh\u2028i"
"""Clears the screen, sets the title, turns the direction, hides, colours in one byte, goes back to the left."""
PROCTOR = (sys.executable, "-m", "proctor.adapters.cli")
Call = Callable[..., subprocess.CompletedProcess[bytes]]


def unsafe(data: bytes) -> set[str]:
    """The characters of an output that a terminal would act on."""
    text = data.decode("utf-8")
    return {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")}


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Runs a command in a folder with hostile files, asserts that what it shows is safe, and gives it."""

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        env = {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
        if arguments[0] in ANSWERING:
            env |= token_for(tmp_path / "state" / "proctor" / "runs.db")
        done = subprocess.run([*PROCTOR, *arguments], capture_output=True, cwd=tmp_path, env=env, timeout=120)
        assert unsafe(done.stdout) == set(), arguments
        assert unsafe(done.stderr) == set(), arguments
        assert b"Traceback" not in done.stderr
        return done

    tools = json.dumps([HOSTILE, "deploy"])
    denied = {"tool": "a*", "where": [{"path": "$.x", "equals": 1}]}
    rule = {"deny": [denied], "action": "deny", "tell_model": HOSTILE, "reason": HOSTILE}
    policy = {"name": HOSTILE, "tool_rules": [rule]}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    steps: list[dict[str, Any]] = [
        {"say": HOSTILE},
        {"call": HOSTILE, "input": {HOSTILE: HOSTILE, "x": 1}},
        {"call": "deploy", "input": {HOSTILE: [HOSTILE]}},
        {"fail": HOSTILE},
    ]
    (tmp_path / "agent.yaml").write_text(f"name: agent\ntools: {tools}\nsteps: {json.dumps(steps)}\n")
    events = [
        {"type": "message", "role": "user", "content": HOSTILE},
        {"type": "tool_call", "id": HOSTILE, "name": HOSTILE, "input": {"x": 1, HOSTILE: HOSTILE}},
        {"type": "tool_result", "id": HOSTILE, "output": HOSTILE},
    ]
    (tmp_path / "trace.jsonl").write_text(json.dumps({"id": HOSTILE, "events": events}) + "\n")
    return run


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_run_and_its_record(call: Call, form: tuple[str, ...]) -> None:
    """Live, and read again: the prompt, what the agent says, names and inputs of calls, outputs, the error."""
    script = ("--adapter", "scripted", "--set", "script=agent.yaml")
    done = call("run", *script, "--policy", "policy.json", *form, HOSTILE)
    stored = [call(*command, *form) for command in (("runs",), ("show", "last"), ("tail",), ("explain", "last"))]

    assert done.returncode in (1, 3)
    assert b"2J" in done.stdout
    assert [answer.returncode for answer in stored] == [0, 0, 0, 0]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_traces_and_policies(call: Call, form: tuple[str, ...]) -> None:
    """Ids of sessions and calls, names of policies and rules, sources of problems."""
    policy = ("--policy", "policy.json")
    answers = [
        call("eval", *policy, "trace.jsonl", *form),
        call("diff", "policy.json", "policy.json", "trace.jsonl", *form),
        call("explain", "trace.jsonl", *policy, *form),
        call("narrow", *policy, "trace.jsonl", *form),
        call("graph", "policy.json", *form),
        call("check", "policy.json", *form),
    ]
    if form:
        call("migrate", "policy.json", *form)  # as text it is a document, exact but on a terminal

    assert answers[0].returncode == 1


def test_names_that_do_not_exist(call: Call, tmp_path: Path) -> None:
    """What was requested comes back in an error."""
    call("run", "--adapter", "scripted", "--set", "script=agent.yaml", "x")
    (tmp_path / "bad.yaml").write_text(f"name: p\nrules:\n  - {{type: {json.dumps(HOSTILE)}}}\n")
    for command in (("show",), ("explain",), ("approve",), ("deny",), ("kill", "--run"), ("kill", "--session")):
        call(*command, HOSTILE)
    call("check", "bad.yaml")
    call("check", HOSTILE)
    call(HOSTILE)
    call("run", "--adapter", HOSTILE, "x")
    call("eval", "--format", HOSTILE, "--policy", "policy.json", "trace.jsonl")


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("command", ["approve", "deny", "kill"])
def test_a_call_that_waits_for_a_person(call: Call, command: str, form: tuple[str, ...], tmp_path: Path) -> None:
    """Its tool, its input and the rule's reason, in the inbox and in the answer to whoever acts."""
    rule = {"deny": [{"tool": "*"}], "action": "request_approval", "reason": HOSTILE}
    (tmp_path / "asks.json").write_text(json.dumps({"name": HOSTILE, "tool_rules": [rule]}))
    words = (
        "run",
        "--no-prompt",
        "--adapter",
        "scripted",
        "--set",
        "script=agent.yaml",
        "--policy",
        "asks.json",
        "x",
    )
    env = {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    with subprocess.Popen([*PROCTOR, *words], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as run:
        while not (waiting := call("approvals", "--json").stdout.splitlines()):
            assert run.poll() is None
        call("approvals", *form)
        call("watch", *form)
        approval_id = json.loads(waiting[0])["approval_id"]
        by = ("--by", HOSTILE, "--reason", HOSTILE)
        answers = {"kill": ("--all", "--reason", HOSTILE), "approve": (approval_id, *by), "deny": (approval_id, *by)}
        done = call(command, *answers[command], *form)
        call("kill", "--all")

    assert done.returncode == 0


def test_policies_that_are_tried_and_installed(call: Call, tmp_path: Path) -> None:
    """Names in a file of tests, and a hook's settings."""
    case = {"name": HOSTILE, "calls": [{"tool": HOSTILE, "input": {HOSTILE: HOSTILE}, "expect": "deny"}]}
    (tmp_path / "one.json").write_text(json.dumps({"policies": ["policy.json"], "tests": [case]}))
    for form in ((), ("--json",)):
        call("test", "one.json", *form)
        call("hook", "settings", "--policy", "policy.json", "--context", f"labels.a={HOSTILE}", *form)
        call("adapters", *form)
        call("demo", *form)
        call("mcp", "--policy", "policy.json", *form, "--", HOSTILE)
