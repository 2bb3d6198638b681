"""ACP agents from the command line: run, probed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proctor.adapters.agents.acp.probe import BY_COMMAND, BY_EDIT
from proctor.adapters.cli.app import app

AGENT = [sys.executable, str(Path(__file__).with_name("scripted_agent.py"))]
POLICY = "{name: p, tool_rules: [{deny: [edit], action: deny}]}"
CALLS: dict[str, list[list[Any]]] = {
    "opencode": [
        ["bash", {"command": f"touch {BY_COMMAND}", "description": "x"}],
        ["write", {"filePath": BY_EDIT, "content": "probe"}],
        ["read", {"filePath": BY_EDIT}],
    ],
    "gemini": [
        ["run_shell_command", {"command": f"touch {BY_COMMAND}", "description": "x"}],
        ["write_file", {"file_path": BY_EDIT, "content": "probe"}],
        ["read_file", {"file_path": BY_EDIT}],
    ],
}
"""What a model does that is told to make two files and to read one."""


def test_an_agent_is_run_by_its_command(tmp_path: Path, touch: Any) -> None:
    """What it asks about is held to the policy."""
    work, policy = tmp_path / "work", tmp_path / "p.yaml"
    work.mkdir()
    policy.write_text(POLICY)
    script = json.dumps({"prompts": [[touch("a"), touch("b", kind="edit"), {"say": "end"}]]})
    options = ["--policy", str(policy), "--cwd", str(work), "--store", str(tmp_path / "runs.db"), "--json"]
    result = CliRunner().invoke(app, ["run", "--adapter", "acp", *options, "go", "--", *AGENT, script])

    assert result.exit_code == 0, result.output
    assert [path.name for path in work.iterdir()] == ["a"]
    assert '"tool_call_denied"' in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--adapter", "acp", "go"],
            "the adapter `acp` needs one command that starts its agent: `... -- opencode acp`",
        ),
        (["--adapter", "acp", "--set", 'command=["a"]', "go", "--", "a"], "needs one command that starts its agent"),
        (["--adapter", "shell", "make", "test"], "`test` is unexpected: the adapter `shell` takes no command"),
    ],
)
def test_a_command_that_is_missing_or_not_due_is_named(arguments: list[str], message: str) -> None:
    """Before anything is started."""
    result = CliRunner().invoke(app, ["run", "--policy", "p.yaml", *arguments])

    assert (result.exit_code, message in " ".join(result.output.split())) == (2, True), result.output


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_probe_of_a_real_agent_says_what_it_asked_about(
    bench: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Commands and writing, not reading; its refusals hold."""
    command, env = bench.command(name), bench.environment(name)
    for variable in set(os.environ) - {"PYTEST_CURRENT_TEST"}:
        monkeypatch.delenv(variable)
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    bench.otherwise(*({"calls": [call]} for call in CALLS[name]))
    result = CliRunner().invoke(app, ["adapters", "probe", "acp", "--json", "--", *command])

    probed = json.loads(result.stdout)
    assert (probed["gate"], probed["asked"], probed["unasked"]) == ("some", ["execute", "edit"], ["read"])
    assert (probed["refusal_held"], probed["early"]) == (True, [])
    assert probed["went_on_after_refusal"] is (name == "gemini")
