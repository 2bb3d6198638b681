"""The real Claude Code under a policy, by hooks in a project's settings."""

import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from hook_processes import end_daemons, recorded
from stored_rows import stored_rows

from proctor.adapters.hooks.clients import CLIENTS
from proctor.adapters.hooks.daemon_client import OR_REFUSED
from proctor.adapters.hooks.settings import DAEMON_CLIENT, settings_path, settings_with_hooks
from proctor.adapters.traces import read_sessions
from proctor.policies import Capabilities, RunContext
from proctor.policies.events import ToolCallCompleted
from proctor.supervisor.testing.adapter_fixture import Evidence
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.claude

HOOKED = Capabilities(gate="all", usage="per_turn")
"""The capabilities of hooks in an interactive client: nothing is started, resumed, narrowed or ended from here."""


class TestHooks(Evidence):
    """Their verified capabilities, for their row of the matrix."""

    row = "hook"

    def test_a_denied_call_does_not_run_and_the_model_is_told(self, governed: Any) -> None:
        """The model gets the policy's text and nothing of its rules. Allowed calls run and are recorded. The client's
        log has each response's tokens once, and a call beyond their limit is denied.
        """
        api = governed.api
        never, done = governed.cwd / "never", governed.cwd / "done"
        governed.govern(
            "{name: acme, on_violation: deny, limits: {max_total_tokens: {max: 1900, action: deny}}, tool_rules:"
            " [{reason: internal, tell_model: keep out,"
            " deny: [{tool: Bash, where: [{path: $.command, regex: never}]}]}]}"
        )
        first, second, third = api.bash(f"touch {never}"), api.bash(f"touch {done}"), api.bash(f"touch {done}-late")
        api.say(
            api.reply(first, input_tokens=500),
            api.reply(api.text("I will"), second, input_tokens=500, output_tokens=30, cache_read=7),
            api.reply(third, input_tokens=900),
            api.reply(api.text("done"), input_tokens=800, output_tokens=40),
        )

        governed.run()

        result = governed.tool_results()[first["id"]]
        assert [path.name for path in governed.cwd.glob("[nd]*")] == ["done"]
        assert "keep out" in result
        assert "acme" not in result
        assert "internal" not in result
        found = recorded(governed.store)
        assert [name for name in found if name != "token_usage_updated"] == [
            *("session_created", "run_started", "message_sent", "session_started"),
            *("tool_call_requested", "policy_violation", "tool_call_denied", "turn_completed"),
            *("tool_call_requested", "tool_call_started", "tool_call_completed", "turn_completed"),
            "policy_violation",  # the tokens of the response, before its call
            *("tool_call_requested", "policy_violation", "tool_call_denied", "turn_completed"),
            *("turn_completed", "run_completed"),
        ]
        rows = stored_rows(governed.store, "SELECT data FROM events WHERE type = 'token_usage_updated'")
        used = [json.loads(data) for (data,) in rows]
        assert sum(event.get("input_tokens", 0) for event in used) == 500 + 500 + 7 + 900 + 800
        assert sum(event.get("output_tokens", 0) for event in used) == 20 + 30 + 20 + 40
        usage = "per_turn" if len(used) > 1 else "at_end" if used else "none"
        self.saw(HOOKED, gate="all", deny_ends_turn=not done.exists(), usage=usage)

    def test_a_sub_agents_tokens_count_against_the_same_limit(self, governed: Any) -> None:
        """Its second call is denied while it works, by a limit that cancels."""
        api = governed.api
        never = governed.cwd / "never"
        governed.govern(
            "{name: p, limits: {max_cost_usd: 0.01}, prices: {claude-*: {input_usd_per_mtok: 3,"
            " output_usd_per_mtok: 15}}}",
            allow=["Bash", "Agent"],
        )
        start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
        api.say(api.reply(api.tool("Agent", run_in_background=False, **start)), api.reply(api.text("main done")))
        api.say(
            api.reply(api.bash("echo sub"), input_tokens=1000),
            api.reply(api.bash(f"touch {never}"), input_tokens=5000),
            api.reply(api.text("sub done")),
            sub=True,
        )

        governed.run()

        assert not never.exists()
        assert recorded(governed.store, "run_cancelled") == ["run_cancelled"]
        self.saw_sub_agents(HOOKED)


