"""Calls that the SDK passes to the caller's code, a sandbox or an MCP server are asked about first."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.policies import Deny, Policy, PolicyViolationError, parse_policies
from proctor.policies import events as ev
from proctor.supervisor import RunResult, run_once
from proctor.supervisor.testing import FakeApprover

pytest.importorskip("openai", reason="the OpenAI Agents SDK is not installed: pip install '.[openai-agents]'")
pytest.importorskip("mcp", reason="MCP is not installed: pip install '.[mcp]'")
import openai
from agents import Agent, ApplyPatchTool, CustomTool, LocalShellTool, OpenAIResponsesModel, RunConfig, ShellTool
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.mcp import MCPServer
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.sandboxes import UnixLocalSandboxClient
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool

from proctor.adapters import OpenAIAgentsAdapter

pytestmark = pytest.mark.anyio
Making = Callable[..., Any]


def local_shell(line: str, call_id: str = "c1") -> dict[str, Any]:
    action = {"type": "exec", "command": ["sh", "-c", line], "env": {}}
    return {"type": "local_shell_call", "id": f"i_{call_id}", "call_id": call_id, "action": action} | DONE


def shell(*lines: str, call_id: str = "c1") -> dict[str, Any]:
    action = {"commands": list(lines), "timeout_ms": 9_000, "max_output_length": 900}
    return {"type": "shell_call", "id": f"i_{call_id}", "call_id": call_id, "action": action} | DONE


def patch(kind: str, path: str, call_id: str = "c1") -> dict[str, Any]:
    operation = {"type": kind, "path": path} | ({} if kind == "delete_file" else {"diff": "+made"})
    return {"type": "apply_patch_call", "id": f"i_{call_id}", "call_id": call_id, "operation": operation} | DONE


def custom(text: str, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "custom_tool_call", "id": f"i_{call_id}", "call_id": call_id, "name": "remember", "input": text}


DONE = {"status": "completed"}


class Executor:
    """The caller's code, which runs commands in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, request: Any) -> str:
        """The input of a local shell or of a shell."""
        action = request.data.action
        lines = [" ".join(action.command[2:])] if hasattr(action, "command") else action.commands
        for line in lines:
            subprocess.run(line, shell=True, cwd=self.folder, check=True)
        return "done"

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        (self.folder / operation.path).write_text(operation.diff or "")
        return ApplyPatchResult(status="completed", output=f"created {operation.path}")

    update_file = create_file

    def delete_file(self, operation: ApplyPatchOperation) -> str:
        (self.folder / operation.path).unlink()
        return "deleted"

    async def remember(self, context: Any, text: str) -> str:
        (self.folder / text).touch()
        return f"remembered {text}"

    @property
    def tools(self) -> list[Any]:
        return [
            LocalShellTool(self.command),
            ShellTool(self.command),
            ApplyPatchTool(self),
            CustomTool(name="remember", description="remembers", on_invoke_tool=self.remember),
        ]

    @property
    def made(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def executor(tmp_path: Path) -> Executor:
    return Executor(tmp_path)


async def ran(api: Any, worker: Making, executor: Executor, items: list[Any], policy: str, **more: Any) -> RunResult:
    api.script = [*items, api.text("all done")]
    adapter = OpenAIAgentsAdapter(worker(tools=executor.tools))
    assert adapter.capabilities.gate == "all"
    text = f"{{name: p, enforcement: required, on_violation: deny, {policy}}}"
    return await run_once(adapter, "go", policies=parse_policies(text), **more)


def of(result: RunResult, *kinds: type[Any]) -> list[Any]:
    return [event for event in result.events if isinstance(event, kinds)]


ACTS = {
    "a local shell": (local_shell("touch evil"), "deny: [bash]", "local_shell"),
    "a local shell's command": (local_shell("true; touch evil"), "deny: [{tool: bash, where: [{path: $.command, "
    "contains: touch}]}]", "local_shell"),
    "a shell": (shell("true", "touch evil"), "deny: [bash]", "shell"),
    "a program of a shell's command": (shell("true", "cd . && touch evil"), "deny: [{tool: bash, where: [{path: "
    "$.command, runs: [touch]}]}]", "shell"),
    "a patch that creates": (patch("create_file", "evil"), "deny: [write]", "apply_patch"),
    "a patch outside": (patch("update_file", "evil"), "deny: [{tool: edit, where: [{path: $.path, "
    "not_equals: good}]}]", "apply_patch"),
    "a tool of free text": (custom("evil"), "deny: [{tool: remember, where: [{path: $.input, contains: evil}]}]",
    "remember"),
}  # fmt: skip


@pytest.mark.parametrize(("item", "rule", "name"), ACTS.values(), ids=ACTS)
async def test_a_denied_call_is_not_executed_and_the_model_gets_the_reason(
    api: Any, worker: Making, executor: Executor, item: dict[str, Any], rule: str, name: str
) -> None:
    """By portable names and inputs, under `enforcement: required`. The run continues."""
    result = await ran(api, worker, executor, [[item]], f"tool_rules: [{{{rule}}}]")
    (denied,) = of(result, ev.ToolCallDenied)

    assert executor.made == []
    assert (denied.tool_name, denied.tool_call_id) == (name, "c1")
    assert of(result, ev.ToolCallStarted, ev.ToolCallCompleted) == []
    assert (result.status, result.output) == ("completed", "all done")
    assert denied.tell_model in str(api.bodies[-1]["input"])


@pytest.mark.parametrize(("item", "tool_input"), [
    (shell("touch good"), {"action": {"commands": ["touch good"], "timeout_ms": 9_000, "max_output_length": 900}}),
    (patch("create_file", "good"), {"operation": {"type": "create_file", "path": "good", "diff": "+made"}}),
    (custom("good"), {"input": "good"}),
    (local_shell("touch good"), None),
], ids=["shell", "patch", "custom", "local shell"])  # fmt: skip
async def test_an_allowed_call_is_executed_once_and_recorded_once(
    api: Any, worker: Making, executor: Executor, item: dict[str, Any], tool_input: dict[str, Any] | None
) -> None:
    """With the evaluated input, under the model's own id."""
    result = await ran(api, worker, executor, [[item]], "tool_rules: []")
    (started,), (completed,) = of(result, ev.ToolCallStarted), of(result, ev.ToolCallCompleted)

    assert executor.made == ["good"]
    assert (started.tool_call_id, completed.tool_call_id, started.turn) == ("c1", "c1", 1)
    assert started.tool_input == tool_input or started.tool_input["action"]["command"] == ["sh", "-c", "touch good"]
    assert result.output == "all done"


async def test_a_call_limit_covers_all_kinds_of_calls(api: Any, worker: Making, executor: Executor) -> None:
    """Including several in one response."""
    items = [shell("touch a", call_id="c1"), patch("create_file", "b", call_id="c2"), custom("c", call_id="c3")]
    result = await ran(api, worker, executor, [items], "limits: {max_tool_calls: {max: 2, action: deny}}")

    assert len(executor.made) == 2
    assert (len(of(result, ev.ToolCallStarted)), len(of(result, ev.ToolCallDenied))) == (2, 1)


async def test_a_command_waits_for_approval(api: Any, worker: Making, executor: Executor) -> None:
    """The request shows it as it will run."""
    no = FakeApprover(False)
    rule = "tool_rules: [{deny: [bash], action: request_approval}]"
    result = await ran(api, worker, executor, [[shell("touch evil")]], rule, approver=no)
    (request,) = of(result, ev.ToolApprovalRequested)

    assert request.tool_input["action"]["commands"] == ["touch evil"]
    assert executor.made == []


async def test_a_call_that_cancels_ends_the_run_before_the_command(
    api: Any, worker: Making, executor: Executor
) -> None:
    """Nothing runs after it."""
    with pytest.raises(PolicyViolationError):
        await ran(api, worker, executor, [[shell("touch evil")]], "tool_rules: [{deny: [bash], action: cancel}]")

    assert executor.made == []


async def test_an_executor_that_raises_has_failed(api: Any, worker: Making, executor: Executor) -> None:
    """The SDK tells the model."""
    result = await ran(api, worker, executor, [[shell("exit 3")]], "tool_rules: []")

    assert [event.tool_call_id for event in of(result, ev.ToolCallFailed)] == ["c1"]
    assert of(result, ev.ToolCallCompleted) == []


def adapter(agent: Agent[Any]) -> OpenAIAgentsAdapter:
    config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
    return OpenAIAgentsAdapter(agent, run_config=config)


def in_a_sandbox(worker: Any, **more: Any) -> SandboxAgent[Any]:
    return SandboxAgent(name="worker", model=worker().model, **more)


async def ran_in_a_sandbox(api: Any, agent: Agent[Any], mark: Path, policy: str) -> RunResult:
    """One run in which the model requests a command, and then a patch."""
    text = "*** Begin Patch\n*** Add File: made\n+text\n*** End Patch\n"
    patch = {"type": "custom_tool_call", "id": "i2", "call_id": "c2", "name": "apply_patch", "input": text}
    api.script = [api.calls(("c1", "exec_command", {"cmd": f"touch {mark}"})), [patch], api.text("done")]
    return await run_once(adapter(agent), "go", policies=parse_policies(policy))


async def test_calls_of_a_sandbox_can_be_denied(api: Any, worker: Any, tmp_path: Path) -> None:
    """A command, and a patch."""
    mark = tmp_path / "mark"
    denied = "{name: p, on_violation: deny, tool_rules: [{deny: [exec_command, apply_patch]}]}"
    result = await ran_in_a_sandbox(api, in_a_sandbox(worker), mark, denied)

    assert not mark.exists()
    assert [e.tool_name for e in result.events if isinstance(e, ev.ToolCallDenied)] == ["exec_command", "apply_patch"]


async def test_calls_of_a_sandbox_are_recorded(api: Any, worker: Any, tmp_path: Path) -> None:
    """Each once."""
    mark = tmp_path / "mark"
    result = await ran_in_a_sandbox(api, in_a_sandbox(worker), mark, "{name: p}")
    started = [(e.tool_call_id, e.tool_name) for e in result.events if isinstance(e, ev.ToolCallStarted)]

    assert mark.exists()
    assert started == [("c1", "exec_command"), ("c2", "apply_patch")]


async def test_a_sandbox_does_not_start_if_enforcement_is_required(worker: Any) -> None:
    """Its tools are not known before the start."""
    policy = parse_policies("{name: p, enforcement: required, on_violation: deny, tool_rules: [{deny: [bash]}]}")
    made = adapter(in_a_sandbox(worker))

    assert made.capabilities.gate == "some"
    with pytest.raises(PolicyViolationError):
        await run_once(made, "go", policies=policy)


class Files(MCPServer):
    """A server with two tools, in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    @property
    def name(self) -> str:
        return "files"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[MCPTool]:
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        return [MCPTool(name=name, input_schema=schema) for name in ("make", "rm", "broken", "sorry")]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        if tool_name == "broken":
            raise KeyError("lost")
        self.ran.append(tool_name)
        content = [TextContent(type="text", text="so be it")]
        return CallToolResult(content=list(content), is_error=tool_name == "sorry")

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_the_tools_of_a_server_are_gated_and_the_server_is_unchanged(api: Any) -> None:
    """A denied one is not called. One that raises, or reports an error, has failed."""
    api.script = [
        api.calls(("1", "make", {}), ("2", "rm", {}), ("3", "broken", {}), ("4", "sorry", {})),
        api.text("done"),
    ]
    client = openai.AsyncOpenAI(base_url=api.url, api_key="none", max_retries=0)
    server = Files()
    agent = Agent(name="x", mcp_servers=[server], model=OpenAIResponsesModel(model="gpt-5.5", openai_client=client))
    adapter = OpenAIAgentsAdapter(agent)

    result = await run_once(adapter, "go", policy=Policy(name="p", tool_rules=(Deny(("rm",), action="deny"),)))

    assert adapter.capabilities.gate == "all"
    assert server.ran == ["make", "sorry"]
    assert [e.tool_name for e in result.events if isinstance(e, ev.ToolCallCompleted)] == ["make"]
    assert [e.tool_name for e in result.events if isinstance(e, ev.ToolCallFailed)] == ["broken", "sorry"]
    assert server.tool_input_guardrails is None
