"""A small real MCP server for the tests: tools that leave traces, a resource, a prompt."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("small")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def read(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


@server.tool()
def write(path: str, text: str = "") -> str:
    """Write a file."""
    Path(path).write_text(text)
    return f"wrote {path}"


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it does not work")


@server.tool()
def crash() -> str:
    """End the process."""
    os._exit(7)


@server.tool()
def babble() -> str:
    """Write what is no message, then answer."""
    print("this is no JSON", file=sys.__stdout__, flush=True)
    os.write(1, b"{broken\n")
    return "babbled"


@server.tool()
async def count(to: int, ctx: Context[Any, Any]) -> int:
    """Count, reporting progress."""
    for n in range(to):
        await ctx.report_progress(n + 1, to)
    return to


@server.tool()
async def hang(path: str) -> str:
    """Say so in a file, then never answer."""
    await anyio.Path(path).write_text(str(os.getpid()))
    await anyio.sleep_forever()
    return ""


@server.resource("small://greeting")
def greeting() -> str:
    """A greeting."""
    return "hello"


@server.prompt()
def ask(topic: str) -> str:
    """A prompt."""
    return f"tell me about {topic}"


if __name__ == "__main__":
    server.run("streamable-http" if "--http" in sys.argv else "stdio")
