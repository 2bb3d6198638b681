"""A small MCP server over stdio: `echo` writes a file and gives the text back, `peek` says it only reads."""

import json
import pathlib
import sys
from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "echo", "description": "writes", "inputSchema": TEXT},
    {"name": "peek", "description": "reads", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of one request."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = params["arguments"]["text"]
        pathlib.Path(sys.argv[1], f"{params['name']}.called").write_text(text)
        return {"content": [{"type": "text", "text": f"said {text}"}]}
    return {}


pathlib.Path(sys.argv[1], "started").touch()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
