"""Codex with newer models: they call every tool in a script (`exec`), and each such call runs the hook."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hook_processes import end_daemons, recorded
from msgspec import to_builtins
from stored_rows import stored_rows

from proctor.adapters.agents.codex.session_log import CodexUsageLog
from proctor.adapters.hooks.clients import CLIENTS, codex_trust
from proctor.adapters.hooks.messages import HookInput
from proctor.adapters.traces import read_sessions
from proctor.policies.events import ToolCallStarted, ToolOutcome
from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.adapters.hooks.test_agents import SERVER, Codex

MODEL = "gpt-6-sol"
ENDS = ("tool_call_completed", "tool_call_failed", "tool_call_denied")


class Scripted(Codex):
    """`codex exec` with such a model, and an MCP server `s`."""

    def run(self, *turns: Any) -> str:
        """The last results that the model got for its scripts, or its other calls, one a turn."""
        for number, turn in enumerate(turns):
            self.api.reply(self.api.scripted(f"c{number}", turn) if isinstance(turn, str) else turn)
        return super().run()

    def made(self) -> list[str]:
        """The files in its folder."""
        return sorted(file.name for file in self.cwd.iterdir())

    def events(self, *types: str) -> list[dict[str, Any]]:
        """The stored events of these types."""
        rows = stored_rows(self.store, "SELECT data FROM events ORDER BY position")
        return [event for (data,) in rows if (event := json.loads(data))["type"] in types]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """Codex with a model that writes scripts."""
    if codex_trust.program() is None:
        pytest.skip("needs Codex: pip install '.[codex]'")
    made = Scripted(tmp_path, monkeypatch)
    made.serve("s", SERVER)
    made.config = (*made.config, "-c", f'model="{MODEL}"')
    yield made
    end_daemons(made.store)
    made.api.close()


def bash(command: str, **more: Any) -> str:
    """A command of a script, which continues if it is denied."""
    return f"text(await tools.exec_command({json.dumps({'cmd': command, **more})}).catch(String));"


PATCH = "*** Begin Patch\n*** Update File: nowhere\n@@\n-a\n+b\n*** End Patch\n"
FAILS = f"text(await tools.apply_patch({json.dumps(PATCH)}).catch(String));"
FAILS_THERE = "text(await tools.mcp__s__fail({}).catch(String));"


def test_each_call_of_a_script_is_decided_and_counted(agent: Scripted) -> None:
    """Even several at once. By the log, a command has failed."""
    agent.install()
    at_once = " ".join(f"await Promise.all([{', '.join(f'run({n})' for n in range(6))}]);".split())
    results = agent.run(
        bash("echo a && git push"),
        bash("echo a; exit 3"),
        f"const run = n => tools.exec_command({{cmd: `touch f${{n}}`}}).catch(String); {at_once}",
    )

    assert "Leave pushing to a person." in results
    assert len(agent.made()) == 4
    assert [end["error"] for end in agent.events("tool_call_failed")] == [{"exit_code": 3, "output": "a\n"}]
    assert recorded(agent.store, "run_started", "run_completed") == ["run_started", "run_completed"]


def test_the_tools_of_a_newer_model_are_known(agent: Scripted) -> None:
    """By the model's names, including those in a script. Hooks have the group's name as a prefix."""
    agent.install(policy="{name: p}")
    outputs = agent.run("text(ALL_TOOLS.map(tool => tool.name))")
    [text] = [
        json.loads(part["text"]) for one in json.loads(outputs) for part in one["output"] if "[" in part["text"]
    ]
    names = ["Bash" if name == "exec_command" else name.replace("clock__", "clock") for name in text]

    assert [name for name in names if not name.startswith("mcp__") and CLIENTS["codex"].tool(name) is None] == []
    assert "functions" in agent.offered()


@pytest.mark.parametrize("denied", ["spawn_agent", "task", "collaborationspawn_agent"])
def test_a_subagent_is_denied_by_every_name_of_its_tool(agent: Scripted, denied: str) -> None:
    agent.install(policy=f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{denied}]}}]}}")
    agent.run(agent.api.call("c0", "spawn_agent", namespace="collaboration", task_name="t", message="help"))

    assert recorded(agent.store, *ENDS) == ["tool_call_denied"]


def test_the_files_of_a_command_that_is_a_patch_are_not_known_in_a_script(agent: Scripted) -> None:
    """Which may name a folder for it, unless its paths are absolute."""
    within = "where: [{path: $.path, within: kept}]"
    agent.install(policy=f"{{name: p, on_violation: deny, tool_rules: [{{deny: [{{tool: write, {within}}}]}}]}}")
    (agent.cwd / "kept").mkdir()
    lines = ("apply_patch <<'E'", "*** Begin Patch", "*** Add File: %s", "+x", "*** End Patch", "E")
    patch = "\n".join(lines)
    agent.run(bash(patch % "a", workdir=str(agent.cwd / "kept")), bash(patch % (agent.cwd / "free")))

    assert agent.made() == ["free", "kept"]
    assert list((agent.cwd / "kept").iterdir()) == []


@pytest.mark.parametrize("fails", [FAILS, FAILS_THERE], ids=["patch", "server"])
def test_a_call_of_a_script_that_fails_has_failed_before_the_next_script(agent: Scripted, fails: str) -> None:
    """No hook reports it, and the log has no output for it. No later call waits for one."""
    agent.install(policy="{name: p, on_violation: deny, rules: [{type: circuit_breaker, consecutive: 2}]}")
    agent.run(fails, fails, bash("touch never"))

    assert agent.made() == []
    assert recorded(agent.store, *ENDS) == ["tool_call_failed", "tool_call_failed", "tool_call_denied"]


def test_a_call_of_a_script_that_is_still_running_has_not_failed(agent: Scripted) -> None:
    """Another script, which the model starts meanwhile, ends none of its calls. They end with their own script."""
    agent.install(policy="{name: p}")
    left = f'// @exec: {{"yield_time_ms": 300}}\n{bash("sleep 2; echo late", yield_time_ms=10_000)}'
    waits = agent.api.call("w", "wait", namespace="functions", cell_id="1", yield_time_ms=10_000)
    agent.run(left, bash("echo meanwhile"), waits, bash("echo end"))
    outputs = [end.get("tool_output") for end in agent.events(*ENDS)]

    assert recorded(agent.store, *ENDS) == ["tool_call_completed"] * 3
    assert outputs == ["meanwhile\n", "late\n", "end\n"]


def test_a_command_that_outlives_its_script_is_over_with_its_own_end(agent: Scripted) -> None:
    """A script polls it for another."""
    agent.install(policy="{name: p}")
    agent.run(
        'store("s", (await tools.exec_command({cmd: "sleep 1; exit 3", yield_time_ms: 250})).session_id);',
        bash("echo meanwhile"),
        'text(await tools.write_stdin({session_id: load("s"), chars: "", yield_time_ms: 5000}));',
    )

    assert recorded(agent.store, *ENDS) == ["tool_call_completed", "tool_call_failed"]
    assert [end["error"]["exit_code"] for end in agent.events("tool_call_failed")] == [3]


def test_tokens_count_before_a_call_of_a_script(agent: Scripted) -> None:
    """Including those of the response with the script: 120 each, of 300."""
    agent.install(policy="{name: p, limits: {max_total_tokens: {max: 300, action: deny}}}")
    agent.run(*(bash(f"touch f{number}") for number in range(4)))

    assert agent.made() == ["f0", "f1"]
    assert sum(event["input_tokens"] for event in agent.usage()) == 500


def test_a_call_of_a_script_waits_only_for_the_tokens_of_the_script(tmp_path: Path) -> None:
    """The log never has the call itself, and a call after the end of a script does not belong to it."""
    log, now = tmp_path / "rollout.jsonl", datetime.now(UTC)

    def written(*payloads: dict[str, Any]) -> None:
        with log.open("a") as file:
            for payload in payloads:
                kind = "token_usage_record" if "usage" in payload else "response_item"
                line = {"timestamp": now.isoformat(), "type": kind, "payload": payload}
                file.write(json.dumps(line) + "\n")

    def read(wait_s: float) -> int:
        usage = CodexUsageLog(str(log), None, now)
        found = usage.news(may_be_missing=False, call_id="exec-1", wait_s=wait_s)
        return sum(event.input_tokens for event in found) if usage.has_call("exec-1") else 0

    script = {"type": "custom_tool_call", "name": "exec", "call_id": "c0"}
    tokens = {"response_id": "r0", "usage": {"input_tokens": 100}}
    written(script)
    early = read(0.01)
    written(tokens)
    during = read(PATIENCE_S)
    written({"type": "custom_tool_call_output", "call_id": "c0", "output": "Script completed"})

    assert (early, during, read(0.01)) == (0, 100, 0)


def test_a_script_runs_until_its_end_however_much_is_logged_meanwhile(tmp_path: Path) -> None:
    """Another one that begins later does not end its calls. Each line of the log is read once."""
    log = tmp_path / "rollout.jsonl"
    begins = [{"payload": {"type": "custom_tool_call", "name": "exec", "call_id": f"c{n}"}} for n in range(2)]
    output = {"payload": {"type": "function_call_output", "call_id": "c", "output": "x" * 1024 * 1024}}
    log.write_text("\n".join(map(json.dumps, (begins[0], *[output] * 5, begins[1], {}))))
    codex = CLIENTS["codex"]
    call = HookInput(
        client=codex, kind="call", event="PreToolUse", session_id="s", tool_use_id="exec-1", transcript_path=str(log)
    )

    assert codex.scripts(call) == {"c0", "c1"}

    end = json.dumps({"payload": {"type": "custom_tool_call_output", "call_id": "c0", "output": "done"}})
    log.write_text(f"{' ' * log.stat().st_size}\n{end}\n")

    assert codex.scripts(call) == {"c1"}


def shown(end: dict[str, Any]) -> Any:
    """How a call ended, and what it has put out. A server's error is the whole result in the log alone."""
    return end["type"], end.get("tool_output"), end.get("error") if "exit_code" in str(end) else None


