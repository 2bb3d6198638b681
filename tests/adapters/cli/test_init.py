"""`proctor init` writes a first policy that works, with or without an approver."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.adapters.cli.commands.init import PACKS
from proctor.adapters.hooks.clients.gemini import GEMINI
from proctor.policies import encode_event
from proctor.policies.events import RunStarted, ToolCallStarted
from proctor.policies.events.run_context import portable
from proctor.supervisor.testing.fakes import PATIENCE_S

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini", "amp", "shell", "python"])
def test_the_policy_is_written_and_passes_check(cli: Any, place: Path, agent: str) -> None:
    """For each agent, the next command is named, and no adapter is rejected at its start. For Claude Code, which
    reports everything that it limits, `check` has no warning either.
    """
    wrote = cli("init", "--agent", agent)
    checked = cli("check", "proctor.yaml")

    assert (wrote.code, wrote.out.splitlines()[0]) == (0, "wrote proctor.yaml")
    assert re.fullmatch(r"next: proctor (run|check) .*\bproctor\.yaml\b.*", wrote.out.splitlines()[1])
    assert (checked.code, checked.out.splitlines()[-1]) == (0, "ok")
    assert not (place / ".claude").exists()
    if agent == "claude":
        assert cli("check", "--strict", "--adapter", agent, "proctor.yaml").code == 0
    if agent == "python":
        for adapter in ("claude", "codex", "acp", "amp", "shell", "function", "hook"):
            assert cli("check", "--adapter", adapter, "proctor.yaml").code == 0


@pytest.mark.parametrize(("tool", "given", "rule"), [
    ("bash", {"command": "curl example.com"}, "no-network"),
    ("bash", {"command": "cd x && git push"}, "no-push"),
    ("bash", {"command": "npm publish"}, "ask-before-publishing"),
    ("bash", {"command": "uv publish"}, "ask-before-publishing"),
    ("write", {"path": "../other/a.py"}, "nothing-outside"),
    ("write", {"path": "src/a.py"}, None),
    ("write", {"path": "/w/src/a.py"}, None),
    ("write", {"path": "/w/proctor.yaml"}, "not-its-own-rules"),
    ("edit", {"path": "proctor.yaml"}, "not-its-own-rules"),
    ("edit", {"path": "src/../.claude/settings.json"}, "not-its-own-rules"),
    ("write", {"path": ".codex/config.toml"}, "not-its-own-rules"),
    ("write", {"path": "/w/src/.Gemini/settings.json"}, "not-its-own-rules"),
    ("write", {"path": "gemini/codex.py"}, None),
    ("move", {"path": "a.yaml", "to": "./proctor.yaml"}, "not-its-own-rules"),
    ("move", {"path": "a.json", "to": ".mcp.json"}, "not-its-own-rules"),
    ("bash", {"command": "make test"}, None),
])  # fmt: skip
def test_the_policy_enforces_what_its_comments_say(
    cli: Any, place: Path, tool: str, given: dict[str, str], rule: str | None
) -> None:
    """By the rule with that comment. Normal work is allowed."""
    cli("init", "--yes")
    call = {"type": "tool_call", "id": "c", "name": tool, "input": given}
    place.joinpath("t.jsonl").write_text(json.dumps({"id": "s", "events": [call]}) + "\n")
    evaluated = cli("eval", "--policy", "proctor.yaml", "--context", "workspace=/w", "t.jsonl")

    assert re.findall(r"^[A-Z]+ ([\w-]+) \(", evaluated.out, re.M) == ([rule] if rule else [])


def test_an_existing_file_is_kept(cli: Any, place: Path) -> None:
    """Unless `--force` is given. A dangling link counts as a file."""
    place.joinpath("proctor.yaml").write_text("name: mine\n")
    kept = cli("init", "--yes")

    assert (kept.code, kept.err) == (2, "error: `proctor.yaml` exists; `--force` overwrites it\n")
    assert (place / "proctor.yaml").read_text() == "name: mine\n"
    assert cli("init", "--yes", "--force").code == 0
    assert "first-policy" in (place / "proctor.yaml").read_text()

    (place / "proctor.yaml").unlink()
    (place / "proctor.yaml").symlink_to("elsewhere.yaml")

    assert cli("init", "--yes").code == 2
    assert not (place / "elsewhere.yaml").exists()


def test_a_file_created_during_the_questions_is_kept(cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process wrote it before the questions were answered."""

    def answered(asks: bool, default: bool) -> str:
        (place / "proctor.yaml").write_text("mine")
        return "shell"

    monkeypatch.setattr("proctor.adapters.cli.commands.init._agent", answered)
    wrote = cli("init")

    assert (wrote.code, (place / "proctor.yaml").read_text()) == (2, "mine")
    assert "`--force` overwrites it" in wrote.err


@pytest.mark.parametrize("before", ["", "name: mine\n"])
def test_a_policy_is_written_whole_or_not_at_all(place: Path, before: str) -> None:
    """With a file size limit of zero, as on a full disk, an existing file is unchanged."""
    policy = place / "proctor.yaml"
    if before:
        policy.write_text(before)
    code = "import resource as r, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    code += "r.setrlimit(r.RLIMIT_FSIZE, (0, 0)); from proctor.adapters.cli import main; main()"
    words = [sys.executable, "-B", "-c", code, "init", "--yes", "--force"]
    wrote = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=PATIENCE_S)

    assert (wrote.returncode, wrote.stderr) == (3, "error: the output cannot be written: file too large\n")
    assert [file.read_text() for file in place.glob("*proctor.yaml*")] == ([before] if before else [])


