"""An MCP server that accepts too much: it reads ids as JavaScript numbers, and answers cancelled requests late.

A tool whose name begins with `hold` is answered at the next call of `release`, even if it was cancelled; every other
tool at once. `_test` in the name makes it fail. Each line is logged as it arrives.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

TEXT = [{"type": "text", "text": "done"}]


def as_javascript(id: Any) -> Any:
    """A request's id as a JavaScript server parses it."""
    return int(float(id)) if isinstance(id, int) else id


def reply(id: Any, result: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": as_javascript(id), "result": result}), flush=True)


def main() -> None:
    held: list[tuple[Any, str]] = []
    log = Path(os.environ["QUICK_LOG"])
    for line in sys.stdin:
        with log.open("a") as file:
            file.write(line)
        message = json.loads(line)
        if "method" not in message or "id" not in message:
            continue
        id, params = message["id"], message.get("params") or {}
        if message["method"] == "initialize":
            about = {"name": "lenient", "version": "1"}
            version = params["protocolVersion"]
            reply(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about})
            print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}), flush=True)
        elif message["method"] != "tools/call":
            reply(id, {})
        elif params["name"].startswith("hold"):
            held.append((id, params["name"]))
        else:
            ended = held if params["name"] == "release" else []
            for each, name in [*ended, (id, params["name"])]:
                reply(each, {"content": TEXT, "isError": "_test" in name})
            ended.clear()


if __name__ == "__main__":
    main()