def test_the_rollout_has_the_calls_of_scripts_that_ran_hooks(agent: Scripted) -> None:
    """With the same ids, outcomes and outputs. The script itself is no call."""
    agent.install(policy="{name: p}")
    added = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\n"
    moved = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-x\n+y\n*** End Patch\n"
    patches = [f"text(await tools.apply_patch({json.dumps(patch)}).catch(String));" for patch in (added, moved)]
    agent.run("\n".join((bash("echo a; exit 3"), *patches, FAILS_THERE)))
    [rollout] = (agent.home / ".codex" / "sessions").rglob("rollout-*.jsonl")
    [session] = read_sessions([str(rollout)])
    calls = {event.tool_call_id: event for event in session.events if isinstance(event, ToolCallStarted)}
    ends = {
        event.tool_call_id: shown(to_builtins(event)) for event in session.events if isinstance(event, ToolOutcome)
    }
    changes = [change for call in calls.values() for change in call.tool_input.get("changes", ())]
    cwd = str(agent.cwd)

    assert ends == {end["tool_call_id"]: shown(end) for end in agent.events(*ENDS)}
    assert [call.tool_name for call in calls.values()] == ["shell", "apply_patch", "apply_patch", "mcp__s__fail"]
    assert next(iter(calls.values())).tool_input == {"command": "echo a; exit 3", "cwd": cwd}
    assert [(change["path"], change["kind"], change.get("move_path")) for change in changes] == [
        (f"{cwd}/a", "add", None),
        (f"{cwd}/a", "update", f"{cwd}/b"),
    ]
