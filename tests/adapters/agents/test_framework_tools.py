"""One policy decides alike on one act, whether Claude Code or a framework's agent performs it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import framework_bench
import pytest

from proctor.adapters import ToolRefused, supervise
from proctor.adapters.kit import client_tools, function_tools
from proctor.adapters.kit.client_tools import CLIENTS, recorded_tools
from proctor.adapters.kit.function_tools import tools_given
from proctor.policies import ToolCall, compile_policy, merge_policies, parse_policies, preflight
from proctor.policies.events import ToolCallCompleted, ToolCallRequested
from proctor.policies.events.run_context import Capabilities, RunContext, Tool, portable, recorded
from proctor.supervisor import MemoryStore, UsageError, run_once

OUTSIDE = {"not": [{"path": "$.path", "within": "."}]}
CLAUDE = {"bash": ("Bash", "command"), "write": ("Write", "file_path"), "read": ("Read", "file_path")}
CLAUDE |= {"fetch": ("WebFetch", "url")}
RULES: list[Any] = [
    "bash",
    "write",
    "read",
    "fetch",
    {"tool": "bash", "where": [{"path": "$.command", "runs": ["git push"]}]},
    {"tool": "write", "where": [OUTSIDE]},
    {"tool": "fetch", "where": [{"path": "$.url", "contains": "evil"}]},
    {"tool": "read", "where": [{"path": "$.path", "regex": "secret"}]},
]
ACTS = [
    ("bash", "ls"),
    ("bash", "true; git -C . push"),
    ("write", "inside.txt"),
    ("write", "../outside.txt"),
    ("read", "secret.txt"),
    ("read", "inside.txt"),
    ("fetch", "http://evil.example"),
    ("fetch", "http://fine.example"),
]
AGENTS = [
    framework_bench.pydantic_ai,
    framework_bench.openai_agents,
    framework_bench.langchain,
    framework_bench.langchain_untold,
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def policies(rule: Any, how: str) -> Any:
    return parse_policies({"version": 1, "name": "p", "on_violation": "deny", "tool_rules": [{how: [rule]}]})


def of_claude(rule: Any, how: str, workspace: str) -> list[bool]:
    """The decisions on these acts in Claude Code."""
    compiled = compile_policy(merge_policies(policies(rule, how)), tools=CLIENTS["claude"])
    monitor = compiled.monitor(RunContext(workspace=workspace))
    answers = []
    for n, (kind, what) in enumerate(ACTS):
        name, key = CLAUDE[kind]
        answers.append(monitor.propose(ToolCall(id=f"c{n}", name=name, input={key: what})).action == "allow")
    return answers


@pytest.mark.anyio
@pytest.mark.parametrize("make", AGENTS, ids=lambda made: made.__name__)
@pytest.mark.parametrize("how", ["deny", "allow"])
async def test_an_act_of_a_framework_agent_is_decided_as_that_of_claude_code(
    make: Any, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each act under each rule, by the developer's names of tool and parameters."""
    monkeypatch.chdir(tmp_path)
    for name in ("secret.txt", "inside.txt"):
        (tmp_path / name).touch()
    for rule in RULES:
        adapter = make([framework_bench.called(act) for act in ACTS])

        result = await run_once(adapter, "go", policies=policies(rule, how))

        denied = {violation.tool_call_id for violation in result.policy.violations}
        answers = [f"c{n}" not in denied for n in range(len(ACTS))]
        assert answers == of_claude(rule, how, str(tmp_path)), rule


@pytest.mark.parametrize("make", AGENTS[:-1], ids=lambda made: made.__name__)
def test_a_misspelt_tool_or_input_name_is_found(make: Any) -> None:
    """By the names and parameters of the agent's own functions."""

    def found(rule: Any) -> list[str]:
        findings = preflight(merge_policies(policies(rule, "deny")), make([]).capabilities)
        return [each.code for each in findings if each.code.startswith("unknown_")]

    assert found("run_comand") == ["unknown_tool"]
    assert found({"tool": "write_file", "where": [{"path": "$.pth", "equals": "x"}]}) == ["unknown_input"]
    for parameter in ("file_path", "path"):
        assert found({"tool": "write_file", "where": [{"path": f"$.{parameter}", "equals": "x"}]}) == []


