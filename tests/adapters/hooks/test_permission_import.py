"""Agents' permissions as policies: nothing is allowed that the settings do not allow, and omitted entries
are listed.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.adapters.hooks.clients import CLIENTS
from proctor.adapters.hooks.permission_import import AGENTS, Permissions, policy_text
from proctor.policies import RunContext, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.policies.events.run_context import Tool, tool
from proctor.supervisor.errors import UsageError

TOOLS: list[Tool] = [
    tool("bash", "bash", "command"),
    *(tool(name, name, "path") for name in ("read", "write", "edit")),
    tool("fetch", "fetch", "url"),
]
INPUT = {"bash": "command", "fetch": "url"}
STRICT = {"allow": 0, "ask": 1, "deny": 2}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def read_permissions(agent: str) -> Permissions:
    read = CLIENTS[agent].permissions
    assert read is not None
    return read()


def test_the_agents_whose_permissions_are_read_are_listed() -> None:
    """For the command line, which doesn't import their clients."""
    assert set(AGENTS) == {client.name for client in CLIENTS.values() if client.permissions is not None}


def written(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), errors="surrogateescape")


def answer(text: str, name: str, value: str) -> str:
    """The policy's decision on one call."""
    compiled = compile_policy(merge_policies(parse_policies(text)), tools=TOOLS)
    monitor = compiled.monitor(RunContext(shell="bash", workspace="/w", home="/h"))
    call = ToolCall(id="c", name=name, input={INPUT.get(name, "path"): value} if value else {})
    return {"allow": "allow", "request_approval": "ask"}.get(monitor.propose(call).action, "deny")


@pytest.mark.parametrize(("path", "decision"), [("src/a", "allow"), ("src", "ask"), ("/w/./src/", "ask")])
@pytest.mark.parametrize("agent", ["claude", "opencode"])
def test_a_folder_is_not_one_of_its_files(home: Path, agent: str, path: str, decision: str) -> None:
    """`src` may be written as a file."""
    work = home.parent / "work"
    written(work / ".claude/settings.json", {"permissions": {"allow": ["Edit(src/**)"]}})
    written(work / "opencode.json", {"permission": {"edit": {"*": "ask", "src/*": "allow"}}})

    assert answer(policy_text(read_permissions(agent)), "edit", path) == decision


CLAUDE = {
    "permissions": {"allow": ["Bash(git status:*)", "Bash(npm run test)", "Bash(git * main)", "Edit(src/**)",
        "WebFetch(domain:docs.python.org)", "mcp__github", "Skill(pdf)", "Write(docs/**)"],
        "ask": ["Bash(npm publish:*)"], "deny": ["Bash(git push *)", "Read(./.env)", "Read(secrets/**)",
        "Read(**/*.pem)", "Write(x/**/y)", "Agent(Explore)"], "defaultMode": "default",
        "additionalDirectories": ["../docs"]},
}  # fmt: skip


@pytest.mark.parametrize("url", [
    *("https://evil.example", "http://a.evil.example:8/x", "https://EVIL.example./x", "https:evil.example"),
    *("https:\\\\evil.example\\x", "https://a@evil.example", "https://a\\@evil.example", "https://e%76il.example/x"),
    *("https://ev\til.example", "https://\uff45vil.example", "https://evil\u3002example", " https://evil.example"),
])  # fmt: skip
def test_a_domain_that_an_agent_denies_is_denied_in_every_spelling(home: Path, url: str) -> None:
    """As an agent parses the address. Other domains are not."""
    written(home / ".claude/settings.json", {"permissions": {"deny": ["WebFetch(domain:evil.example)"]}})
    text = policy_text(read_permissions("claude"))

    assert answer(text, "fetch", url) == "deny"
    assert "deny" not in [
        answer(text, "fetch", f"https://{host}") for host in ("good.example/a%20b", "notevil.example")
    ]


CODEX = 'sandbox_mode = "workspace-write"\n[sandbox_workspace_write]\nwritable_roots = ["/data"]\n'
RULES = """
prefix_rule(pattern=["git", ["status", "diff"]], decision="allow", match=["git status"])
prefix_rule(pattern=["git", "push"], decision="forbidden", justification="a person pushes")
prefix_rule(pattern=["npm", "publish"], decision="prompt")
host_executable(name="git", paths=["/usr/bin/git"])
"""
GEMINI = """
[[rule]]
toolName = "run_shell_command"
decision = "deny"
priority = 10
[[rule]]
toolName = "run_shell_command"
commandPrefix = ["git status", "npm test"]
decision = "allow"
priority = 100
[[rule]]
toolName = "write_file"
argsPattern = "x"
decision = "allow"
priority = 100
"""
OPENCODE = """{
  // what is asked about
  "permission": {"*": "ask", "bash": {"*": "ask", "git status": "allow", "npm *": "allow", "npm publish *": "deny"},
                 "edit": {"*": "deny", "src/*": "allow"}, "webfetch": "allow",},
}"""
CURSOR = {"permissions": {"allow": ["Shell(git:status)", "Read(src/**)", "Mcp(github:*)"], "deny": ["Shell(rm)"]}}

