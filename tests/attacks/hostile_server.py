"""A hostile MCP server: raw lines on its standard output and error, and odd answers.

`QUICK_ANSWERS` is a file with a JSON object: for each method its answers, in turn if they are a list, and the lines
to write first. A line is hexadecimal, or a number of letters.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "h", "version": "1"}}


def line_of(text: str | int) -> bytes:
    return (b"x" * text if isinstance(text, int) else bytes.fromhex(text)) + b"\n"


def main() -> None:
    log = Path(os.environ["QUICK_LOG"])
    answers: dict[str, Any] = json.loads(Path(os.environ["QUICK_ANSWERS"]).read_text())
    for text in answers.get("stderr", ()):
        sys.stderr.buffer.write(line_of(text))
        sys.stderr.flush()
    for line in sys.stdin:
        with log.open("a") as file:
            file.write(line)
        message = json.loads(line)
        if "method" not in message or "id" not in message:
            continue
        for text in answers.get(f"before {message['method']}", ()):
            sys.stdout.buffer.write(line_of(text))
            sys.stdout.flush()
        default: Any = HELLO if message["method"] == "initialize" else {}
        if message["method"] == "tools/call":
            default = {"content": [{"type": "text", "text": "done"}]}
        result = answers.get(message["method"], default)
        if isinstance(result, list):
            result = result.pop(0)
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
