"""A real MCP server whose tools ask their client: for a completion, for a person's answer, for its folders."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("asking")


class Name(BaseModel):
    """What a person is asked for."""

    name: str


@server.tool()
async def complete(text: str, ctx: Context[Any, Any]) -> str:
    """Have the client's model go on with a text."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    answer = await ctx.session.create_message([message], max_tokens=9)
    content: Any = answer.content
    return f"the model said {content.text}"


@server.tool()
async def ask(question: str, ctx: Context[Any, Any]) -> str:
    """Ask a person."""
    answer = await ctx.elicit(question, Name)
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}".strip()


@server.tool()
def bash(command: str) -> str:
    """Stands for a tool that runs commands."""
    return f"ran {command}"


@server.tool()
def execute_command(command: str) -> str:
    """Another such tool, under another name."""
    return f"ran {command}"


@server.tool()
def write_file(path: str, content: str) -> str:
    """Stands for a tool that writes."""
    return f"wrote {path}"


if __name__ == "__main__":
    server.run("stdio")