def test_a_subagent_in_the_background_counts_in_the_run_that_started_it(governed: Any) -> None:
    """The response ends before the subagent, after which the client continues: one run, with one limit."""
    api, never = governed.api, governed.cwd / "never"
    governed.govern("{name: p, limits: {max_tool_calls: {max: 3, action: deny}}}", allow=["Bash", "Agent"])
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose", "run_in_background": True}
    api.say(api.reply(api.tool("Agent", **start)), api.reply(api.text("main done")))
    api.say(api.reply(api.bash(f"touch {never}")), api.reply(api.text("all done")))
    api.say(api.reply(api.bash("sleep 1")), api.reply(api.bash("echo two")), api.reply(api.text("sub")), sub=True)

    governed.run()

    ends = ("run_started", "tool_call_denied", "run_completed")
    assert not never.exists()
    assert recorded(governed.store, *ends) == list(ends)


def test_the_end_of_a_subagent_does_not_wake_a_cancelled_response(governed: Any) -> None:
    """The client would continue with its report, as with a prompt."""
    api, never = governed.api, governed.cwd / "never"
    bad = "{tool: Bash, where: [{path: $.command, regex: bad}]}"
    governed.govern(f"{{name: p, tool_rules: [{{deny: [{bad}], action: cancel}}]}}", allow=["Bash", "Agent"])
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose", "run_in_background": True}
    api.say(api.reply(api.tool("Agent", **start)), api.reply(api.bash("echo bad")))
    api.say(api.reply(api.bash(f"touch {never}")), api.reply(api.text("all done")))
    api.say(api.reply(api.bash("sleep 1")), api.reply(api.bash(f"touch {never}")), sub=True)

    governed.run()

    assert not never.exists()
    assert recorded(governed.store, "run_started", "run_cancelled") == ["run_started", "run_cancelled"]


def test_a_rule_on_commands_and_addresses_covers_every_tool_of_the_client(governed: Any) -> None:
    """Including its other shell and its monitor of a socket. It has no unknown tool."""
    api, other_shell = governed.api, governed.cwd / "pwsh"
    other_shell.write_text("#!/bin/sh\ntouch never\n")
    other_shell.chmod(0o755)
    more = {"CLAUDE_CODE_USE_POWERSHELL_TOOL": "1", "ENABLE_TOOL_SEARCH": "false"}
    governed.env |= {**more, "PATH": f"{governed.cwd}:{governed.env['PATH']}"}
    push, far = "{path: $.command, runs: git push}", "{path: $.url, contains: far}"
    governed.govern(
        f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{{tool: bash, where: [{push}]}},"
        f" {{tool: fetch, where: [{far}]}}]}}]}}",
        allow=["PowerShell", "Monitor"],
    )
    calls = [
        api.tool("PowerShell", command="sal g git; g push"),
        api.tool("Monitor", description="d", timeout_ms=1000, ws={"url": "ws://127.0.0.1:9/far"}),
        api.tool("Monitor", description="d", timeout_ms=1000, command="git push"),
    ]
    api.say(*map(api.reply, calls), api.reply(api.text("done")))

    governed.run()

    assert recorded(governed.store, "tool_call_denied", "tool_call_started") == ["tool_call_denied"] * len(calls)
    assert not (governed.cwd / "never").exists()
    offered = [tool["name"] for tool in api.requests[-1]["tools"]]
    assert [name for name in offered if CLIENTS["claude"].tool(name) is None] == []


def test_parallel_calls_share_one_budget(governed: Any) -> None:
    """Of six calls with concurrent hooks and a limit of two, two run."""
    api = governed.api
    governed.govern("{name: p, limits: {max_total_tokens: 100000, max_tool_calls: {max: 2, action: deny}}}")
    api.say(api.reply(*[api.bash(f"echo done-{n}") for n in range(6)]), api.reply(api.text("done")))

    governed.run()

    ran = [text for text in governed.tool_results().values() if "done-" in text]
    assert len(ran) == 2
    assert recorded(governed.store, "tool_call_started") == ["tool_call_started"] * 2
    assert recorded(governed.store, "tool_call_denied") == ["tool_call_denied"] * 4
    assert recorded(governed.store, "token_usage_updated") == ["token_usage_updated"] * 2