def test_a_function_with_unclear_parameters_is_understood_in_part() -> None:
    """Otherwise its name alone would be allowed, although no rule can evaluate what it acts on."""
    assert function_tools.own_tool("write_file", ["text"]).unclear == ("path",)
    assert function_tools.own_tool("move_file", ["source"]).unclear == ("to",)
    assert function_tools.own_tool("refund", ["path"]).acts == ()
    assert function_tools.own_tool("Terminal", ["commands"]).acts == ("bash",)


def test_a_function_overrides_the_frameworks_tool_of_its_name() -> None:
    """If an agent has both, both inputs are read."""
    function: function_tools.Function = ("shell", {"properties": {"command": {}}})
    (own,) = (t for t in function_tools.own_tools([function], function_tools.OPENAI_AGENTS, ()) if t.name == "shell")
    (both,) = (
        t for t in function_tools.own_tools([function], function_tools.OPENAI_AGENTS, ["shell"]) if t.name == "shell"
    )

    assert own.inputs == {"command": ("$.command",)}
    assert both.inputs == {"command": ("$.command", "$.action.commands[*]")}


def test_the_fields_of_an_object_parameter_are_read() -> None:
    """pydantic-ai leaves a function's only parameter out of its schema, not out of its input."""
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="pip install '.[pydantic-ai]'")
    from pydantic import BaseModel
    from pydantic_ai.models.test import TestModel

    from proctor.adapters import PydanticAIAdapter

    class File(BaseModel):
        path: str

    def write_file(file: File) -> None:
        """Write it."""

    write_file.__annotations__ = {"file": File, "return": None}
    table = PydanticAIAdapter(pydantic_ai.Agent(TestModel(), tools=[write_file])).capabilities.table

    assert [each.inputs["path"] for each in table if each.name == "write_file"] == [("$.file.path",)]


@pytest.mark.parametrize(("name", "given", "rule"), [
    ("shell", {"action": {"commands": ["ls", "true; git push"]}}, RULES[4]),
    ("local_shell", {"action": {"command": ["bash", "-c", "git push"]}}, RULES[4]),
    ("apply_patch", {"operation": {"type": "create_file", "path": "../a", "diff": "+x"}}, RULES[5]),
    ("apply_patch", {"operation": {"type": "delete_file", "path": "a"}}, "delete"),
    ("web_search", {"action": {"type": "open_page", "url": "http://evil.example"}}, RULES[6]),
    ("web_search", {"action": {"type": "search", "query": "x"}}, "web_search"),
])  # fmt: skip
def test_the_sdks_own_tools_are_evaluated_by_their_effect(name: str, given: dict[str, Any], rule: Any) -> None:
    """They can't be held, so they are evaluated when the response shows them. A search is no `fetch`."""
    rules = (rule, "read", "fetch" if rule == "web_search" else "read")
    found = [answers_of(function_tools.OPENAI_AGENTS, name, given, of, "deny") for of in rules]

    assert found == ["deny", "allow", "allow"]


def write_file(path: str) -> str:
    """Write a file."""
    return path