CASES: dict[str, tuple[dict[str, Any], dict[tuple[str, str], str], list[str]]] = {
    "claude": ({"work/.claude/settings.json": CLAUDE},
        {("bash", "git status -s"): "allow", ("bash", "cd x && git status"): "ask",
        ("bash", "git status; git push origin"): "deny", ("bash", "sh -c 'git push'"): "deny",
        ("bash", "npm run test"): "allow", ("bash", "npm run test:all"): "ask", ("bash", "git merge main"): "allow",
        ("bash", "git merge $(x) main"): "ask", ("bash", "npm publish"): "ask", ("bash", "cat .env"): "deny",
        ("read", "/w/a.py"): "allow", ("read", "/w/.env"): "deny", ("read", "x/../secrets/k"): "deny",
        ("read", "/etc/passwd"): "ask", ("read", "k.pem"): "deny", ("read", "/w/a/b/k.pem"): "deny",
        ("bash", "cat k.pem"): "deny", ("write", "x/y"): "deny", ("write", "x/a/b/y"): "deny",
        ("write", "docs/a"): "ask", ("edit", "src/a.py"): "allow", ("edit", "src/../a.py"): "ask",
        ("fetch", "https://docs.python.org/3"): "allow", ("fetch", "https://docs.python.org:80@evil.com/"): "ask",
        ("fetch", "https://docs.python.org.evil.com/"): "ask", ("mcp__github__get_issue", ""): "allow",
        ("Agent", ""): "deny", ("Skill", ""): "ask", ("TodoWrite", ""): "allow"},
        ["additionalDirectories", "Skill(pdf)", "Write(docs/**)"]),
    "codex": ({"home/.codex/config.toml": CODEX, "home/.codex/rules/default.rules": RULES},
        {("bash", "git diff"): "allow", ("bash", "git push"): "deny", ("bash", "git status && git push"): "deny",
        ("bash", "npm publish"): "ask", ("bash", "make"): "ask", ("write", "a.py"): "allow",
        ("write", "/data/x"): "allow", ("write", "/etc/x"): "ask"}, ["a policy has no sandbox", "host_executable"]),
    "gemini": ({"home/.gemini/policies/mine.toml": GEMINI,
        "work/.gemini/settings.json": {"tools": {"exclude": ["web_fetch"], "allowed": ["read_file"]}}},
        {("bash", "git status"): "allow", ("bash", "git status && npm test"): "allow", ("bash", "make"): "deny",
        ("fetch", "https://x"): "deny", ("read", "a"): "allow", ("write", "x"): "ask"}, ["argsPattern"]),
    "opencode": ({"work/opencode.json": OPENCODE},
        {("bash", "git status"): "allow", ("bash", "git status -s"): "ask", ("bash", "npm test"): "allow",
        ("bash", "npm publish x"): "deny", ("edit", "src/a"): "allow", ("edit", "b"): "deny",
        ("fetch", "https://x"): "allow", ("read", "a"): "ask"}, ["what no setting names"]),
    "cursor": ({"home/.cursor/cli-config.json": CURSOR,
        "work/.cursor/permissions.json": {"terminalAllowlist": ["ls"]}},
        {("bash", "git status"): "allow", ("bash", "ls | rm x"): "deny", ("bash", "ls -l"): "allow",
        ("bash", "git push"): "ask", ("read", "src/a"): "allow", ("mcp__github__x", ""): "allow"}, []),
}  # fmt: skip


@pytest.mark.parametrize("agent", AGENTS)
def test_settings_become_a_policy_that_decides_as_they_do_or_stricter(home: Path, agent: str) -> None:
    """Entries that can't be expressed are listed."""
    files, calls, unsaid = CASES[agent]
    for name, data in files.items():
        written(home.parent / name, data)
    text = policy_text(found := read_permissions(agent))

    assert {call: answer(text, *call) for call in calls} == calls
    assert all(any(part in line for line in found.unsaid) for part in unsaid)
    assert all(f"# not said: {line}" in text for line in found.unsaid)


WORDS = st.sampled_from(["git", "push", "status", "npm", "run", "-f", "main"])
COMMANDS = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
LINES = st.lists(
    st.tuples(COMMANDS, st.sampled_from(["", " && ", "; ", " | ", "\n", " > x ", " $(", " '"])), max_size=3
)
PATHS = st.sampled_from(["src/a", "src/b/c", "a", ".env", "x/.env", "/w/src/a", "/etc/x", "src/../a", "./a", "src"])
RULES_OF_CLAUDE = st.one_of(
    st.builds("Bash({}{})".format, COMMANDS, st.sampled_from(["", ":*", " *", "*", " * main"])),
    st.builds(
        "{}({})".format, st.sampled_from(["Read", "Edit"]), st.sampled_from(["src/**", ".env", "./**", "a", "*"])
    ),
    st.sampled_from(["Bash", "Read", "Edit", "WebFetch"]),
)


