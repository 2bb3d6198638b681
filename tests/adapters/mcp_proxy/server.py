"""A small real MCP server for tests: tools that leave traces or ask their client, a resource, a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("small")


@server.tool()
def write(path: str, text: str = "") -> str:
    """Write a file."""
    Path(path).write_text(text)
    return f"wrote {path}"


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool()
async def count(to: int, ctx: Context[Any, Any]) -> int:
    """Count, reporting progress."""
    for n in range(to):
        await ctx.report_progress(n + 1, to)
    return to


@server.resource("small://greeting")
def greeting() -> str:
    """A greeting."""
    return "hello"


@server.prompt()
def ask(topic: str) -> str:
    """A prompt."""
    return f"tell me about {topic}"


class Name(BaseModel):
    """The field that a person is asked for."""

    name: str


@server.tool()
async def complete(text: str, ctx: Context[Any, Any]) -> str:
    """Let the client's model continue a text."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    answer = await ctx.session.create_message([message], max_tokens=9)
    content: Any = answer.content
    return f"the model said {content.text}"


@server.tool(name="ask")
async def ask_a_person(question: str, ctx: Context[Any, Any]) -> str:
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
