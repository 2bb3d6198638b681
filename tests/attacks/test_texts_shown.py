"""Text that people see, on a terminal and elsewhere, can't disguise itself."""

import ast
import json
import logging
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answering import ANSWERING, token_for
from hook_processes import call_of, decider_for
from page_blocks import ROOT

from proctor.adapters.cli import main
from proctor.adapters.cli.output import NoteHandler
from proctor.adapters.hooks.clients import CLIENTS
from proctor.adapters.hooks.daemon import _refused
from proctor.adapters.kit.display_text import escape_control
from proctor.supervisor import StoreError

HOSTILE = "a\x1b[2J\x1b]0;t\x07b\u202ec\u2066d\u200be\x9b31mf\x7fg\rh\u2028i\u3164\u034fj\ufe0f\U000e0100"
"""Clears the screen, sets the title, reverses the direction, hides, colours in one byte, returns to the left, is
invisible although printable.
"""
PROCTOR = (sys.executable, "-m", "proctor")
Call = Callable[..., tuple[int, bytes]]


def unsafe(data: bytes) -> set[str]:
    """The characters of an output that a terminal would act on."""
    text = data.decode("utf-8")
    odd = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")
    return {c for c in text if c != "\n" and (unicodedata.category(c) in odd or c in HOSTILE[-5:])} - {"j"}


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Runs a command in a folder with hostile files; returns its exit code and output, and asserts that the output is
    safe.
    """
    monkeypatch.chdir(tmp_path)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, bytes]:
        if arguments[0] in ANSWERING:
            for name, value in token_for(tmp_path / "state" / "proctor" / "runs.db").items():
                monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as raised:
            main(list(arguments))
        shown = capfdbinary.readouterr()
        assert (unsafe(shown.out), unsafe(shown.err)) == (set(), set()), arguments
        return int(raised.value.code or 0), shown.out

    tools = json.dumps([HOSTILE, "deploy"])
    denied = {"tool": "a*", "where": [{"path": "$.x", "equals": 1}]}
    rule = {"id": HOSTILE, "deny": [denied], "action": "deny", "tell_model": HOSTILE, "reason": HOSTILE}
    policy = {"name": HOSTILE, "tool_rules": [rule]}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    steps: list[dict[str, Any]] = [
        {"say": HOSTILE},
        {"call": HOSTILE, "input": {HOSTILE: HOSTILE, "x": 1}},
        *({"call": "deploy", "input": {HOSTILE: [HOSTILE]}},) * 2,
        {"fail": HOSTILE},
    ]
    (tmp_path / "agent.yaml").write_text(f"name: agent\ntools: {tools}\nsteps: {json.dumps(steps)}\n")
    events = [
        {"type": "message", "role": "user", "content": HOSTILE},
        {"type": "tool_call", "id": HOSTILE, "name": HOSTILE, "input": {"x": 1, HOSTILE: HOSTILE}},
        {"type": "tool_result", "id": HOSTILE, "output": HOSTILE},
    ]
    session = {"id": HOSTILE, "user": HOSTILE, "tenant": HOSTILE, "events": events}
    (tmp_path / "trace.jsonl").write_text(json.dumps(session) + "\n")
    return run


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_run_and_its_event_log_are_shown_safely(call: Call, form: tuple[str, ...]) -> None:
    """Live and later: the prompt, the agent's messages, names and inputs of calls, outputs, the error."""
    script = ("--adapter", "scripted", "--set", "script=agent.yaml")
    code, shown = call("run", *script, "--policy", "policy.json", *form, HOSTILE)
    stored = [call(*command, *form) for command in (("runs",), ("show", "last"), ("tail",), ("explain", "last"))]

    assert code in (1, 3)
    assert b"2J" in shown
    assert [code for code, _ in stored] == [0, 0, 0, 0]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_session_logs_and_policies_are_shown_safely(call: Call, form: tuple[str, ...]) -> None:
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
        call("migrate", "policy.json", *form)  # as text it is a document, exact unless on a terminal

    assert answers[0][0] == 1


