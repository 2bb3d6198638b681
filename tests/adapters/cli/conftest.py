"""Fixtures for the command line, called in this process, with a store of its own."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from answering import token_of
from calling import Answer, called

ORG = """\
name: org
locked: true
limits: {max_total_tokens: 1000}
tool_rules:
  - {deny: [delete], action: deny, tell_model: Nothing is deleted here.}
"""
TEAM = """\
name: team
approval: {timeout_s: 30}
nets: [require human-approval before deploy]
"""
SCRIPT = """\
name: agent
tools: [bash, read, write, delete, deploy]
steps:
  - say: I begin.
  - usage: {input_tokens: 100, output_tokens: 10}
  - call: bash
    input: {command: echo hello}
  - call: delete
    input: {path: old}
    if_denied:
      - say: Then not.
"""


Cli = Callable[..., Answer]


class _StandardInput(io.TextIOWrapper):
    def isatty(self) -> bool:
        return False


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: Path) -> Cli:
    """Call `proctor` with arguments; `stdin` is its standard input."""

    def call(*arguments: object, stdin: str | bytes = b"") -> Answer:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", _StandardInput(io.BytesIO(data), encoding="utf-8"))
        for name, value in token_of([str(argument) for argument in arguments]).items():
            monkeypatch.setenv(name, value)
        return called(capsys, *arguments)

    return call


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory with policies, a script, and its own state directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    for name, text in (("org.yaml", ORG), ("team.yaml", TEAM), ("agent.yaml", SCRIPT)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def ran(cli: Cli) -> Answer:
    """A run of the script under `org.yaml`, as JSON."""
    return cli(
        "run", "--json", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml", "Tidy up"
    )