def test_a_policy_that_cancels_ends_the_response(governed: Any) -> None:
    """The model is called no more. A later client resumes the session without hooks, as a run of its own."""
    api = governed.api
    governed.govern("{name: p, tool_rules: [{deny: [{tool: Bash, where: [{path: $.command, regex: bad}]}]}]}")
    api.say(api.reply(api.bash("echo bad")))

    result = governed.run()
    requests = len(api.requests)
    end_daemons(governed.store)
    api.say(api.reply(api.bash("echo good")), api.reply(api.text("done")))
    governed.run("--resume", result["session_id"])

    assert result["terminal_reason"] == "hook_stopped"
    assert requests == 1
    assert any("good" in text for text in governed.tool_results().values())
    ends = ["run_started", "run_cancelled", "run_started", "run_completed"]
    assert recorded(governed.store, *ends) == ends


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_call_that_needs_approval_needs_a_person_in_every_mode(governed: Any, mode: str) -> None:
    """Without a user to ask, the client denies, and the log says that the call was not approved."""
    api = governed.api
    never = governed.cwd / "never"
    governed.govern("{name: p, tool_rules: [{deny: [Bash], action: request_approval}]}")
    governed.env["IS_SANDBOX"] = "1"
    api.say(api.reply(api.bash(f"touch {never}")), api.reply(api.text("done")))

    governed.run("--permission-mode", mode)

    assert not never.exists()
    kinds = ("tool_approval_requested", "tool_approval_granted", "tool_approval_denied", "tool_call_denied")
    assert recorded(governed.store, *kinds) == ["tool_approval_requested", "tool_approval_denied", "tool_call_denied"]


def test_hooks_that_cannot_evaluate_deny_the_prompt_and_the_call(governed: Any) -> None:
    """The user gets the reason before the model is called. If no hook gets the prompt, the call does not run, and the
    model does not learn why.
    """
    api = governed.api
    never = governed.cwd / "never"
    governed.govern("{name: p, rules: 7}")
    governed.run()
    assert api.requests == []
    path = settings_path(user=False, folder=governed.cwd)
    settings = json.loads(path.read_text())
    del settings["hooks"]["UserPromptSubmit"]
    path.write_text(json.dumps(settings))
    api.say(api.reply(api.bash(f"touch {never}")), api.reply(api.text("done")))

    governed.run()

    [result] = governed.tool_results().values()
    assert not never.exists()
    assert "rules" not in result


