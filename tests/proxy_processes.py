"""`proctor mcp` as a process before a server, spoken to in raw lines and raw HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from warm_proctor import warm_proctor

from proctor.supervisor.testing.fakes import PATIENCE_S

QUICK = Path(__file__).parent / "adapters" / "mcp_proxy" / "quick_server.py"
LENIENT = Path(__file__).parent / "attacks" / "lenient_server.py"
POLICY = "{name: p, tool_rules: [{deny: [write], action: deny}]}"
HELLO = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def proctor() -> str:
    """The program, which need not read the library of MCP in."""
    return str(warm_proctor("adapters.mcp_proxy"))


def command(folder: Path, *more: str, policy: str = POLICY, server: Path = QUICK) -> list[str]:
    """A proxy before the server that writes files."""
    (folder / "policy.yaml").write_text(policy)
    options = ["--policy", str(folder / "policy.yaml"), "--store", str(folder / "store.db"), *more]
    return [proctor(), "mcp", *options, "--", sys.executable, "-S", str(server)]


def environment(folder: Path) -> dict[str, str]:
    """That of a proxy; the server writes down what it was asked."""
    return {"PATH": "/usr/bin:/bin", "QUICK_LOG": str(folder / "asked.log")}


def talk(
    folder: Path, *lines: str | bytes, ids: tuple[int | str, ...] = (), **how: Any
) -> tuple[list[dict[str, Any]], str]:
    """What the client is answered to these lines, after a handshake, and what the server was asked.

    It hangs up when its last ping and the requests with `ids` are answered. `how`: the policy and the server.
    """
    left: set[Any] = {"last", *ids}
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    sent = b"".join(line + b"\n" for line in (line_of(HELLO), line_of(READY), *raw, last_ping().encode()))
    with subprocess.Popen(
        command(folder, **how), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(folder)
    ) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdin.write(sent)
        proxy.stdin.flush()
        answers = []
        for line in proxy.stdout:
            answers.append(json.loads(line))
            left.discard(answers[-1].get("id"))
            if not left:
                break
        proxy.stdin.close()
        proxy.wait(PATIENCE_S)
    return answers, (folder / "asked.log").read_text()


def line_of(message: dict[str, Any]) -> bytes:
    """A message as a line without its end."""
    return json.dumps(message).encode()


def last_ping() -> str:
    """The request whose answer comes after everything before it was dealt with."""
    return json.dumps({"jsonrpc": "2.0", "id": "last", "method": "ping"})


def call(tool: str, id: Any = 7, /, **arguments: Any) -> str:
    """A proper call of a tool, as one line."""
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


def error_code(answers: list[dict[str, Any]], id: Any = 7) -> int | None:
    """The code of the error that answered a request, if one did."""
    return next((answer["error"]["code"] for answer in answers if answer.get("id") == id and "error" in answer), None)


class ProxyOverHttp:
    """A proxy that listens on a free port; entering it gives its URL and what its server was asked."""

    def __init__(self, folder: Path, **how: Any) -> None:
        self.folder = folder
        self.how = how

    def __enter__(self) -> tuple[str, Path]:
        self.process = subprocess.Popen(
            command(self.folder, "--listen", "127.0.0.1:0", **self.how),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(self.folder),
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "listening on " in line:
                return line.rpartition("listening on ")[2].strip(), self.folder / "asked.log"
        raise AssertionError("the proxy did not start")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.process.wait(PATIENCE_S)


def post(url: str, message: Any, *, method: str = "POST", **headers: str) -> tuple[int, dict[str, str]]:
    """The status and headers of the answer; `message` may be the bytes of a body."""
    both = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    request = urllib.request.Request(url, body if method == "POST" else None, both, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            answer.read()
            return answer.status, {key.lower(): value for key, value in answer.headers.items()}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {}
