"""An MCP server on the standard library alone, so that it starts quickly; its tools leave traces."""

import json
import os
import sys
from pathlib import Path
from typing import Any

TOOLS: dict[str, dict[str, Any]] = {
    "read": {"readOnlyHint": True},
    "write": {},
    "add": {"destructiveHint": False},
    "fail": {},
    "crash": {},
    "babble": {},
    "hang": {},
}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a call, or None if there will be none."""
    if name in ("read", "write"):
        Path(arguments["path"]).write_text(arguments.get("text", ""))
        return {"content": [{"type": "text", "text": "wrote it"}]}
    if name == "add":
        total = {"sum": arguments["a"] + arguments["b"]}
        return {"content": [{"type": "text", "text": json.dumps(total)}], "structuredContent": total}
    if name == "fail":
        return {"content": [{"type": "text", "text": "it does not work"}], "isError": True}
    if name == "crash":
        os._exit(7)
    if name == "babble":
        print("this is no message", flush=True)
        return {"content": [{"type": "text", "text": "babbled"}]}
    Path(arguments["path"]).write_text(str(os.getpid()))
    return None


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        version = params["protocolVersion"]
        about = {"name": "quick", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}, "tasks": {}}, "serverInfo": about}
    if method == "tools/list":
        schema = {"type": "object"}
        tools = [{"name": name, "inputSchema": schema, "annotations": hints} for name, hints in TOOLS.items()]
        at = int(params.get("cursor") or 0)
        page: dict[str, Any] = {"tools": tools[at : at + 4]}
        return {**page, "nextCursor": str(at + 4)} if at + 4 < len(tools) else page
    if method == "tools/call":
        return called(params["name"], params.get("arguments") or {})
    return {}


def noted(method: str) -> None:
    """Log a request, if enabled."""
    if log := os.environ.get("QUICK_LOG"):
        with Path(log).open("a") as file:
            print(method, file=file)


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        noted(message.get("method", ""))
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            if result is not None:
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