def test_the_printed_settings_work_in_the_client(claude: Any, tmp_path: Path) -> None:
    """The output of `proctor hook settings` is valid for the client, without a warning."""
    policy, never = tmp_path / "policy.yaml", claude.cwd / "never"
    policy.write_text("{name: p, tool_rules: [{deny: [Bash], action: deny}]}")
    command = [sys.executable, "-m", "proctor", "hook", "settings"]
    command += ["--policy", str(policy), "--store", str(tmp_path / "store.db"), "--context", "tenant=a b's"]
    env = {**os.environ, "HOME": claude.env["HOME"]}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    api = claude.api
    api.say(api.reply(api.bash(f"touch {never}")), api.reply(api.text("done")))

    result = claude.run("--settings", printed, "--allowedTools", "Bash")

    assert result["result"] == "done"
    assert not never.exists()
    assert "not available in this context" in str(claude.tool_results())


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_hook_that_cannot_start_denies(tmp_path: Path, agent: str) -> None:
    """Paths with blanks and quotes stay whole, with a shell and without."""
    found = settings_with_hooks(
        [tmp_path / "a policy's.yaml"], tmp_path / "s.db", RunContext(tenant="a b"), client=CLIENTS[agent]
    )
    [hook] = found["hooks"]["PreToolUse"][0]["hooks"]
    if agent == "claude":
        assert hook["onFailure"] == "block"
        words = [hook["command"], *hook["args"]]
    else:
        line, refuses, _ = hook["command"].partition(OR_REFUSED)
        assert refuses
        words = shlex.split(line)
        assert [words.pop(5), words.pop(5)] == ["--agent", "codex"]
    assert words[:4] == [sys.executable, "-I", "-S", str(DAEMON_CLIENT)]
    assert words[5:7] == ["--policy", str(tmp_path / "a policy's.yaml")]
    assert json.loads(words[-1]) == {"tenant": "a b"}


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh"])
def test_a_command_is_what_an_alias_of_the_users_shell_makes_of_it(governed: Any, shell: str) -> None:
    """The client runs its commands in a copy of that shell, taken for the first one of a session; later
    sessions have the same aliases. A quoted name is none.
    """
    if not Path(shell).exists():
        pytest.skip(f"needs {shell}")
    aliases = {"t": "touch never", "again": "t", "ls": "ls -a", "l": "ls -a"}
    for name in (".bashrc", ".zshrc"):
        lines = (f"alias {alias}={shlex.quote(value)}\n" for alias, value in aliases.items())
        Path(governed.env["HOME"], name).write_text("".join(lines))
    governed.env["SHELL"] = shell
    api = governed.api
    denied = "{tool: bash, where: [{path: $.command, runs: touch}]}"
    governed.govern(f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{denied}]}}]}}")
    commands = ["true", "t", "X=1 again", ">x t>y", "X=t t", ">t t", "\\t", "ls", "l"]
    calls = [api.bash(command) for command in commands]
    api.say(*(api.reply(call) for call in calls), api.reply(api.text("done")))
    governed.run()
    results = [governed.tool_results()[call["id"]] for call in calls[1:]]
    api.say(api.reply(again := api.bash("t")), api.reply(api.text("done")))
    governed.run()

    assert not (governed.cwd / "never").exists()
    assert ["may not be used with this input" in result for result in results] == [True] * 5 + [False] * 3
    assert [".claude" in result for result in results[6:]] == [True, True]
    assert "may not be used with this input" in governed.tool_results()[again["id"]]
    assert recorded(governed.store, "tool_call_completed", "tool_call_failed") == [
        *("tool_call_completed", "tool_call_failed", "tool_call_completed", "tool_call_completed")
    ]


def test_the_outputs_of_calls_are_those_in_the_clients_log(governed: Any) -> None:
    """So that one rule on outputs means the same for an interactive session, a run, and a recorded session."""
    api, file = governed.api, governed.cwd / "a.txt"
    file.write_text("one\ntwo\n")
    governed.govern("{name: p}", allow=["Bash", "Read", "Edit", "Write"])
    calls = [
        api.tool("Read", file_path=str(file)),
        api.tool("Read", file_path=str(file), offset=2, limit=1),
        api.tool("Edit", file_path=str(file), old_string="two", new_string="2"),
        *(api.tool("Write", file_path=str(governed.cwd / "b.txt"), content=text) for text in ("hi", "ho")),
        api.tool("Edit", file_path=str(governed.cwd / "b.txt"), old_string="o", new_string="0"),
        api.bash("echo a; echo b >&2"),
    ]
    api.say(*map(api.reply, calls), api.reply(api.text("done")))
    governed.run()
    [log] = Path(governed.env["HOME"]).rglob("projects/*/*.jsonl")
    [session] = read_sessions([str(log)])
    rows = stored_rows(governed.store, "SELECT data FROM events WHERE type = 'tool_call_completed' ORDER BY position")

    logged = [event.tool_output for event in session.events if isinstance(event, ToolCallCompleted)]
    assert [json.loads(data)["tool_output"] for (data,) in rows] == logged
    assert len(logged) == len(calls)


def test_a_resumed_session_keeps_its_counts_and_a_fork_those_of_budgets(governed: Any) -> None:
    """A fork is a new session, as the page says."""
    limit = "limits: {max_tool_calls: {max: 2, scope: session, action: deny}}"
    governed.govern(f"{{name: p, {limit}, budgets: [{{name: b, max_tool_calls: 3, window: 5h, action: deny}}]}}")
    api, number = governed.api, iter(range(9))
    resume: tuple[str, ...] = ()
    for more in ((), (), ("--fork-session",)):
        commands = [f"touch f{next(number)}" for _ in range(1 if not resume else 2)]
        api.say(*(api.reply(api.bash(command)) for command in commands), api.reply(api.text("done")))
        result = governed.run(*resume, *more)
        resume = ("--resume", result["session_id"])

    assert sorted(file.name for file in governed.cwd.glob("f*")) == ["f0", "f1", "f3"]
    assert recorded(governed.store, "session_created", "run_started").count("session_created") == 2