def tool_forms() -> list[Any]:
    """The same tool in the forms that loops have."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return [
        write_file,
        {"type": "function", "function": {"name": "write_file", "parameters": schema}},
        {"name": "write_file", "input_schema": schema},
        SimpleNamespace(name="write_file", params_json_schema=schema),
        SimpleNamespace(name="write_file", inputSchema=schema),
        SimpleNamespace(name="write_file", input_schema=dict, args={"path": {"type": "string"}}),
    ]


def test_a_tool_is_recognised_in_every_form_that_a_loop_has() -> None:
    """A function, a schema for a model, a framework's tool, an MCP server's; by its name alone less is known."""
    write = Tool(name="write_file", acts=("write",), inputs={"path": ("$.path",)}, takes=("path",))
    [named, other] = tools_given(["write_file", "refund"])

    assert tools_given(tool_forms()) == (write,) * 6
    assert (named.acts, named.inferred, named.takes) == (("write",), True, ())
    assert other == Tool(name="refund")
    none_of_them: list[Any] = ["write_file", [7], [{"parameters": {}}]]
    for wrong in none_of_them:
        with pytest.raises(UsageError):
            tools_given(wrong)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "tools",
    [None, ["run_command", "save"], ["save", framework_bench.run_command]],
    ids=("none", "names", "functions"),
)
async def test_a_loop_and_its_log_are_evaluated_by_the_same_names(tools: Any) -> None:
    """Whether or not its tools are declared: the name and the input of a call are enough."""
    denied = policies(RULES[4], "deny")
    store = MemoryStore()
    async with supervise(denied, store=store, tools=tools, run_id="r") as gate:
        for command in ("ls", "true; git push"):
            with suppress(ToolRefused):
                await gate.call("run_command", {"cmd": command}, AsyncMock(return_value=""))
    events = [event async for event in store.read(gate.result.session_id)]
    compiled = compile_policy(merge_policies(denied))
    evaluated = compiled.for_tools(recorded_tools(events)).monitor(RunContext())
    requested = [event for event in events if isinstance(event, ToolCallRequested)]
    calls = [ToolCall(id=each.tool_call_id, name=each.tool_name, input=each.tool_input) for each in requested]

    assert [violation.tool_call_id for violation in gate.result.policy.violations] == ["call-2"]
    assert [evaluated.propose(call).action for call in calls] == ["allow", "deny"]


@pytest.mark.anyio
async def test_a_nested_toolset_is_read() -> None:
    """An MCP server's tool, which is not known in advance, is recognised by its name and its input."""
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="pip install '.[pydantic-ai]'")
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.toolsets import CombinedToolset, FunctionToolset

    from proctor.adapters import PydanticAIAdapter

    inner = FunctionToolset([framework_bench.write_file])
    wrapped = CombinedToolset([inner.filtered(lambda ctx, tool: True), inner.prefixed("my")])
    can_do = PydanticAIAdapter(pydantic_ai.Agent(TestModel(), toolsets=[wrapped])).capabilities

    def answer(name: str, given: Any) -> str:
        return answers_of(can_do.judged_by, name, given, "delete", "deny")

    assert [each.acts for each in can_do.table if each.name == "write_file"] == [("write",)]
    assert answer("delete_file", {"file": "x"}) == "deny"
    assert answer("delete_file", {"row": "x"}) == "deny"
    assert answer("drop_file", {"row": "x"}) == "allow"


PUSH, ESCAPE = RULES[4], RULES[5]
INSIDE = {"tool": "write", "where": [{"path": "$.path", "within": "."}]}
ONLY_GIT = {"tool": "bash", "where": [{"path": "$.command", "regex": "^git$"}]}
HALF = [
    ("run_command", {"command": "git", "args": ["push"]}, PUSH, ONLY_GIT),
    ("execute_command", {"command": "git", "env": {"A": "b"}}, PUSH, ONLY_GIT),
    ("run_command", {"script": "git push"}, PUSH, ONLY_GIT),
    *(
        ("write_file", {"path": "x", place: "/etc"}, ESCAPE, INSIDE)
        for place in ("directory", "root", "cwd", "base_dir")
    ),
    ("write_file", {"path": "x", "files": [{"path": "/etc/passwd"}]}, ESCAPE, INSIDE),
    ("write_file", {"files": [{"path": "/etc/passwd"}]}, ESCAPE, INSIDE),
]


@pytest.mark.parametrize("command", [{"program": "git", "args": ["push"]}, [["git"], ["push"]], [["git", "push"]], 7])
def test_a_command_that_is_neither_text_nor_a_list_is_unresolvable(command: Any) -> None:
    """It is unknown how its parts become a command."""
    for tools in ((function_tools.own_tool("run_command", ["command"]),), function_tools.MOSTLY):
        assert answers_of(tools, "run_command", {"command": command}, PUSH, "deny") == "deny"


@pytest.mark.parametrize("place", ["new_text", "new", "newText", "new_string", "newString", "new_str", "text"])
def test_the_inserted_text_of_an_edit_is_its_content(place: str) -> None:
    """Whatever the parameter's name is."""
    rule = {"tool": "edit", "where": [{"path": "$.content", "contains": "SECRET"}]}
    for tools in ((function_tools.own_tool("edit_file", ["path", "old", place]),), function_tools.MOSTLY):
        given = {"path": "x", "old": "a", place: "SECRET"}
        assert answers_of(tools, "edit_file", given, rule, "deny") == "deny"
        assert answers_of(tools, "edit_file", {**given, place: "fine"}, rule, "deny") == "allow"


