"""What the command line writes of runs with secrets in them: none of the secrets, on no stream, in no command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.redaction.secrets import HEARTS, SECRETS

Cli = Any
ALL = " and ".join(SECRETS.values())


def secrets_in(*texts: str) -> list[str]:
    """Which of the planted ones are there."""
    return [name for name, heart in HEARTS.items() if any(heart in text for text in texts)]


@pytest.fixture
def leaking(place: Path) -> None:
    """An agent that says, asks for and returns secrets."""
    steps = [
        {"say": ALL},
        {"call": "bash", "input": {"command": f"cat <<'END'\n{ALL}\nEND"}},
        {"call": "delete", "input": {"path": ALL}},
    ]
    script = {"name": "agent", "tools": ["bash", "delete"], "steps": steps}
    place.joinpath("agent.yaml").write_text(json.dumps(script))


@pytest.mark.usefixtures("leaking")
def test_no_command_shows_a_secret(cli: Cli, place: Path) -> None:
    """A run as people and programs see it, then every command that reads the store."""
    run = ("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml")
    shown = [cli(*run, f"use {ALL}"), cli(*run, "--json", f"use {ALL}")]
    assert shown[1].lines, shown[1].err
    run_id = shown[1].lines[-1]["run_id"]
    for command in ("runs", "tail", "approvals", f"show {run_id}", f"explain {run_id}"):
        shown += [cli(*command.split()), cli(*command.split(), "--json")]
    assert [secrets_in(answer.out, answer.err) for answer in shown] == [[]] * len(shown)
    assert "[redacted:aws-key:" in shown[-4].out
    assert secrets_in(*(file.read_bytes().decode("utf-8", "replace") for file in place.rglob("*.db*"))) == []


def test_judging_recorded_sessions_shows_none(cli: Cli, place: Path) -> None:
    """The trace around an offending call, and every value a violation tells of."""
    call = {"type": "tool_call", "id": "c", "name": "delete", "arguments": {"path": ALL}}
    session = {"id": "s", "events": [{"type": "message", "role": "user", "content": ALL}, call]}
    place.joinpath("t.jsonl").write_text(json.dumps(session) + "\n")
    for more in ((), ("--json",)):
        answer = cli("eval", "--policy", "org.yaml", "--format", "sessions", *more, "t.jsonl")
        assert secrets_in(answer.out, answer.err) == []
        assert "delete" in answer.out


def test_a_setting_that_cannot_be_read_is_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad usage, with the variable's name; nothing runs unredacted for it."""
    monkeypatch.setenv("PROCTOR_REDACTION", "/nowhere.yaml")
    answer = cli("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml", "go")
    assert answer.code == 2
    assert "PROCTOR_REDACTION" in answer.err
