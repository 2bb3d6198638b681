"""Every place where this package writes to a person's terminal is known, and each has its text from one function."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest
from page_blocks import ROOT

from proctor.adapters.cli.output import NoteHandler
from proctor.adapters.hooks.clients import CLIENTS
from proctor.adapters.hooks.daemon import _refused
from proctor.adapters.hooks.hook_judge import HookJudge, HookLine
from proctor.adapters.hooks.record import store_id
from proctor.adapters.kit.display_text import escape_control
from proctor.supervisor import StoreError

CALL = ("session_id", "tool_name", "tool_input", "tool_use_id")
SECRET = "sk-ant-api03-" + "a" * 80
HOSTILE = f"a\x1b[2Jb\x9b31mc\u202ed\u2066e {SECRET}"

PLACES = {
    "adapters/agents/amp/delegate.py": "what it answers goes to the agent, which starts it",
    "adapters/hooks/daemon_client.py": "what it answers goes to the client, as JSON in ASCII",
    "adapters/cli/__init__.py": "a text of its own",
    "adapters/cli/exits.py": "`escape_control_lines`",
    "adapters/cli/options.py": "`escape_control_lines`; a document unchanged in a file",
    "adapters/cli/app.py": "a version",
    "adapters/cli/commands/prove.py": "how long a search takes: a text of its own",
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
"""The files that write to standard output or error, and what makes their text fit to be shown."""


def writes(tree: ast.AST) -> bool:
    """Whether a module writes to the terminal: prints, or gives standard output or error to something."""
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


def modules() -> list[Path]:
    """Those of the package."""
    return [path for folder in ("adapters", "supervisor", "policies") for path in (ROOT / folder).rglob("*.py")]


def test_every_place_that_writes_to_a_terminal_is_known() -> None:
    """A new one is listed with what cleans its text; one that is gone is taken from the list."""
    found = {str(path.relative_to(ROOT)) for path in modules() if writes(ast.parse(path.read_text()))}

    assert found == set(PLACES)


def test_there_is_one_function_for_such_text() -> None:
    """Nobody has a second one of its name."""
    defined = [
        str(path.relative_to(ROOT))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("escape_control")
    ]

    assert set(defined) == {"adapters/kit/display_text.py"}


def test_what_the_mcp_proxy_reports_is_fit_to_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """On both of its forms: no character of C0 or C1, none that turns or hides, no key."""
    pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")
    from proctor.adapters.cli.commands.agents import _echo, _echo_json
    from proctor.adapters.mcp_proxy.messages import short, unread

    for text in (HOSTILE, unread(ValueError(HOSTILE)), short(HOSTILE)):
        _echo(text)
        _echo_json(text)
    shown = capsys.readouterr()

    assert shown.out == ""
    assert SECRET not in shown.err
    assert all(line.isprintable() for line in shown.err.splitlines())
    assert len(short("x" * 1000)) <= 200


RULES = """
name: p
on_violation: deny
tool_rules:
  - {action: request_approval, deny: [{tool: bash, where: [{path: $.command, contains: zz}]}]}
  - deny: [{tool: "*", where: [{path: $.v, contains: a}]}]
  - {action: warn, deny: [{tool: "*", where: [{path: $.w, contains: a}]}]}
"""


@pytest.mark.parametrize("agent", CLIENTS)
def test_what_an_agent_shows_its_person_is_fit_to_be_shown(agent: str, tmp_path: Path) -> None:
    """The question about a call, the reason why it is denied, what a rule notes, and why nothing could be judged."""
    (tmp_path / "policy.yaml").write_text(RULES)
    store = tmp_path / "store.db"
    line = HookLine(name="one", policies=(str(tmp_path / "policy.yaml"),), store=store, store_id=store_id(store))
    judge = HookJudge(line)
    event = next(name for name, kind in CLIENTS[agent].events.items() if kind == "call")
    session, tool, given, call = ("session", "tool", "args", "call") if agent == "opencode" else CALL
    calls = [("Bash", {"command": f"zz {HOSTILE}"}), (HOSTILE, {"v": HOSTILE}), ("x", {"w": HOSTILE})]
    answers = []
    for number, (name, value) in enumerate(calls):
        hook = {
            session: "s",
            "conversation_id": "s",
            "hook_event_name": event,
            "event": event,
            tool: name,
            given: value,
        }
        answers.append(judge.answered(json.dumps({**hook, call: f"c{number}"}).encode(), agent=agent)[0])
    judge.close()
    refused, _, _ = _refused(StoreError(HOSTILE), b"{}").decode().partition("\0")
    shown = [refused, *(text for answer in answers for text in (answer.reason, *answer.notes))]

    assert [answer.verdict for answer in answers[1:]] == ["deny", "allow"]
    assert any("\\u202e" in text for text in shown)
    assert SECRET not in "".join(shown)
    assert [text for text in shown if not text.replace("\n", "").isprintable()] == []


def test_a_log_entry_on_the_terminal_is_fit_to_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever an error or a webhook's answer has in it."""
    record = logging.LogRecord("proctor", logging.WARNING, "", 0, HOSTILE, (), None)
    NoteHandler().handle(record)
    shown = capsys.readouterr().err

    assert SECRET not in shown
    assert shown.rstrip("\n") == escape_control(HOSTILE)
