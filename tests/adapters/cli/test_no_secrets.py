"""What the command line writes of a run with secrets in it: none of the secrets, on no stream, in no file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.redaction.test_redaction_surfaces import ALL, secrets_in


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
def test_a_run_shows_no_secret(cli: Any, place: Path) -> None:
    """As people and programs see it, and in no file; tests/attacks has the commands that read the store."""
    run = ("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml")
    shown = [cli(*run, f"use {ALL}"), cli(*run, "--json", f"use {ALL}")]

    assert shown[1].lines, shown[1].err
    assert [secrets_in(answer.out + answer.err) for answer in shown] == [[]] * len(shown)
    assert "[redacted:aws-key:" in shown[0].out
    assert secrets_in(b"".join(file.read_bytes() for file in place.rglob("*.db*"))) == []


def test_a_setting_that_cannot_be_read_is_reported(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad usage, with the variable's name; nothing runs unredacted for it."""
    monkeypatch.setenv("PROCTOR_REDACTION", "/nowhere.yaml")
    answer = cli("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml", "go")
    assert answer.code == 2
    assert "PROCTOR_REDACTION" in answer.err
