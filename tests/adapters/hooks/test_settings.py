"""The client's settings file, into which hooks are installed and from which they are removed, and the plugin of this
repository.
"""

import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import Answer, called
from claude_bench import real_client
from click.testing import CliRunner
from hook_processes import end_daemons

from proctor.adapters.cli.app import COMMANDS, app
from proctor.adapters.hooks.clients.claude import EVENTS
from proctor.adapters.hooks.settings import install, settings_with_hooks
from proctor.supervisor import UsageError
from proctor.supervisor.testing.fakes import PATIENCE_S


def wanted(folder: Path) -> dict[str, Any]:
    """Proctor's hooks for one policy."""
    return settings_with_hooks([folder / "policy.yaml"], folder / "store.db")


def test_another_policy_replaces_the_first(tmp_path: Path) -> None:
    """A second installation does not leave two policies in force."""
    path = tmp_path / ".claude" / "settings.json"
    install(path, wanted(tmp_path))
    install(path, settings_with_hooks([tmp_path / "other.yaml"], tmp_path / "store.db"))
    text = path.read_text()

    assert "other.yaml" in text
    assert "policy.yaml" not in text
    assert path.stat().st_mode & 0o077 == 0


Hook = Callable[..., Answer]
COMMENT = r"settings\.json:1:\d+: a comment, which would be lost; remove it first"


@pytest.mark.parametrize(("text", "why"), [
    *((text, r"settings\.json") for text in ("{nope", "[]", '{"hooks": []}', '{"hooks": {"Stop": 7}}')),
    (f'{{"a": {"9" * 5_000}}}', "a number has too many digits"),
    ('{"a":' * 100_000, "nested too deeply"),
    ('{"a": "\udce9"}', "the text is not UTF-8"),
    *((text, COMMENT) for text in ("{ // mine\n}", '{"a": 1, /* mine */ "b": 2}')),
])  # fmt: skip
def test_an_invalid_settings_file_is_left_alone(tmp_path: Path, text: str, why: str) -> None:
    """The user is told which file to repair, and where a comment is that would be lost."""
    path = tmp_path / "settings.json"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(UsageError, match=why):
        install(path, wanted(tmp_path))
    with pytest.raises(UsageError) as raised:
        install(path / "below", wanted(tmp_path))

    assert path.read_text(errors="surrogateescape") == text
    assert str(raised.value) == f"`{path}/below` cannot be read: not a directory"


def test_a_lone_surrogate_stays_in_a_settings_file(tmp_path: Path) -> None:
    """JavaScript programs write one if they cut a text. An editor's byte order mark is ignored."""
    path = tmp_path / "settings.json"
    path.write_text('\ufeff{"a": "cut \\ud83d, \\u00e9"}')
    install(path, wanted(tmp_path))

    assert '"a": "cut \\ud83d, \u00e9"' in path.read_text()


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hook:
    """`proctor hook`, called in a folder with a policy."""
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text("{name: p, limits: {max_tool_calls: 3}}")
    return lambda *arguments: called(capsys, "hook", *arguments)


def test_install_checks_the_policy_and_reports_what_it_did(hook: Hook) -> None:
    """It writes the project's own settings."""
    Path("policy.yaml").write_text("{name: acme, limits: {max_cost_usd: 5, max_tool_calls: 9}}")
    options = ("--policy", "policy.yaml", "--store", "store.db")
    first = hook("install", *options, "--context", "tenant=acme")
    again = hook("install", *options, "--context", "tenant=acme")
    shown = hook("settings", *options, "--context", "tenant=acme")
    settings = json.loads(Path(".claude/settings.local.json").read_text())
    out = hook("uninstall")

    assert [one.code for one in (first, again, shown, out)] == [0, 0, 0, 0]
    assert "wrote the hooks" in first.out
    assert "already" in again.out
    assert json.loads(shown.out) == settings
    assert list(Path(".claude").iterdir()) == []


def test_a_misspelt_tool_is_reported(hook: Hook) -> None:
    """A deny of it would match nothing. Another agent's tool is fine."""
    Path("policy.yaml").write_text("{name: p, tool_rules: [{deny: [bahs, read_many_files]}]}")
    options = ("--policy", "policy.yaml", "--store", "store.db")
    installed = hook("install", *options).out.splitlines()
    settings = hook("settings", *options)

    assert installed[1:] == ["p/deny-1: no tool is called `bahs`; did you mean `bash`?"]
    assert settings.err.splitlines() == installed[1:]
    assert json.loads(settings.out) == json.loads(Path(".claude/settings.local.json").read_text())