def answers_of(tools: Any, name: str, given: dict[str, Any], rule: Any, how: str) -> str:
    """The decision on a call under one rule, for an agent with these tools."""
    compiled = compile_policy(merge_policies(policies(rule, how)), tools=tools)
    return compiled.monitor(RunContext(workspace="/w")).propose(ToolCall(id="c", name=name, input=given)).action


@pytest.mark.parametrize(("name", "given", "denied", "allowed"), HALF)
@pytest.mark.parametrize("found", ["by its parameters", "by its name", "in records"])
def test_a_call_understood_in_part_is_denied_by_its_portable_name_and_not_allowed_by_it(
    name: str, given: dict[str, Any], denied: Any, allowed: Any, found: str
) -> None:
    """The effect of its other parameters is unknown."""
    tools = {
        "by its parameters": (function_tools.own_tool(name, given),),
        "by its name": function_tools.MOSTLY,
        "in records": client_tools.GENERIC_TOOLS,
    }[found]
    tools = recorded(portable(tools))

    act = denied["tool"]
    assert answers_of(tools, name, given, denied, "deny") == "deny"
    assert answers_of(tools, name, given, act, "deny") == "deny"
    assert answers_of(tools, name, given, allowed, "allow") == "deny"
    assert answers_of(tools, name, given, act, "allow") == "deny"
    assert answers_of(tools, name, given, name, "allow") == "allow"


def test_a_parameter_with_a_default_counts_even_if_no_call_has_it() -> None:
    """The default itself is not known."""
    schema = {"name": "write_file", "input_schema": {"properties": {"path": {}, "directory": {"default": "/etc"}}}}
    (tool,) = tools_given([schema])
    assert (tool.acts, tool.unclear) == (("write",), ("directory",))
    assert answers_of((tool,), "write_file", {"path": "x"}, ESCAPE, "deny") == "deny"


@pytest.mark.parametrize(("name", "given"), [
    ("run_command", {"command": "git status", "timeout": 5, "description": "look"}),
    ("run_command", {"command": "git status", "args": []}),
    ("bash", {"command": "git status", "run_in_background": True}),
])  # fmt: skip
def test_harmless_parameters_are_understood(name: str, given: dict[str, Any]) -> None:
    """So a tool with a timeout is still `bash`, and a missing parameter changes nothing."""
    for tools in (function_tools.MOSTLY, client_tools.GENERIC_TOOLS):
        assert answers_of(tools, name, given, PUSH, "deny") == "allow"
        assert answers_of(tools, name, given, "bash", "allow") == "allow"


def test_a_call_understood_in_part_is_no_evidence_and_matches_every_virtual_name() -> None:
    """It satisfies no prerequisite, and every deny matches it."""
    policy = parse_policies(
        {
            "version": 1,
            "name": "p",
            "on_violation": "deny",
            "virtual_tools": [{"tool": "bash", "path": "$.command", "match": "git push", "as": "git-push"}],
            "tool_rules": [{"deny": ["git-push"]}],
            "rules": [{"type": "before", "first": "write", "then": "deploy"}],
        }
    )
    monitor = compile_policy(merge_policies(policy), tools=function_tools.MOSTLY).monitor(RunContext(workspace="/w"))
    monitor.propose(ToolCall(id="c1", name="write_file", input={"path": "x", "directory": "/etc"}))
    monitor.observe(ToolCallCompleted(tool_call_id="c1", tool_name="write_file"))

    assert monitor.propose(ToolCall(id="c2", name="deploy", input={})).action == "deny"
    push = ToolCall(id="c3", name="run_command", input={"command": "git", "args": ["push"]})
    assert monitor.propose(push).action == "deny"


def test_preflight_reports_tools_that_are_understood_in_part() -> None:
    """With their parameters and the consequence."""
    tools = tools_given([{"name": "run_command", "parameters": {"properties": {"command": {}, "args": {}}}}])
    found = preflight(merge_policies(policies(PUSH, "deny")), Capabilities(gate="all", tools=tools))

    (finding,) = [each for each in found if each.code == "understood_in_part"]
    assert "`run_command`" in finding.message
    assert "`args`" in finding.message
    assert "understood_in_part" not in [
        each.code
        for each in preflight(merge_policies(policies("refund", "deny")), Capabilities(gate="all", tools=tools))
    ]