def test_hooks_are_installed_as_hook_install_installs_them(cli: Any, place: Path) -> None:
    """So a later `hook install` changes nothing."""
    wrote = cli("init", "--agent", "claude", "--hook", "--json")
    path = place / ".claude" / "settings.local.json"

    written = {"path": "proctor.yaml", "agent": "claude", "hook": str(path), "notes": []}
    assert wrote.lines == [{**written, "next": "claude"}]
    assert cli("hook", "install", "--policy", "proctor.yaml", "--json").lines[0]["changed"] is False


@pytest.mark.parametrize(
    ("agent", "uncounted"), [("gemini", True), ("cursor", True), ("copilot", True), ("opencode", False)]
)
def test_hooks_of_every_agent_are_installed_with_the_limits_that_do_not_work(
    cli: Any, place: Path, agent: str, uncounted: bool
) -> None:
    """Also for agents without an adapter. Without hooks, the next command installs them."""
    wrote = cli("init", "--agent", agent, "--hook", "--json").lines[0]
    notes = [note for note in wrote["notes"] if "`max_total_tokens: " in note and "is not enforced" in note]

    assert (len(notes), Path(wrote["hook"]).exists()) == (uncounted, True)
    assert wrote["next"] == agent
    if agent in ("cursor", "copilot"):
        (later,) = cli("init", "--agent", agent, "--force", "--json").lines
        assert later["next"] == f"proctor hook install --agent {agent} --policy proctor.yaml"


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_comes_with_tests_and_proofs_that_pass(cli: Any, pack: str) -> None:
    """No tool or command in it is misspelt, and `check` has no warning, so it passes `check --strict`."""
    wrote = cli("init", "--pack", pack)
    tested = cli("test", f"{pack}.test.yaml")
    checked = cli("check", "--strict", f"{pack}.yaml")

    assert (wrote.code, wrote.out.splitlines()[:2]) == (0, [f"wrote {pack}.yaml", f"wrote {pack}.test.yaml"])
    assert (tested.code, checked.code) == (0, 0), tested.out + checked.out
    assert cli("init", "--pack", pack).code == 2


def test_permissions_of_an_agent_become_a_policy_and_recorded_calls_show_the_differences(
    cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Omitted permissions are listed, and the policy passes `check`."""
    monkeypatch.setenv("HOME", str(place))
    (place / ".claude").mkdir()
    rules = {"allow": ["Bash(git log:*)", "Bash(ls *x*)"], "deny": ["Bash(git push:*)", "Skill(a)"]}
    (place / ".claude" / "settings.json").write_text(json.dumps({"permissions": rules}))
    lines = ["git log", "sh -c 'git push'", "git push", "ls ax", "make"]
    calls = [
        {"type": "tool_call", "id": f"c{n}", "name": "Bash", "input": {"command": c}} for n, c in enumerate(lines)
    ]
    place.joinpath("t.jsonl").write_text(json.dumps({"id": "s", "events": calls}) + "\n")
    found = cli("init", "--from", "claude", "--sessions", "t.jsonl", "--json").lines[0]

    assert (found["path"], found["not_said"]) == ("from-claude.yaml", [])
    assert found["differences"] == [
        {"settings": "ask", "policy": "deny", "tool": "bash", "value": "sh -c 'git push'"}
    ]
    assert cli("check", "from-claude.yaml").code == 0
    assert cli("init", "--from", "claude", "--pack", "careful-git").code == 2
    assert found["agent"] == "claude"
    assert found["next"] == "proctor hook install --agent claude --policy from-claude.yaml"
    assert cli("init", "--from", "codex").err.startswith("error: there are no settings of codex")


def test_calls_of_hooked_sessions_are_compared_by_their_own_tools(
    cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the client's names for them, which its log lists."""
    monkeypatch.setenv("HOME", str(place))
    (place / ".gemini").mkdir()
    (place / ".gemini" / "settings.json").write_text('{"tools": {"allowed": ["run_shell_command(git)"]}}')
    tools = {"portable_tools": portable(GEMINI.tools)}
    call = ToolCallStarted(tool_call_id="c", tool_name="run_shell_command", tool_input={"command": "git log"})
    began = RunStarted(provider="gemini", metadata=tools)
    events = [replace(event, run_id="r", session_id="s", seq=n) for n, event in enumerate((began, call), 1)]
    place.joinpath("t.jsonl").write_bytes(b"\n".join(map(encode_event, events)))

    assert cli("init", "--from", "gemini", "--sessions", "t.jsonl", "--json").lines[0]["differences"] == []


def test_the_package_runs_as_a_program() -> None:
    """`python -m proctor` starts it."""
    ran = subprocess.run(
        [sys.executable, ROOT / ".package" / "proctor" / "__main__.py", "--version"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    assert re.fullmatch(r"proctor \d+\.\d+\.\d+\S*\n", ran.stdout)