@pytest.mark.parametrize(("agent", "doubts"), [
    ("claude", []),
    ("cursor", ["p/before-1 does nothing about `mcp__*` in Cursor: rules on `mcp__server__tool` don't apply: Cursor "
        "doesn't name the server, so deny `MCP:tool`"]),
    ("codex", ["p/deny-1 does nothing about `web_search` in Codex: searches of the web (`web_search`) use no hook, "
        "unless they are off"]),
])  # fmt: skip
def test_a_tool_without_hooks_is_reported(agent: str, doubts: list[str], hook: Hook) -> None:
    """A rule about it has no effect, since no hook is called."""
    before = "{type: before, first: bash, then: mcp__github__push}"
    Path("policy.yaml").write_text(
        f"{{name: p, aliases: {{net: [web_search, fetch]}}, tool_rules: [{{deny: [net]}}], rules: [{before}]}}"
    )
    answer = hook("settings", "--policy", "policy.yaml", "--store", "store.db", "--agent", agent)

    assert answer.err.splitlines() == doubts


def test_install_rejects_an_unusable_policy(hook: Hook) -> None:
    """An invalid one, one that allows nothing, standard input: nothing is written."""
    Path("bad.yaml").write_text("{nmae: p}")
    Path("shut.yaml").write_text("{name: p, limits: {max_turns: 0}}")
    files = "bad.yaml", "shut.yaml", "-"

    assert [hook("install", "--policy", file, "--store", "s.db").code for file in files] == [2, 1, 2]
    assert not Path(".claude").exists()


@pytest.mark.parametrize(("agent", "title", "printed", "old", "lowest"), [
    ("claude", "Claude Code", "$VERSION '(Claude Code)'", "2.1.99", "2.1.295"),
    ("copilot", "Copilot CLI", "GitHub Copilot CLI $VERSION.", "1.0.9", "1.0.70"),
])  # fmt: skip
def test_an_agent_that_is_too_old_gets_no_hooks(
    agent: str, title: str, printed: str, old: str, lowest: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: Hook,
) -> None:  # fmt: skip
    """It would silently run calls without them. `status` reports a later downgrade, and an agent that is gone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (program := tmp_path / agent).write_text(f"#!/bin/sh\necho {printed}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = {}
    for version, command in ((old, "install"), (lowest, "install"), (old, "status")):
        monkeypatch.setenv("VERSION", version)
        by = ("--policy", "policy.yaml", "--store", "s.db") if command == "install" else ()
        found[version, command] = hook(command, "--agent", agent, *by)
    program.unlink()
    gone = hook("status", "--agent", agent)
    end_daemons(tmp_path / "s.db")

    assert [answer.code for answer in found.values()] == [2, 0, 1]
    assert f"`{agent}` is not on PATH here, so proctor cannot check its version" in gone.out
    assert "is not on PATH" not in found[old, "status"].out
    why = f"{title} {old} can run calls without a decision; update it to {lowest}"
    assert why in found[old, "install"].err
    assert why in found[old, "status"].out
    assert "decided by policy `p`" in found[old, "status"].out


def test_settings_that_find_no_space_are_a_failure_of_the_machine(tmp_path: Path) -> None:
    """As on a full disk: the size of files is limited. The settings are as they were."""
    (settings := tmp_path / ".claude" / "settings.local.json").parent.mkdir()
    settings.write_text(before := json.dumps({"model": "x" * (1 << 20)}))
    (tmp_path / "policy.yaml").write_text("{name: p}")
    code = "import resource as r, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    code += "r.setrlimit(r.RLIMIT_FSIZE, (1 << 19, 1 << 19)); from proctor.adapters.cli import main; main()"
    words = [sys.executable, "-B", "-c", code, "hook", "install", "--policy", "policy.yaml", "--store", "s.db"]
    wrote = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)

    assert wrote.returncode == 3
    assert wrote.stderr.endswith("cannot be written: file too large\n")
    assert settings.read_text() == before


@pytest.mark.parametrize(("begins", "found"), [
    ("echo Welcome", "prints text as it starts, so the agent does not find the hook's answer"),
    ('case "$2" in *"||"*) echo "no || here" >&2; exit 1; esac', "the hook fails: no || here"),
], ids=["prints", "reads otherwise"])  # fmt: skip
def test_status_starts_a_hook_of_codex_in_the_users_own_shell(
    begins: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: Hook
) -> None:
    """As Codex does: it does not find an answer behind other text, and ignores a line that the shell rejects."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (shell := tmp_path / "shell").write_text(f'#!/bin/sh\n{begins}\nexec /bin/sh "$@"\n')
    shell.chmod(0o755)
    own = list(pwd.getpwuid(os.getuid()))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd([*own[:6], str(shell)]))
    hook("install", "--agent", "codex", "--policy", "policy.yaml", "--store", "s.db")
    shown = hook("status", "--agent", "codex")
    end_daemons(tmp_path / "s.db")

    assert shown.code == 1
    assert found in shown.out