@pytest.mark.parametrize("agent", ["claude", "opencode", "codex"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_call_is_decided_less_strictly_than_by_the_settings(home: Path, agent: str, data: Any) -> None:
    """For lines and paths in any rules."""
    work = home.parent / "work"
    if agent == "claude":
        rules = {name: data.draw(st.lists(RULES_OF_CLAUDE, max_size=3)) for name in ("allow", "ask", "deny")}
        written(work / ".claude/settings.json", {"permissions": rules})
    elif agent == "opencode":
        patterns = st.one_of(COMMANDS, COMMANDS.map("{} *".format), st.just("*"))
        bash = data.draw(st.dictionaries(patterns, st.sampled_from(sorted(STRICT)), max_size=4))
        edit = data.draw(
            st.dictionaries(st.sampled_from(["*", "src/*", "a"]), st.sampled_from(sorted(STRICT)), max_size=3)
        )
        first, last = (data.draw(st.sampled_from([{}, *({"*": how} for how in sorted(STRICT))])) for _ in range(2))
        rules = {**({} if last else first), "bash": bash, "edit": edit, **last}
        written(work / "opencode.json", {"permission": rules})
    else:
        rule = st.tuples(st.lists(WORDS, min_size=1, max_size=2), st.sampled_from(["allow", "prompt", "forbidden"]))
        lines = [
            f"prefix_rule(pattern={words!r}, decision={how!r})"
            for words, how in data.draw(st.lists(rule, max_size=4))
        ]
        written(home / ".codex/rules/default.rules", "\n".join(lines))
    found: Permissions = read_permissions(agent)
    text = policy_text(found)
    line = "".join(part for pair in data.draw(LINES) for part in pair) + data.draw(COMMANDS)
    calls = [("bash", line), *((name, data.draw(PATHS)) for name in ("read", "edit"))]

    for name, value in calls:
        assert STRICT[answer(text, name, value)] >= STRICT[found.decide(name, value)], (name, value, text)


@pytest.mark.parametrize(("agent", "file", "text", "says"), [
    ("claude", "work/.claude/settings.json", "{", "cannot be read"),
    ("claude", "work/.claude/settings.json", '{"permissions": []}', "expected a table of settings at `permissions`"),
    ("claude", "work/.claude/settings.json", "\ufeff[]", "expected a table of settings at `$`"),
    ("claude", "work/.claude/settings.json", "\udce9", "the text is not UTF-8"),
    ("claude", "work/.claude/settings.json", '{"permissions": {"deny": "Bash"}}',
        "expected a list of texts at `permissions.deny`"),
    ("claude", "work/.claude/settings.json", '{"permissions": {"deny": ["Bash(x"]}}',
        "`Bash(x` is no permission rule"),
    ("codex", "home/.codex/config.toml", "sandbox_mode = ", "cannot be read"),
    ("codex", "home/.codex/rules/a.rules", "prefix_rule(pattern=x)", "not a file of rules"),
    ("codex", "home/.codex/rules/a.rules", "(" * 9_999, "not a file of rules"),
    ("codex", "home/.codex/rules/a.rules", "-" * 99_999 + "1", "not a file of rules"),
    ("codex", "home/.codex/config.toml", f"a = {'[' * 9_999}", "nested too deeply"),
    ("gemini", "work/.gemini/settings.json", "[" * 99_999, "nested too deeply"),
    ("gemini", "home/.gemini/policies/a.toml", '[[rule]]\ndecision = "maybe"',
        "is allow, deny or ask_user, not `maybe`"),
    ("opencode", "work/opencode.json", '{"permission": {"bash": "never"}}', "is allow, ask or deny, not `never`"),
    ("claude", "work/.claude/settings.json", '{"permissions": {"additionalDirectories": 5}}', "not as claude writes"),
    ("opencode", "work/opencode.json", '{"permission": {"bash": [1]}}', "is not as opencode writes it"),
    ("gemini", "home/.gemini/policies/a.toml", "rule = [1]", "is not as gemini writes it"),
    ("cursor", "work/.cursor/cli.json", '{"permissions": {"allow": ["ls"]}}', "`ls` is no permission"),
    ("claude", "work/other", "", "there are no settings of claude"),
])  # fmt: skip
def test_unreadable_settings_are_an_error_that_names_them(
    home: Path, agent: str, file: str, text: str, says: str
) -> None:
    """With the position and the expected form."""
    written(home.parent / file, text)

    with pytest.raises(UsageError, match=re.escape(says)):
        read_permissions(agent)
