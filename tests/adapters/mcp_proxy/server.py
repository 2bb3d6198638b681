"""A small real MCP server for the tests: tools that leave traces, a resource, a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

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


if __name__ == "__main__":
    server.run("stdio")