@pytest.mark.parametrize("scopes", [("--project", "--user"), ("--user", "--managed")])
@pytest.mark.parametrize("command", [("install", "--policy", "policy.yaml"), ("uninstall",)])
def test_one_file_is_changed_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: Hook, command: tuple[str, ...], scopes: tuple[str, ...]
) -> None:
    """If two are named, neither is: one of them might be taken as the last for both."""
    monkeypatch.setenv("HOME", str(tmp_path))
    answer = hook(*command, *scopes)

    assert answer.code == 2
    assert f"`{scopes[0]}` and `{scopes[1]}` are given; give one of them" in answer.err
    assert not (tmp_path / ".claude").exists()


@pytest.mark.parametrize("by_variable", [False, True])
@pytest.mark.parametrize("command", ["install", "settings"])
def test_no_database_url_is_written_into_settings(
    monkeypatch: pytest.MonkeyPatch, hook: Hook, command: str, by_variable: bool
) -> None:
    """A repository would have its password. A local file is used instead, whatever the variable says."""
    url = "postgresql://ana:s3cret@127.0.0.1:1/x"
    if by_variable:
        monkeypatch.setenv("PROCTOR_STORE", url)
    rejected = hook(command, "--policy", "policy.yaml", *(() if by_variable else ("--store", url)))
    written = Path(".claude").exists()
    beside = hook(command, "--policy", "policy.yaml", "--store", "runs.db")

    assert (rejected.code, written) == (2, False)
    assert "hooks need a SQLite file" in rejected.err
    assert "s3cret" not in rejected.out + rejected.err
    assert (beside.code, "postgres" in beside.out) == (0, False)


def test_the_settings_can_be_written_to_a_file(hook: Hook) -> None:
    """With the printed content, for a program that installs managed settings."""
    words = ("settings", "--managed", "--policy", "policy.yaml", "--store", "runs.db", "-o", "managed.json")

    assert hook(*words).code == 0
    written = json.loads(Path("managed.json").read_text())
    assert set(written["hooks"]) == set(EVENTS)
    assert written["allowManagedHooksOnly"] is True


@pytest.mark.parametrize("agent", ["claude", "gemini", "cursor"])
def test_managed_settings_without_a_store_contain_no_users_data(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: Hook
) -> None:
    """They neither create a store for the user who prints them nor contain a token."""
    monkeypatch.setenv("HOME", str(tmp_path / "admin"))
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    (tmp_path / "policy.yaml").write_text("{name: p, on_violation: deny}")
    words = ["settings", "--managed", "--agent", agent, "--policy", f"{tmp_path}/policy.yaml"]
    named = hook(*words)
    assert (named.code, "~/.local/state/proctor/runs.db" in named.out, "admin" in named.out) == (0, True, False)
    assert not (tmp_path / "admin").exists()

    rejected = hook(*words, "--http")
    assert (rejected.code, "--http" in rejected.err) == (2, True)


ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / ".claude-plugin" / "plugin"
SKILL = PLUGIN / "skills" / "write-policy" / "SKILL.md"


def test_the_plugins_commands_exist_with_their_options() -> None:
    """On every page of it."""
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
    ran = [CliRunner().invoke(app, command.split()) for command in commands]

    assert [one.exit_code for one in ran] == [0, 0], ran[0].output + ran[1].output
    assert {"name", "description"} <= yaml.safe_load(SKILL.read_text().split("---")[1]).keys()


@pytest.mark.claude
def test_the_client_installs_the_plugin_and_offers_its_commands(claude: Any) -> None:
    """The session starts with the output of the plugin's hook, and `/proctor-why` asks the model to look."""

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
