"""The clients' tables of tools, compared with what the clients really report and record."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.adapters import AcpAdapter, AmpAdapter, ClaudeAdapter, CodexAdapter
from proctor.adapters.evaluate import judge_session
from proctor.adapters.hooks.clients import CLIENTS as HOOKED
from proctor.adapters.kit.client_tools import (
    CLIENTS,
    KNOWN,
    misspelt_tools,
    recorded_tools,
    runs_in_background,
    shell_changes_of,
)
from proctor.adapters.kit.function_tools import MOSTLY
from proctor.adapters.traces import read_sessions
from proctor.policies import ToolCall, compile_policy, encode_event, events, merge_policies, parse_policies, preflight
from proctor.policies.events.run_context import PORTABLE, RunContext, Tool, needed, portable, recorded
from proctor.supervisor.ports.adapter import Adapter


def violating_tools(policy: dict[str, Any], path: Path) -> list[str]:
    """The tools whose recorded calls violate a policy."""
    written = {"version": 1, "name": "p", "on_violation": "deny", **policy}
    compiled = compile_policy(merge_policies(parse_policies(written)))
    (session,) = read_sessions([str(path)])
    return [found.tool_name or "" for found in judge_session(compiled, session).violations]


def monitored(tools: Sequence[Tool], *rules: dict[str, Any], **context: Any) -> Any:
    """The monitor of a run under these rules, for an agent with these tools."""
    written = {"version": 1, "name": "p", "on_violation": "deny", "tool_rules": [*rules]}
    return compile_policy(merge_policies(parse_policies(written)), tools=tuple(tools)).monitor(RunContext(**context))


def answer(tools: Sequence[Tool], rule: dict[str, Any], name: str, given: dict[str, Any], **context: Any) -> str:
    """The decision on one call under one rule."""
    return str(monitored(tools, rule, **context).propose(ToolCall(id="c", name=name, input=given)).action)


def write_lines(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def claude_log(folder: Path, *calls: tuple[str, dict[str, Any]]) -> Path:
    """A session log of Claude Code with these calls."""
    common = {"sessionId": "s", "cwd": "/work/repo", "type": "assistant", "version": "2.1"}
    lines = []
    for n, (name, given) in enumerate(calls):
        block = {"type": "tool_use", "id": f"t{n}", "name": name, "input": given}
        message = {"id": f"m{n}", "role": "assistant", "model": "claude-sonnet-4-5", "content": [block]}
        lines.append({**common, "uuid": f"u{n}", "message": message})
    return write_lines(folder / "claude.jsonl", *lines)


def codex_rollout(folder: Path, *calls: dict[str, Any]) -> Path:
    """A rollout of Codex with these calls."""
    meta = {"type": "session_meta", "payload": {"id": "s", "cwd": "/work/repo"}}
    items = [{"type": "response_item", "payload": {"call_id": f"c{n}", **call}} for n, call in enumerate(calls)]
    return write_lines(folder / "rollout.jsonl", meta, *items)


def function(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


PATCH = {
    "type": "custom_tool_call",
    "name": "apply_patch",
    "input": "*** Begin Patch\n*** Add File: /work/repo/a\n+x\n*** Update File: b\n*** Move to: ../b\n@@\n-x\n+y\n"
    "*** Delete File: c\n*** End Patch\n",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_table_names_portable_acts_and_the_paths_of_their_inputs(client: str) -> None:
    """An act without its input could not be evaluated by it."""
    for tool in CLIENTS[client]:
        for act in () if tool.is_family else tool.every_act:
            assert act in PORTABLE
            missing = {name for name in PORTABLE[act] if name not in tool.inputs and name not in tool.takes}
            assert missing <= {"content"}, tool.name


def sample_input(tool: Tool, name: str) -> dict[str, Any]:
    """An input with a value at the first path of each portable input, and of the values that distinguish the tool's
    acts.
    """
    given: dict[str, Any] = {}
    for key, (path, *_) in tool.inputs.items():
        root, *steps = path.removeprefix("$.").replace("[*]", ".0").split(".")
        value: Any = name if key != "to" else f"{name}2"
        for step in reversed(steps):
            value = [value] if step == "0" else {step: value}
        given[root] = value
    return given


@pytest.mark.parametrize("client", [*CLIENTS, *(f"hooks of {name}" for name in HOOKED)])
def test_a_call_without_the_input_of_its_act_is_denied_by_a_rule_on_that_input(client: str) -> None:
    """As a newer version of the client might rename it; live and recorded alike, and no other call is."""
    tools = HOOKED[name].tools if (name := client.removeprefix("hooks of ")) != client else CLIENTS[client]
    acts = [(tool, act) for tool in tools for act in tool.acts if set(needed(act)) & {*tool.inputs}]

    for tool, act in acts:
        where = [{"path": f"$.{key}", "regex": "secret"} for key in needed(act)]
        rules = [{"deny": [{"tool": act, "where": [condition]}]} for condition in where]
        calls: tuple[dict[str, Any], ...] = (
            {"brand_new": "secret"},
            {},
            sample_input(tool, "secret"),
            sample_input(tool, "fine"),
        )
        for name, table in product((tool.name, *tool.synonyms), (tools, recorded(portable(tools)))):
            monitor = monitored(table, *rules)
            found = [monitor.propose(ToolCall(id=f"{n}", name=name, input=given)) for n, given in enumerate(calls)]
            assert [each.action for each in found] == ["deny", "deny", "deny", "allow"], tool.name
            assert {each.violations[0].rule for each in found[:3]} <= {"deny-1", "deny-2"}
    assert acts


@pytest.mark.parametrize(
    ("client", "name", "act", "given"),
    [
        ("claude", "PowerShell", "bash", {"command": "sal g git; g push"}),
        ("copilot", "powershell", "bash", {"command": "sal g git; g push"}),
        ("claude", "Monitor", "fetch", {"ws": {"url": "wss://secret.example"}, "description": "d"}),
        ("claude", "Workflow", "task", {"script": "fine", "scriptPath": "secret.js"}),
        ("claude", "RemoteTrigger", "task", {"action": "create", "body": {"session_request": {}}}),
        ("copilot", "manage_schedule", "task", {"prompt": "fine"}),
        ("claude", "LSP", "read", {"operation": "hover", "filePath": "secret.py", "line": 1, "character": 1}),
        ("opencode", "lsp", "read", {"operation": "hover", "filePath": "secret.py", "line": 1, "character": 1}),
    ],
)
def test_a_rule_on_an_act_matches_every_tool_that_performs_it(
    client: str, name: str, act: str, given: dict[str, Any]
) -> None:
    """Even for a call that nobody recognises, or that names a harmless thing and does another."""
    [key] = needed(act)
    how: dict[str, Any] = {"runs": "git push"} if act == "bash" else {"contains": "secret"}
    denies = {"deny": [{"tool": act, "where": [{"path": f"$.{key}", **how}]}]}
    allows = {"allow": [{"tool": act, "where": [{"path": f"$.{key}", "equals": "fine"}]}]}
    for rule in (denies, allows):
        assert answer(HOOKED[client].tools, rule, name, given) == "deny"


@pytest.mark.parametrize("given", [{"names_only": True}, {"max_matches_per_file": 1}, {"wait_for_previous": True}])
def test_an_input_that_is_no_path_is_not_used_as_one(given: dict[str, Any]) -> None:
    """A search of Gemini CLI names no folder if it is in the working folder."""
    outside = {"tool": "grep", "where": [{"path": "$.path", "exists": True}]}

    assert answer(HOOKED["gemini"].tools, {"deny": [outside]}, "grep_search", {"pattern": "x", **given}) == "allow"


@pytest.mark.parametrize(("client", "name"), [("gemini", "list_directory"), ("opencode", "list")])
def test_a_tool_without_an_input_is_not_required_to_have_it(client: str, name: str) -> None:
    """Listing a folder is `glob` without a pattern."""
    outside = {"tool": "glob", "where": [{"path": "$.path", "regex": "secret"}]}
    key = "dir_path" if client == "gemini" else "path"

    for given, expected in ({}, "allow"), ({key: "src"}, "allow"), ({key: "secret"}, "deny"):
        assert answer(HOOKED[client].tools, {"deny": [outside]}, name, given) == expected


SPELT = {"copilot": "a-b-c", "gemini": "mcp_a_b_c", "opencode": "a_b_c"}


@pytest.mark.parametrize("client", SPELT)
@pytest.mark.parametrize("read", [False, True])
def test_a_servers_tool_is_denied_by_any_parse_of_its_name_and_allowed_only_by_all(client: str, read: bool) -> None:
    """Nothing marks where the server's name ends. Rules may also use the tool's own name."""
    tools, own = HOOKED[client].tools, SPELT[client]
    tools = recorded(portable(tools)) if read else tools
    between = own[-2]
    first, second = f"mcp__a__b{between}c", f"mcp__a{between}b__c"

    def decision(name: str, **rule: list[str]) -> str:
        return answer(tools, rule, name, {})

    assert {decision(own, deny=[name]) for name in (first, second.upper(), "mcp__a__*", own)} == {"deny"}
    assert {decision(own, allow=[name]) for name in (own, "mcp__a*")} == {"allow"}
    assert {decision(own, allow=[name]) for name in (first, second, "mcp__b__c", "bash")} == {"deny"}
    assert decision(own, allow=[first, second]) == "allow"
    assert {decision(name, deny=["mcp__*"]) for name in ("a", between, f"a{between}", f"{between}a")} == {"allow"}


def test_an_act_of_an_unknown_name_needs_no_input() -> None:
    """A third-party adapter may have one."""
    tools = (Tool(name="Ship", acts=("deploy",)), Tool(name="Note", acts=("",), takes=("text",)))

    assert [answer(tools, {"deny": ["deploy"]}, name, {}) for name in ("Ship", "Note")] == ["deny", "allow"]


@pytest.mark.parametrize(
    "tools",
    [*CLIENTS.values(), *(client.tools for client in HOOKED.values()), MOSTLY],
    ids=lambda tools: tools[0].name,
)
def test_no_name_of_a_known_tool_or_input_is_reported_as_misspelt(tools: Sequence[Tool]) -> None:
    """Neither without an agent nor for a loop with its own tools."""
    names = [name for tool in tools for name in (tool.name, *tool.synonyms)]
    inputs = [
        {"tool": one.name, "where": [{"path": f"$.{key}", "exists": True}]} for one in tools for key in one.takes
    ]
    policy = merge_policies(parse_policies({"name": "p", "tool_rules": [{"deny": [*names, *inputs]}]}))

    assert [str(one) for one in misspelt_tools(policy)] == []
    assert {name.casefold() for name in names} <= KNOWN


@pytest.mark.parametrize("tools", [CLIENTS["codex"], HOOKED["codex"].tools, HOOKED["opencode"].tools])
def test_a_patch_with_unknown_changes_is_denied_by_a_rule_on_its_paths(tools: tuple[Tool, ...]) -> None:
    """It may change any file in any way."""
    outside = {"tool": "write", "where": [{"not": [{"path": "$.path", "within": "."}]}]}
    inputs: tuple[dict[str, Any], ...] = (
        {"changes": []},
        {"patch": "x"},
        {"changes": [{"kind": "add"}]},
        {"changes": [{"kind": "add", "path": "a"}]},
    )
    found = [answer(tools, {"deny": [outside]}, "apply_patch", given, workspace="/w") for given in inputs]

    assert found == ["deny", "deny", "deny", "allow"]


@pytest.mark.parametrize("act", ["write", "edit", "delete", "move"])
def test_a_command_that_patches_files_that_nobody_knows_does_every_act(act: str) -> None:
    changes = shell_changes_of("cd $x && apply_patch <<'E'\n*** Begin Patch\n*** End Patch\nE\n", None)

    assert answer(HOOKED["codex"].tools, {"deny": [act]}, "apply_patch", {"changes": changes}) == "deny"


def test_one_policy_evaluates_recorded_calls_of_both_clients(tmp_path: Path) -> None:
    """`bash` is Claude's `Bash` and Codex's `shell`, under any name in its rollout. A file is outside the recorded
    folder. A patch is one call with several paths.
    """
    deny = {"tool_rules": [{"deny": ["bash"]}]}
    push = {"tool_rules": [{"deny": [{"tool": "bash", "where": [{"path": "$.command", "runs": "git push"}]}]}]}
    claude = claude_log(tmp_path, ("Bash", {"command": "ls"}), ("Bash", {"command": "ls; git push"}))
    shell = function("shell", command=["bash", "-lc", "ls; git push"])
    codex = codex_rollout(tmp_path, function("exec_command", cmd="ls"), shell)
    assert [violating_tools(deny, claude), violating_tools(deny, codex)] == [["Bash", "Bash"], ["shell", "shell"]]
    assert [violating_tools(push, claude), violating_tools(push, codex)] == [["Bash"], ["shell"]]

    outside = {"tool": ["write", "edit", "delete", "move"], "where": [{"not": [{"path": "$.path", "within": "."}]}]}
    policy = {"rules": [{"type": "blocklist", "tools": [outside]}]}
    inside, out = {"file_path": "/work/repo/a", "content": ""}, {"file_path": "/work/x", "content": ""}
    assert violating_tools(policy, claude_log(tmp_path, ("Write", inside), ("Write", out))) == ["Write"]
    patch = codex_rollout(tmp_path, PATCH)
    assert violating_tools(policy, patch) == ["apply_patch"]
    for act in ("write", "edit", "delete", "move", "apply_patch"):
        assert violating_tools({"tool_rules": [{"deny": [act]}]}, patch) == ["apply_patch"]
    assert violating_tools({"tool_rules": [{"deny": ["bash", "read"]}]}, patch) == []


def test_a_log_names_its_clients_tools(tmp_path: Path) -> None:
    """So it is evaluated alike wherever it is read, even if the client is unknown there."""
    start = events.RunStarted(provider="unheard-of", metadata={"portable_tools": portable(CLIENTS["codex"])})
    call = events.ToolCallStarted(tool_call_id="c", tool_name="shell", tool_input={"command": "ls"})
    path = tmp_path / "events.jsonl.gz"
    stamped = [msgspec.structs.replace(event, run_id="r", session_id="s") for event in (start, call)]
    path.write_bytes(gzip.compress(b"\n".join(map(encode_event, stamped))))

    assert violating_tools({"tool_rules": [{"deny": ["bash"]}]}, path) == ["shell"]
    assert recorded_tools([events.RunStarted(metadata={"portable_tools": "nonsense"})]) == ()


@pytest.mark.parametrize(("adapter", "own"), [
    (ClaudeAdapter(), "Bash"),
    (CodexAdapter(), "shell"),
    (AmpAdapter(), "Bash"),
    (AcpAdapter(["opencode", "acp"]), "execute"),
])  # fmt: skip
def test_an_adapter_declares_its_clients_tools(adapter: Adapter, own: str) -> None:
    """And its workspace. A rule on a command matches a call whose command has another input name."""
    can = adapter.capabilities

    assert own in [tool.name for tool in can.table if "bash" in tool.acts]
    assert can.offered is None
    assert can.workspace == str(Path.cwd())
    push = {"tool": "bash", "where": [{"path": "$.command", "runs": "git push"}]}
    monitor = monitored(can.judged_by, {"deny": [push]})
    inputs: tuple[dict[str, Any], ...] = ({"brand_new": "git push"}, {"command": "git push"}, {"command": "ls"})
    found = [monitor.propose(ToolCall(id=f"{n}", name=own, input=given)) for n, given in enumerate(inputs)]
    assert [[each.rule for each in one.violations] for one in found] == [["deny-1"], ["deny-1"], []]


@pytest.mark.parametrize("adapter", [ClaudeAdapter(), CodexAdapter()])
def test_a_misspelt_name_or_input_is_found_and_another_clients_name_is_not(adapter: Adapter) -> None:
    """A stack may name the tools of several clients. One that requires enforcement does not start with a typo."""

    def found(**policy: Any) -> list[tuple[str, str]]:
        stack = merge_policies(parse_policies({"version": 1, "name": "p", "enforcement": "required", **policy}))
        findings = preflight(stack, msgspec.structs.replace(adapter.capabilities, gate="all"))
        return [(each.code, each.severity) for each in findings if each.code.startswith("unknown_")]

    where = [{"path": "$.pth", "equals": "x"}]
    names = ["bash", "Bash", "shell", "apply_patch", "Write", "Monitor", "mcp__x__y", "my_tool"]
    assert found(tool_rules=[{"deny": names}]) == []
    assert found(tool_rules=[{"deny": ["bahs"]}]) == [("unknown_tool", "refuse")]
    written = [{"type": "blocklist", "tools": [{"tool": "write", "where": where}]}]
    assert found(rules=written) == [("unknown_input", "refuse")]


def test_logs_of_unknown_clients_are_evaluated_by_common_tool_names(tmp_path: Path) -> None:
    """The same acts, as several clients and frameworks name them, in the two formats that any of them may write."""
    acts = {
        "bash": [("Bash", "command"), ("run_shell_command", "command"), ("shell", "command"), ("bash", "command")],
        "write": [
            ("Write", "file_path"),
            ("write", "filePath"),
            ("write_file", "path"),
            ("create_file", "path"),
            ("write_file", "file_path"),
        ],
        "fetch": [("WebFetch", "url"), ("web_fetch", "url"), ("read_web_page", "url")],
    }
    values = {"bash": "cd x && git push", "write": "../outside", "fetch": "http://x"}
    conditions = {
        "bash": {"path": "$.command", "runs": "git push"},
        "write": {"not": [{"path": "$.path", "within": "."}]},
        "fetch": {"path": "$.url", "contains": "//x"},
    }
    for act, called in acts.items():
        tools = [name for name, _ in called]
        policy = {"rules": [{"type": "blocklist", "tools": [{"tool": act, "where": [conditions[act]]}]}]}
        calls = [
            {"type": "tool_call", "id": f"c{n}", "name": name, "arguments": {key: values[act]}}
            for n, (name, key) in enumerate(called)
        ]
        sessions = write_lines(tmp_path / "sessions.jsonl", {"id": "s", "events": calls})
        spans = [
            {
                "trace_id": "t", "span_id": f"{n}", "name": f"execute_tool {name}", "start_time": n, "end_time": n,
                "attributes": {
                    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": f"c{n}",
                    "gen_ai.tool.call.arguments": json.dumps({key: values[act]}),
                },
            }
            for n, (name, key) in enumerate(called)
        ]  # fmt: skip

        assert violating_tools(policy, sessions) == tools
        assert violating_tools(policy, write_lines(tmp_path / "otel.jsonl", *spans)) == tools


def test_an_ambiguous_name_stands_only_for_itself() -> None:
    """`search` of an ACP agent may be anything. A session with its own tools has no portable names."""
    calls = [events.ToolCallStarted(tool_call_id="c", tool_name=name) for name in ("search", "other", "get_order")]

    assert recorded_tools(calls, "sessions") == ()
    assert recorded_tools(calls) == ()


@pytest.mark.parametrize(("name", "given", "answers"), [
    ("execute", {"command": "git", "args": ["push"]}, ("deny", "deny")),
    ("execute", {"command": "git status", "cwd": "/w", "timeout": 5}, ("allow", "allow")),
    ("execute", {"command": "git status", "commands": ["git status"]}, ("allow", "allow")),
    ("execute", {"command": "git status", "commands": ["git push"]}, ("deny", "allow")),
    ("execute", {"title": "git status"}, ("allow", "allow")),
    ("execute", {"title": "git", "raw": ["git", "push"]}, ("deny", "deny")),
    ("execute", {"command": "touch ../a", "directories": ["/"], "patterns": ["/*"]}, ("allow", "allow")),
    ("execute", {"command": "git push", "directories": ["/"], "patterns": ["/*"]}, ("deny", "allow")),
    ("edit", {"filePath": "a", "newString": "x", "root": "/etc"}, ("deny", "allow")),
    ("edit", {"filePath": "a", "newString": "x", "filepath": "/w/a", "parentDir": "/w"}, ("allow", "allow")),
    ("edit", {"filePath": "a", "newString": "x", "filepath": "/b", "parentDir": "/"}, ("deny", "allow")),
    ("edit", {"filePath": "a", "newString": "x", "replaceAll": True}, ("allow", "allow")),
    ("edit", {"path": "a", "old_str": "y", "new_str": "x", "fileName": "/b"}, ("deny", "allow")),
    ("edit", {"path": "a", "file_text": "x", "fileName": "/w/a", "diff": "d"}, ("allow", "allow")),
])  # fmt: skip
def test_a_call_of_an_acp_agent_is_evaluated_by_its_whole_input(
    name: str, given: dict[str, Any], answers: tuple[str, str]
) -> None:
    """Any agent may speak the protocol. A deny by the portable name matches; an allow matches only by the call's own
    kind.
    """
    act = "bash" if name == "execute" else "edit"
    where = (
        {"path": "$.command", "runs": "git push"} if act == "bash" else {"not": [{"path": "$.path", "within": "."}]}
    )

    rules: tuple[dict[str, Any], ...] = ({"deny": [{"tool": act, "where": [where]}]}, {"allow": [act]})
    assert tuple(answer(CLIENTS["acp"], rule, name, given, workspace="/w") for rule in rules) == answers


@pytest.mark.parametrize(("input", "output", "still"), [
    ({"run_in_background": True}, "", True),
    ({"is_background": True}, None, True),
    ({"mode": "async"}, "started", True),
    ({"run_in_background": False, "mode": "sync"}, "Command finished", False),
    ({}, {"stdout": "", "backgroundTaskId": "b1"}, True),
    ({}, {"status": "async_launched", "agentId": "a"}, True),
    ({}, {"stdout": "", "backgroundTaskId": None}, False),
    ({}, {"llmContent": "Command moved to background (PID: 7). Output hidden."}, True),
    ({}, "half of it\nCommand did not complete within its 1s timeout and was moved to the background (ID: b).", True),
    ({}, [{"type": "text", "text": "Command moved to background (PID: 7). Output hidden."}], True),
    ({}, "a\n<command with shellId: 0 is still running after 30 seconds. The command is still running.", True),
    ({}, [{"type": "image"}, "text"], False),
])  # fmt: skip
def test_background_work_is_recognised_by_its_input_or_its_result(
    input: dict[str, Any], output: Any, still: bool
) -> None:
    """A client reports it if the model did not request it, as after a timeout."""
    assert runs_in_background("Bash", input, output) is still
    assert runs_in_background("RunWorkflow", input, output) is still  # as a model may call `Workflow`
    assert runs_in_background("Monitor", input, output)
    assert runs_in_background("collaborationspawn_agent", input, output)
    assert not runs_in_background("WebFetch", input, output)  # an address may return any text
