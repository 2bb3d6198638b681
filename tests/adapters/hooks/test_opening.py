"""Calls that the policy explicitly allows are answered `allow` with the rule; all others are left to the client."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from calling import called
from stored_rows import stored_rows

from proctor.adapters.hooks.clients import CLIENTS
from proctor.adapters.hooks.record import store_id
from proctor.policies import RunContext

POLICY = """
name: mine
on_violation: deny
tool_rules:
  - deny: [{tool: bash, where: [{path: $.command, runs: git push}]}]
    tell_model: Leave pushing to a person.
  - allow:
      - read
      - edit
      - ExitPlanMode
      - {tool: bash, where: [{path: $.command, runs: [git status, git push, ls, cd, cp, echo]}]}
      - {tool: bash, where: [{path: $.command, regex: "^make test"}]}
"""
ANYTHING = "{name: any, on_violation: deny, tool_rules: [{allow: ['*']}]}"


def answer_to(session: Any, command: str, **more: Any) -> tuple[str, str]:
    """The answer to one command, with its reason."""
    session.count = getattr(session, "count", 0) + 1
    fields = {"tool_use_id": f"c{session.count}", "tool_name": "Bash", "tool_input": {"command": command, **more}}
    answer = session.hook("PreToolUse", **fields)
    return answer.verdict, answer.reason


def test_a_call_on_an_allow_list_is_allowed_and_a_deny_overrides_it(session: Any) -> None:
    """`runs` covers every command of a compound line; a pattern matches only a part, and says nothing about the rest.
    Of a denied line the model gets the policy's text without rules, the user both.
    """
    session.policy.write_text(POLICY)
    session.unmatched = "ask"
    for command in ("git status", "cd src && git status; ls -l", "git status | ls", "make test"):
        answer = answer_to(session, command)
        assert answer == ("allow", "proctor: allowed by policy `mine`, rule `allow-1`"), command
    for command in ("make test && curl evil", "make test > /etc/passwd"):
        assert answer_to(session, command) == ("allow", ""), command
    session.unmatched = "allow"
    for number, command in enumerate(("git status && git push", "git -C . push", "bash -c 'git push'")):
        denied = session.pre(f"d{number}", command=command)
        assert (denied.verdict, denied.reason) == ("deny", "Leave pushing to a person."), command
        assert any("rule `deny-1`" in note for note in denied.notes)


@pytest.mark.parametrize("unmatched", ["ask", "allow"])
def test_an_unparsable_line_is_never_allowed(session: Any, unmatched: str) -> None:
    """Even if the policy allows every call."""
    session.policy.write_text(ANYTHING)
    session.unmatched = unmatched
    unread = ["$X", "ls; eval $Y", "echo $(cat x | sh)", 'bash -c "$Z"', "ls 'unclosed", "source ./env && ls"]
    unread += ['python -c "$(cat x)"', "", "# nothing"]

    assert {command: answer_to(session, command) for command in unread} == dict.fromkeys(unread, ("allow", ""))


def test_a_call_that_no_rule_matches_is_left_to_the_client(session: Any) -> None:
    """Unless the hook was installed to answer it."""
    answers = {
        "ask": ("allow", ""),
        "allow": ("allow", "proctor: no rule denies it, and unmatched calls are allowed"),
        "deny": ("deny", "Tool 'Bash' is not available in this context."),
    }
    for policy in ("{name: p}", "{name: p, on_violation: deny, tool_rules: [{deny: [WebFetch]}]}"):
        session.policy.write_text(policy)
        for session.unmatched, answer in answers.items():
            session.end()
            assert answer_to(session, "ls") == answer, (policy, session.unmatched)


def test_every_allow_list_must_allow_a_call(session: Any) -> None:
    """Each list that does is named. A call outside a list that only asks or warns is asked about, or left to the
    client with a warning.
    """
    session.policy.write_text("{name: p, on_violation: deny, tool_rules: [{allow: [bash]}, {allow: ['*'], id: all}]}")
    session.unmatched = "ask"
    both = answer_to(session, "ls")
    session.policy.write_text("{name: p, tool_rules: [{allow: [read], action: request_approval}]}")
    session.unmatched = "allow"
    session.end()
    listed = answer_to(session, "ls")[0]
    session.policy.write_text("{name: p, tool_rules: [{allow: [read], action: warn}]}")
    warned = answer_to(session, "ls")

    assert both == ("allow", "proctor: allowed by policy `p`, rule `allow-1`, policy `p`, rule `all`")
    assert (listed, warned) == ("ask", ("allow", ""))


def test_a_call_denied_because_nothing_allows_it_spends_nothing(session: Any) -> None:
    """The one remaining call of the limit is left for an allowed one."""
    limits = "limits: {max_tool_calls: {max: 1, action: deny}}"
    session.policy.write_text(f"{{name: p, on_violation: deny, {limits}, tool_rules: [{{allow: ['*']}}]}}")
    session.unmatched = "deny"
    answers = [answer_to(session, command)[0] for command in ("$X", "ls", "ls")]

    assert answers == ["deny", "allow", "deny"]


def test_what_nothing_allows_is_decided_by_the_rules_first(session: Any) -> None:
    """So one that cancels does."""
    session.policy.write_text("{name: p, tool_rules: [{deny: [Write], action: cancel, tell_model: Not here.}]}")
    session.unmatched = "deny"
    unmatched = session.pre("c1", command="ls")
    cancelled = session.pre("c2", "Write")

    assert (unmatched.verdict, unmatched.stop) == ("deny", False)
    assert (cancelled.verdict, cancelled.stop, cancelled.reason) == ("deny", True, "Not here.")


def test_questions_other_than_permissions_stay_with_the_client(session: Any) -> None:
    """Plans, questions, the sandbox, and settings that decide about calls."""
    session.policy.write_text(ANYTHING)
    session.unmatched = "allow"
    ls = {"command": "ls"}
    calls: list[dict[str, Any]] = [
        {"tool_name": "ExitPlanMode", "tool_input": {"plan": "p"}},
        {"tool_name": "AskUserQuestion", "tool_input": {"questions": []}},
        {"tool_name": "Agent", "tool_input": {"prompt": "p", "isolation": "remote"}},
        {"tool_input": ls, "permission_mode": "plan"},
        {"tool_input": {"command": "ls", "dangerouslyDisableSandbox": True}},
        {"tool_input": {"command": "ls", "elevated": True}},
        {"tool_input": {"command": "cp x .claude/settings.json"}},
        {"tool_input": {"command": "cd .CLAUDE && ls"}},
        {"tool_name": "Edit", "tool_input": {"file_path": "/w/.mcp.json", "new_string": "x"}},
        {"tool_name": "Write", "tool_input": {"file_path": str(session.policy), "content": "x"}},
        {"tool_name": "mcp__files__write", "tool_input": {"to": [str(session.store)]}},
    ]
    for number, call in enumerate(calls):
        answer = session.hook("PreToolUse", **{"tool_use_id": f"c{number}", "tool_name": "Bash", **call})
        assert (answer.verdict, answer.reason) == ("allow", ""), call


def test_files_from_which_a_client_runs_code_are_never_written_without_a_question(session: Any) -> None:
    """Its settings, wherever they are, and other files it starts, in any spelling of the path."""
    session.policy.write_text(ANYTHING)
    session.unmatched = "allow"
    each = [client.settings for client in CLIENTS.values()]
    places = {place for own in each for place in (own.project, own.user, own.managed, *own.overriding) if place}
    places |= {pattern for own in each for pattern, _ in own.beside_ours}
    places |= {f".github/{name}" for name in ("mcp.json", "lsp.json", "extensions/x/extension.mjs", "agents/a.md")}
    places |= {f".{name}" for name in ("bashrc", "bash_aliases", "zshrc", "zshenv", "config/fish/config.fish")}
    places |= {".github//copilot/settings.json", ".github/./hooks/x.json", ".git/info/../hooks/pre-commit"}
    opened = set()
    for number, place in enumerate(sorted(places)):
        given = {"file_path": f"/w/{place}", "content": "x"}
        answer = session.hook("PreToolUse", tool_use_id=f"c{number}", tool_name="Write", tool_input=given)
        opened |= {place} if answer.reason else set()

    assert opened == set()


NAMING = """
cp x .cla''ude/y ~ cp x .cl*/y ~ cp x .gi?/hooks/y ~ cp x .git/hook[s]/y ~ cp x ${HOME}/.cl$X/y
D=.cla; cp x ${D}ude/y ~ cp x .{git,x}/hooks/y ~ cd .git && cp x hooks/y
cd .github; cp x copilot/settings.json ~ echo x > .git/ho\\oks/y
cp -r x .github ~ ln -s .git g ~ cp x .claude.json ~ cp x 'opencode'.json
D=.cla; cp x "${D}ude/y" ~ cp x .cl"$X"/y ~ cp x .git/"hooks"/$X ~ cp x .gi\\t/hooks/$X ~ cp x $'\\x2egit/hooks/y'
cp x $A/$B ~ D=.cla; E=ude; cp x $D$E/y ~ cp x $(echo .git)/hooks/y ~ cp x {.gi,y}t/hooks/y ~ cd $A; cp x hooks/y
cp x "$(echo "$(echo a/b)")"/y ~ cp x $A/../hooks/y ~ TMPDIR=.gi; TMPDIR=${TMPDIR}t; cp x $TMPDIR/hooks/y
cp --target-directory=$A/hooks x ~ cp -t$A/hooks x ~ cp --target-directory={.gi,y}t/hooks x ~ cp -t.gi?/hooks x
cp --target-directory="${D}ude/y" x ~ cp -t.git x ~ cp x {.,y}{claude/y,y} ~ cp x $A$B
shopt -s dotglob; cp x ?claude/y ~ shopt -s dotglob; cp x *t/hooks/y
"""
OTHERS = """
cp *.json out/ ~ cp .cache/* x ~ cp src/*.py ./* ~ echo $HOME ~ cp -r . ../x ~ cp .gitignore x ~ cp $A x
cp x .github/workflows/ci.yml ~ cd src && cp x hooks/y ~ cp x "$HOME/y" ~ cp x ${TMPDIR}/y ~ cp src/$A src/"$B.py"
git status '$a/{b}' ~ echo "$(git status)" ~ for f in *.py; do cp $f x/$f; done ~ cd src/$A && ls x
cp ?claude/y x ~ cp x *t/hooks/y ~ cp --target-directory=src/$A x ~ cp -tsrc x
git status -uno --a=b/c ~ cp $A$B.py x
"""


def test_a_path_in_a_command_is_resolved_as_its_program_gets_it(session: Any) -> None:
    """Without quotes, below the folder that the line changes to, and as the shell may expand it."""
    session.policy.write_text(POLICY.replace("echo]", "echo, ln, redirect, shopt]"))
    session.context = RunContext(shell="bash")
    naming, others = (re.split(" ~ |\n", text.strip()) for text in (NAMING, OTHERS))

    naming.append('cp x "$E.cla\\\nude/y"')

    assert {line for line in naming if answer_to(session, line)[1]} == set()
    assert {line for line in others if not answer_to(session, line)[1]} == set()


def test_the_paths_of_a_line_are_looked_at_up_to_a_bound(session: Any) -> None:
    """Each `cd` makes all later paths longer: a line of 20 KB kept the daemon busy for minutes."""
    session.policy.write_text(ANYTHING)
    answers = [answer_to(session, "cd a;" * number + "ls")[1] for number in (100, 4_000)]

    assert list(map(bool, answers)) == [True, False]


@pytest.mark.parametrize("command", [
    *("claude mcp add s -- x", "cd x; /usr/bin/codex features list", "env A=b gemini hooks disable y"),
    *("ls && copilot plugin install x", "timeout 5 opencode plugin x", "bash -c 'claude --bare -p x'"),
    *("npx @openai/codex@latest features list", "npx -y @anthropic-ai/claude-code mcp add s", "npx opencode-ai@1 x"),
])  # fmt: skip
def test_a_command_of_an_agent_is_never_allowed(session: Any, command: str) -> None:
    """It changes settings and adds servers, or starts an agent without hooks."""
    session.policy.write_text(ANYTHING)
    session.unmatched = "allow"

    assert answer_to(session, command) == ("allow", "")
    assert answer_to(session, "ls claude codex")[1]


LINKED = """
cp x settings/y ~ cp --target-directory=settings x ~ echo x > settings/y ~ cd settings && cp x y
cp x git/hooks/y ~ cp x hooks/../config ~ cp x rules ~ cp x ~/settings/y
cd git && cp x config ~ pushd git && cp x config
"""
NOT_LINKED = "cp x out/y ~ cp x here/y ~ cd out && cp x settings/y ~ pushd out && cp x y ~ echo x > out/settings"


@pytest.mark.parametrize("folder", ["work", ".claude/worktrees/work"])
def test_a_path_is_resolved_through_links_that_exist(
    session: Any, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository may contain links. The folder itself may be below the agent's own folder, as a worktree is."""
    session.policy.write_text(POLICY.replace("echo]", "echo, redirect, pushd]"))
    cwd, real = tmp_path / folder, tmp_path / "real.yaml"
    monkeypatch.setenv("HOME", str(cwd))
    for name in (".claude", ".git/hooks", "there"):
        (cwd / name).mkdir(parents=True)
    session.policy.rename(real)
    links = {
        "settings": ".claude",
        "git": ".git",
        "hooks": ".git/hooks",
        "here": "there",
        "out": str(tmp_path),
        "rules": str(real),
    }
    for name, to in links.items():
        (cwd / name).symlink_to(to)
    session.policy.symlink_to(real)
    naming, others = (re.split(" ~ |\n", text.strip()) for text in (LINKED, NOT_LINKED))

    def opened(line: str, **more: Any) -> bool:
        session.count = getattr(session, "count", 0) + 1
        given = {"tool_name": "Bash", "tool_input": {"command": line, **more}}
        return bool(session.hook("PreToolUse", tool_use_id=f"c{session.count}", cwd=str(cwd), **given).reason)

    def edits(path: str) -> bool:
        given = {"tool_name": "Edit", "tool_input": {"file_path": path, "new_string": "x"}}
        return bool(session.hook("PreToolUse", tool_use_id=path, cwd=str(cwd), **given).reason)

    assert {line for line in naming if opened(line)} == set()
    assert {line for line in others if not opened(line)} == set()
    assert (edits("settings/y"), edits(f"{cwd}/git/hooks/y"), edits("here/y")) == (False, False, True)


def test_a_path_is_below_the_folder_that_an_earlier_command_changed_to(session: Any, tmp_path: Path) -> None:
    """As the client says. One that an agent makes for its work is no folder of settings."""
    session.policy.write_text(POLICY)
    work = tmp_path / "work"
    calls = {
        (".git", "cp x hooks/y"): False,
        (".git", "cp x config"): False,
        ("../.claude", "cp x settings.json"): False,
        (".git/info", "cp x ../hooks/y"): False,
        (".", "cp x hooks/y"): True,
        (".git", "cp x y"): True,
        (".claude/worktrees/a", "cp x hooks/y"): True,
        (".claude/worktrees/a/.git", "cp x hooks/y"): False,
        ("..", "cp x hooks/y"): True,
    }
    session.hook("UserPromptSubmit", prompt="go", cwd=str(work))
    opened = {}
    for number, (folder, command) in enumerate(calls):
        given = {"tool_use_id": f"c{number}", "tool_name": "Bash", "tool_input": {"command": command}}
        answer = session.hook("PreToolUse", **given, cwd=os.path.normpath(work / folder))
        opened[folder, command] = bool(answer.reason)

    assert opened == calls


def test_the_last_answer_is_explained(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The call, the answer, and the rules. Answers of another session are earlier."""
    session.policy.write_text(POLICY)
    session.unmatched = "ask"
    secret = "ghp" + "_" + "k9" * 18
    store_id(session.store)
    assert explained(session.store, capsys) is None
    found = []
    for command in ("git push", "git status", f"echo {secret}", "make test; ls"):
        answer_to(session, command)
        found.append(explained(session.store, capsys))

    assert [last["answer"] for last in found] == ["deny", "allow", "allow", "left to the client"]
    assert found[0]["because"][0].startswith("mine/deny-1: `Bash` was requested")
    assert found[1]["because"] == ["allowed by policy `mine`, rule `allow-1`"]
    assert found[3]["because"] == ["rule `allow-1` allows it by its text, and it is several commands; use `runs`"]
    assert secret not in json.dumps(found)


def explained(store: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """The explanation of the last answer."""
    [last] = called(capsys, "hook", "--explain-last", "--json", "--store", store).lines
    return last


@pytest.mark.claude
class TestClient:
    """The real client, whose own permissions allow nothing, so only calls that the hook allows run."""

    def test_an_allowed_compound_command_runs_without_a_question_and_a_push_is_denied(self, governed: Any) -> None:
        """A call left to the client does not run, as it has no user to ask. A call that the client's settings deny
        does not run, whatever the policy allows, and does not count.
        """
        api, done = governed.api, governed.cwd / "done"
        calls = [
            api.bash(f"cd {governed.cwd} && echo one > {done}"),
            api.bash("echo two && git push"),
            api.bash(f"touch {done}2"),
            api.bash(f"mkdir {done}3"),
        ]
        allowed = POLICY.replace("cd, cp, echo]", "cd, echo, redirect, mkdir]")
        governed.govern(allowed.replace("- allow", "- action: warn\n    allow"), deny=["Bash(mkdir:*)"])
        api.say(*map(api.reply, calls), api.reply(api.text("done")))
        governed.run()
        results = governed.tool_results()

        assert done.exists()
        assert "Leave pushing to a person." in results[calls[1]["id"]]
        assert not Path(f"{done}2").exists()
        assert not Path(f"{done}3").exists()
        assert calls[3]["id"] in results
        assert calls[3]["id"] not in completed(governed.store)
        assert not {"allow-1", "deny-1", "mine"} & set(json.dumps(api.requests).replace("`", '"').split('"'))

    def test_a_command_is_not_allowed_for_the_folder_that_an_earlier_one_changed_to(self, governed: Any) -> None:
        """The client's own permissions allow the change of the folder alone."""
        api = governed.api
        governed.govern(POLICY, allow=["Bash(cd:*)"])
        for folder in ("src", ".codex"):
            (governed.cwd / folder).mkdir()
            (governed.cwd / folder / "x").touch()
        commands = ["cd src", "cp x y", "cd ../.codex", "cp x config.toml"]
        api.say(*(api.reply(api.bash(command)) for command in commands), api.reply(api.text("done")))
        governed.run()

        assert (governed.cwd / "src" / "y").exists()
        assert [file.name for file in (governed.cwd / ".codex").iterdir()] == ["x"]

    def test_the_clients_own_folder_is_not_written_even_if_a_variable_moved_it(self, governed: Any) -> None:
        """Its settings could switch hooks off, and its logs contain the usage."""
        api, own = governed.api, Path(governed.env["CLAUDE_CONFIG_DIR"])
        governed.govern(ANYTHING, unmatched="allow")
        files = [own / "settings.json", own / "projects" / "x" / "s.jsonl", governed.cwd / "fine"]
        calls = [api.tool("Write", file_path=str(file), content="{}") for file in files]
        api.say(*map(api.reply, calls), api.reply(api.text("done")))
        governed.run()

        assert [file.name for file in files if file.exists()] == ["fine"]


def completed(store: Path) -> set[str]:
    """The ids of calls that are recorded as completed."""
    rows = stored_rows(store, "SELECT data FROM events WHERE type = 'tool_call_completed'")
    return {json.loads(data)["tool_call_id"] for (data,) in rows}