def test_a_line_break_in_a_text_starts_no_line(call: Call, tmp_path: Path) -> None:
    """The line could look like one of the program."""
    for file in ("policy.json", "trace.jsonl"):
        text = (tmp_path / file).read_text()
        (tmp_path / file).write_text(text.replace(json.dumps(HOSTILE), json.dumps(f"{HOSTILE}\nforged")))
    policy = ("--policy", "policy.json")
    shown = [
        call("eval", *policy, "trace.jsonl"),
        call("diff", "policy.json", "policy.json", "trace.jsonl"),
        call("explain", "trace.jsonl", *policy),
        call("narrow", *policy, "trace.jsonl"),
        call("check", "policy.json"),
    ]

    assert [out for _, out in shown if b"\nforged" in out] == []
    assert b" forged" in shown[0][1]


def test_unknown_names_are_shown_safely(call: Call, tmp_path: Path) -> None:
    """An error repeats what was requested."""
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
def test_a_pending_call_is_shown_safely(call: Call, form: tuple[str, ...], tmp_path: Path) -> None:
    """Its tool, its input and the rule's reason, in the inbox and in the reply to an answer."""
    rule = {"deny": [{"tool": "*"}], "action": "request_approval", "reason": HOSTILE}
    (tmp_path / "asks.json").write_text(json.dumps({"name": HOSTILE, "tool_rules": [rule]}))
    agent = ("--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "asks.json")
    words = [*PROCTOR, "run", "--no-prompt", "--json", *agent, "x"]
    by = ("--by", HOSTILE, "--reason", HOSTILE)
    with subprocess.Popen(words, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        for answer in ("approve", "deny", "kill"):
            assert any(b"tool_approval_requested" in line for line in run.stdout)
            [waiting] = call("approvals", "--json")[1].splitlines()
            call("approvals", *form)
            call("watch", *form)
            about = ("--all", "--reason", HOSTILE) if answer == "kill" else (json.loads(waiting)["approval_id"], *by)
            assert call(answer, *about, *form)[0] == 0
        for _ in run.stdout:  # to its end
            pass


def test_tested_and_installed_policies_are_shown_safely(call: Call, tmp_path: Path) -> None:
    """Names in a file of policy tests, and the settings of a hook."""
    case = {"name": HOSTILE, "calls": [{"tool": HOSTILE, "input": {HOSTILE: HOSTILE}, "expect": "deny"}]}
    (tmp_path / "one.json").write_text(json.dumps({"policies": ["policy.json"], "tests": [case]}))
    for form in ((), ("--json",)):
        call("test", "one.json", *form)
        call("hook", "settings", "--policy", "policy.json", "--context", f"labels.a={HOSTILE}", *form)
        call("adapters", *form)
        call("demo", *form)
        call("mcp", "--policy", "policy.json", *form, "--", HOSTILE)


SECRET = "sk-ant-api03-" + "a" * 80
WITH_A_SECRET = f"a\x1b[2Jb\x9b31mc\u202ed\u2066e {SECRET}"

PLACES = {
    "adapters/agents/amp/delegate.py": "what it answers goes to the agent, which starts it",
    "adapters/hooks/daemon_client.py": "what it answers goes to the client, as JSON in ASCII",
    "adapters/cli/__init__.py": "a text of its own",
    "adapters/cli/exits.py": "`escape_control_lines`",
    "adapters/cli/options.py": "`escape_control_lines`; a document unchanged in a file",
    "adapters/cli/app.py": "a version",
    "adapters/cli/commands/serve.py": "one line: the address that it has made, with its own token",
    "adapters/cli/commands/sessions.py": "JSON: `escape_control_json`",
    "adapters/cli/live.py": "JSON: `escape_control_json`",
    "adapters/cli/output.py": "`escape_control_lines` and `encoded`",
    "adapters/cli/commands/run.py": "`escape_control` and `encoded`",
    "adapters/kit/guardian.py": "the name of a command, to the agent's own output",
    "adapters/matrix.py": "a table of its own, for the documentation",
    "supervisor/log.py": "what structlog shows as `repr` does, redacted",
    "supervisor/testing/damaged_output.py": "bytes of a test",
}
"""The files that write to standard output or error, and what makes their text safe."""


MAY_WRITE = r"print|os\.write|click\.s?echo|logging\.|sys\.std|PrintLogger|def escape_control"
"""A module that writes to a terminal, or cleans text for one, has one of these; others are not inspected."""


def writes(tree: ast.AST) -> bool:
    """Whether a module writes to the terminal: it prints, or passes on standard output or error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("print", "os.write") and (name == "print" or ast.unparse(node.args[0]) in ("1", "2")):
                return True
            if name in ("click.echo", "click.secho", "logging.StreamHandler", "logging.basicConfig"):
                return True
            if name.startswith(("sys.stdout.", "sys.stderr.")) and name.rpartition(".")[2] in ("write", "writelines"):
                return True
            if name.endswith("PrintLogger"):
                return True
    return False


def test_every_module_that_writes_to_a_terminal_is_listed_and_one_file_cleans_text() -> None:
    """A new one is listed with what cleans its text; a removed one is deleted from the list."""
    modules = (path for folder in ("adapters", "supervisor", "policies") for path in (ROOT / folder).rglob("*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in modules}
    trees = {name: ast.parse(text) for name, text in texts.items() if re.search(MAY_WRITE, text)}
    functions = {
        (name, node.name)
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }

    assert {name for name, tree in trees.items() if writes(tree)} == set(PLACES)
    assert {name for name, function in functions if function.startswith("escape_control")} == {
        "adapters/kit/display_text.py"
    }


def test_reports_of_the_mcp_proxy_are_shown_safely(capsys: pytest.CaptureFixture[str]) -> None:
    """In both formats: no C0 or C1 character, none that reverses or hides text, no key."""
    pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")
    from proctor.adapters.cli.commands.agents import _echo, _echo_json
    from proctor.adapters.mcp_proxy.messages import short, unread

    for text in (WITH_A_SECRET, unread(ValueError(WITH_A_SECRET)), short(WITH_A_SECRET)):
        _echo(text)
        _echo_json(text)
    shown = capsys.readouterr()

    assert shown.out == ""
    assert SECRET not in shown.err
    assert all(line.isprintable() for line in shown.err.splitlines())
    assert len(short("x" * 1000)) <= 200


def test_a_log_entry_on_the_terminal_is_shown_safely(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever an error or a webhook's response contains."""
    record = logging.LogRecord("proctor", logging.WARNING, "", 0, WITH_A_SECRET, (), None)
    NoteHandler().handle(record)
    shown = capsys.readouterr().err

    assert SECRET not in shown
    assert shown.rstrip("\n") == escape_control(WITH_A_SECRET)
    assert escape_control("⚠️ ❤️ 다") == "⚠️ ❤️ 다"


RULES = """
name: p
on_violation: deny
tool_rules:
  - {action: request_approval, deny: [{tool: bash, where: [{path: $.command, contains: zz}]}]}
  - deny: [{tool: "*", where: [{path: $.v, contains: a}]}]
  - {action: warn, deny: [{tool: "*", where: [{path: $.w, contains: a}]}]}
"""


@pytest.mark.parametrize("agent", CLIENTS)
def test_texts_that_an_agent_shows_its_user_are_safe(agent: str, tmp_path: Path) -> None:
    """The question about a call, the reason of a denial, a rule's note, and why nothing could be evaluated."""
    decider = decider_for(tmp_path, RULES)
    calls = [
        ("Bash", {"command": f"zz {WITH_A_SECRET}"}),
        (WITH_A_SECRET, {"v": WITH_A_SECRET}),
        ("x", {"w": WITH_A_SECRET}),
    ]
    answers = []
    for number, (name, value) in enumerate(calls):
        hook = call_of(agent, f"c{number}", name, value)
        answers.append(decider.answer_hook(json.dumps(hook).encode(), agent=agent)[0])
    decider.close()
    refused, _, _ = _refused(StoreError(WITH_A_SECRET), b"{}").decode().partition("\0")
    shown = [refused, *(text for answer in answers for text in (answer.reason, *answer.notes))]

    assert [answer.verdict for answer in answers[1:]] == ["deny", "allow"]
    assert any("\\u202e" in text for text in shown)
    assert SECRET not in "".join(shown)
    assert [text for text in shown if not text.replace("\n", "").isprintable()] == []
