"""The plugin of this repository, from its marketplace, in the real Claude Code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from claude_bench import real_client

from proctor.adapters.cli.app import COMMANDS
from proctor.supervisor.testing.fakes import PATIENCE_S

ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / ".claude-plugin" / "plugin"
SKILL = PLUGIN / "skills" / "write-policy" / "SKILL.md"


def test_what_the_plugin_tells_to_run_are_commands_with_these_options() -> None:
    """No page of it names a command that is not there."""
    texts = [path.read_text() for path in PLUGIN.rglob("*") if path.is_file()]
    named = {name for text in texts for name in re.findall(r"(?:`|then )proctor ([a-z]+)", text)}

    assert {"hook", "init", "check", "test"} <= named <= {*COMMANDS}


def test_the_skills_own_policy_passes_its_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a person would copy them."""
    blocks = re.findall(r"```yaml\n(.*?)```", SKILL.read_text(), re.S)
    policy, tests = (re.sub(r"^   ", "", block, flags=re.M) for block in blocks)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(policy)
    (tmp_path / "mine.test.yaml").write_text(tests)
    commands = "check mine.yaml --adapter claude", "test mine.test.yaml"
    called = ([sys.executable, "-m", "proctor", *command.split()] for command in commands)
    ran = [subprocess.run(command, capture_output=True, text=True, check=False) for command in called]

    assert [one.returncode for one in ran] == [0, 0], ran[0].stdout + ran[1].stdout
    assert {"name", "description"} <= yaml.safe_load(SKILL.read_text().split("---")[1]).keys()


@pytest.mark.claude
def test_the_client_installs_it_from_this_folder_and_offers_its_commands(claude: Any) -> None:
    """The session begins with what the plugin's hook says, and `/proctor-why` asks the model to look."""

    def run(*arguments: str) -> str:
        ended = subprocess.run(
            [real_client(), *arguments], cwd=claude.cwd, env=claude.env, capture_output=True, text=True,
            timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    run("plugin", "marketplace", "add", str(ROOT))
    run("plugin", "install", "proctor@proctor")
    claude.api.say(claude.api.reply(claude.api.text("done")))
    run("-p", "/proctor:proctor-why", "--model", "claude-sonnet-4-5")

    request = json.dumps(claude.api.requests[-1])
    assert "proctor hook --explain-last" in request
    assert "proctor is not installed" in request or "no policy holds this session" in request
    assert "write-policy" in request
