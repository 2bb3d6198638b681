"""Tools of an MCP server given to an agent of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import Deny, Policy
from proctor.policies.events import ToolCallCompleted, ToolCallFailed
from proctor.supervisor import run_once

pytest.importorskip("openai", reason="the OpenAI Agents SDK is not installed: pip install '.[openai-agents]'")
pytest.importorskip("mcp", reason="MCP is not installed: pip install '.[mcp]'")
import openai
from agents import Agent, OpenAIResponsesModel
from agents.mcp import MCPServer
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool

from proctor.adapters import OpenAIAgentsAdapter


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


@pytest.mark.anyio
async def test_the_tools_of_a_server_are_gated_and_the_server_stays_as_it_was(api: Any) -> None:
    """A refused one is not called; one that raises or says so has failed."""
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
    assert [e.tool_name for e in result.events if isinstance(e, ToolCallCompleted)] == ["make"]
    assert [e.tool_name for e in result.events if isinstance(e, ToolCallFailed)] == ["broken", "sorry"]
    assert server.tool_input_guardrails is None
