"""Tasks that a newcomer must be able to finish with the pages alone, done with the real client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import page_blocks
import pytest
from page_blocks import ROOT

from tests.forked_programs import warm_proctor


@pytest.fixture
def proctor(claude: Any, tmp_path: Path) -> Callable[..., str]:
    """Runs a command of the pages in the folder of the real client; returns its output."""
    env = {**os.environ, **claude.env, "XDG_STATE_HOME": str(tmp_path / "state")}
    env.pop("PROCTOR_STORE", None)

    def typed(*words: str) -> str:
        ended = subprocess.run(
            [warm_proctor(), *words], cwd=claude.cwd, env=env, capture_output=True, text=True, timeout=120
        )
        assert "Traceback" not in ended.stderr
        return ended.stdout + ended.stderr

    return typed


@pytest.fixture
def acts(claude: Any) -> Callable[[], Path]:
    """The real client reads and writes inside and outside its folder; returns the file outside."""
    folder: Path = claude.cwd
    inside, outside = folder / "cart.py", folder.parent / "outside.txt"
    inside.write_text("total = 1\n")
    outside.write_text("mine\n")
    page = next(b for b in page_blocks.blocks(ROOT / "docs/policies/cookbook.md") if b.file == "only-here.yaml")
    claude.cwd.joinpath("only-here.yaml").write_text(page.text)

    def scripted() -> Path:
        api = claude.api
        api.say(
            api.reply(api.tool("Read", file_path=str(inside))),
            api.reply(api.tool("Edit", file_path=str(inside), old_string="1", new_string="2")),
            api.reply(api.tool("Read", file_path=str(outside))),
            api.reply(api.tool("Write", file_path=str(claude.cwd / ".." / "new.txt"), content="x")),
            api.reply(api.bash(f"cat {outside}")),
            api.reply(api.bash("git status")),
            api.reply(api.text("done")),
        )
        return outside

    return scripted


@pytest.mark.claude
@pytest.mark.parametrize("way", ["run", "hook"])
def test_claude_code_is_confined_to_this_folder(claude: Any, proctor: Any, acts: Any, way: str) -> None:
    """With the cookbook's file and the commands of the agent's page, supervised or interactive; `explain` has each
    decision from the real client's session.
    """
    outside = acts()
    assert "ok" in proctor("check", "only-here.yaml", "--adapter", "claude")

    if way == "run":
        proctor("run", "--adapter", "claude", "--policy", "only-here.yaml", "--set", "model=claude-sonnet-4-5", "go")
    else:
        proctor("hook", "install", "--policy", "only-here.yaml")
        claude.env["XDG_STATE_HOME"] = str(claude.cwd.parent / "state")
        claude.run("--permission-mode", "acceptEdits", "--allowedTools", "Read,Edit,Bash(git status)")

    assert claude.cwd.joinpath("cart.py").read_text() == "total = 2\n"
    assert sorted(path.name for path in outside.parent.glob("*.txt")) == ["outside.txt"]
    lines = proctor("explain", "last").splitlines()
    decided = [line.partition(" ")[2].split() for line in lines if line.startswith("event ") and "): " in line]
    assert [(tool, decision) for _, tool, _, decision in decided] == [
        ("Read", "allow"),
        ("Edit", "allow"),
        ("Read", "deny"),
        ("Write", "deny"),
        ("Bash", "deny"),
        ("Bash", "allow"),
    ]
    assert lines[-1].partition("  ")[2] == "completed done"
    denied = [json.loads(line) for line in proctor("explain", "last", "--refused", "--json").splitlines()]
    assert [line["decision"]["tool_name"] for line in denied] == ["Read", "Write", "Bash"]
    proctor("hook", "uninstall")
