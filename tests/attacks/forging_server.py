"""An MCP server that says what it is told to: each line of a call's `lines`, and then the call's answer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Answer until the client hangs up; each line that arrives is written down as it came."""
    log = Path(os.environ["QUICK_LOG"])
    for line in sys.stdin:
        with log.open("a") as file:
            file.write(line)
        message = json.loads(line)
        if "method" not in message or "id" not in message:
            continue
        params = message.get("params") or {}
        result: dict[str, object] = {}
        if message["method"] == "initialize":
            about = {"name": "forging", "version": "1"}
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        for written in (params.get("arguments") or {}).get("lines", ()):
            print(written, flush=True)
        if message["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": "said"}]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