def test_a_command_in_the_background_is_no_evidence_once_it_was_killed(governed: Any) -> None:
    """Its call was over when it began; no hook reports its end."""
    api, run = governed.api, "{{tool: bash, where: [{{path: $.command, runs: {}}}]}}".format
    governed.govern(
        f"{{name: p, on_violation: deny, rules: [{{type: before, first: {run('sleep')}, then: {run('touch')}}}]}}"
    )
    left, gone = api.bash("sleep 7123", run_in_background=True), governed.cwd / "gone"
    waits = api.bash(f"until [ -e {gone} ]; do :; done")

    def kill() -> None:
        found, until = None, time.monotonic() + PATIENCE_S
        while found is None and time.monotonic() < until:
            running = psutil.process_iter(["cmdline"])
            found = next((one for one in running if one.info["cmdline"] == ["sleep", "7123"]), None)
        gone.touch()
        assert found is not None
        found.kill()

    api.say(*(api.reply(call) for call in (left, waits, api.bash("touch never"))), api.reply(api.text("done")))
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        governed.run()
        killed.result(PATIENCE_S)

    assert not (governed.cwd / "never").exists()
    assert recorded(governed.store, "tool_call_denied") == ["tool_call_denied"]


@pytest.mark.parametrize("denied", ["ListPeers", "ListAgents"])
def test_a_tool_is_denied_by_every_name_that_the_model_may_call_it_by(governed: Any, denied: str) -> None:
    """The client takes each for the same tool, and its hook says one of them."""
    governed.govern(f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{denied}]}}]}}")
    api = governed.api
    api.say(*(api.reply(api.tool(name)) for name in ("ListPeers", "ListAgents")), api.reply(api.text("done")))
    governed.run()

    assert recorded(governed.store, "tool_call_requested", "tool_call_denied") == [
        *(["tool_call_requested", "tool_call_denied"] * 2)
    ]


def test_a_session_that_is_compacted_keeps_its_counts(governed: Any) -> None:
    """In the same run: the summary is no prompt."""
    api = governed.api
    governed.govern("{name: p, on_violation: deny, limits: {max_tool_calls: {max: 2, action: deny}}}")
    governed.env |= {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "5", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000"}
    summary = api.text(f"<summary>{'It touched a file. ' * 40}</summary>")
    api.say(api.reply(api.bash("touch f0"), input_tokens=195_000), api.reply(summary))
    api.say(*(api.reply(api.bash(f"touch f{number}")) for number in range(1, 4)), api.reply(api.text("done")))
    governed.run()

    assert "It touched a file" in str(api.requests[-1]["messages"][0])
    assert sorted(file.name for file in governed.cwd.glob("f*")) == ["f0", "f1"]
    assert recorded(governed.store, "run_started") == ["run_started"]


def test_a_hook_that_fails_in_any_way_denies(governed: Any) -> None:
    """With any exit code, and if it can't even start: the client is configured to treat a failure as a denial."""
    api = governed.api
    governed.govern("{name: p}")
    path = settings_path(user=False, folder=governed.cwd)
    settings = json.loads(path.read_text())
    [hook] = settings["hooks"]["PreToolUse"][0]["hooks"]
    gone = {"matcher": "Write", "hooks": [{**hook, "command": "/nonexistent/python"}]}
    fails = ["exit 1", "kill -9 $$", "echo nonsense; exit 3"]
    cases = [f"*never-{number}*) {how};;" for number, how in enumerate(fails)]
    hook |= {"command": "/bin/sh", "args": ["-c", f'case "$(cat)" in {" ".join(cases)} esac']}
    settings["hooks"]["PreToolUse"].append(gone)
    settings["permissions"]["allow"] = ["Bash", "Write"]
    path.write_text(json.dumps(settings))
    calls = [api.bash(f"touch never-{number}") for number in range(len(fails))]
    calls.append(api.tool("Write", file_path=f"{governed.cwd}/never", content="x"))
    api.say(api.reply(*calls), api.reply(api.bash("touch judged")), api.reply(api.text("done")))

    governed.run()

    assert [path.name for path in governed.cwd.glob("[nj]*")] == ["judged"]  # it succeeded, and so denied nothing
    assert len(governed.tool_results()) == len(calls) + 1
