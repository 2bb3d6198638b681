"""The output of a run with secrets: none appears on a stream or in a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.redaction.test_redaction_surfaces import ALL, secrets_in


@pytest.fixture
def leaking(place: Path) -> None:
    """An agent whose messages, inputs and outputs have secrets."""
    steps = [
        {"say": ALL},
        {"call": "bash", "input": {"command": f"cat <<'END'\n{ALL}\nEND"}},
        {"call": "delete", "input": {"path": ALL}},
    ]
    script = {"name": "agent", "tools": ["bash", "delete"], "steps": steps}
    place.joinpath("agent.yaml").write_text(json.dumps(script))


@pytest.mark.usefixtures("leaking")
def test_a_run_shows_no_secret(cli: Any, place: Path) -> None:
    """To people and programs, and in every file. tests/attacks tests the commands that read the store."""
    run = ("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml")
    shown = [cli(*run, f"use {ALL}"), cli(*run, "--json", f"use {ALL}")]

    assert shown[1].lines, shown[1].err
    assert [secrets_in(answer.out + answer.err) for answer in shown] == [[]] * len(shown)
    assert "[redacted:aws-key:" in shown[0].out
    assert secrets_in(b"".join(file.read_bytes() for file in place.rglob("*.db*"))) == []


def test_an_invalid_setting_is_reported(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As bad usage, with the variable's name. Nothing runs without redaction because of it."""
    monkeypatch.setenv("PROCTOR_REDACTION", "/nowhere.yaml")
    answer = cli("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml", "go")
    assert answer.code == 2
    assert "PROCTOR_REDACTION" in answer.err
