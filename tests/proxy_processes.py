"""`proctor mcp` as a process with a server; clients send raw lines and raw HTTP."""

import http.client
import json
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.forked_programs import warm_proctor

QUICK = Path(__file__).parent / "adapters" / "mcp_proxy" / "quick_server.py"
LENIENT, HOSTILE = (Path(__file__).parent / "attacks" / f"{name}_server.py" for name in ("lenient", "hostile"))
POLICY = "{name: p, tool_rules: [{deny: [write], action: deny}]}"
HELLO = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
SESSION = "mcp-session-id"
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def proctor() -> str:
    """The program, with the MCP library already imported."""
    return str(warm_proctor("proctor.adapters.mcp_proxy.*"))


def command(folder: Path, *more: str, policy: str = POLICY, server: Path | str = QUICK) -> list[str]:
    """A proxy for a program, by default the server that writes files, or for a URL."""
    (folder / "policy.yaml").write_text(policy)
    options = ["--policy", str(folder / "policy.yaml"), "--store", str(folder / "store.db"), *more]
    if isinstance(server, str):
        return [proctor(), "mcp", *options, "--url", server]
    return [proctor(), "mcp", *options, "--", sys.executable, *_alone(server), str(server)]


def _alone(server: Path) -> list[str]:
    """The option for a server on the standard library alone, which starts faster."""
    return [] if "import MCPServer" in server.read_text() else ["-S"]


def environment(folder: Path) -> dict[str, str]:
    """A proxy's environment; the server logs its requests."""
    answers = {"QUICK_ANSWERS": str(folder / "answers.json")}
    return {"PATH": "/usr/bin:/bin", "QUICK_LOG": str(folder / "asked.log"), **answers}


class Talk:
    """A client that writes its own lines after a handshake, and then disconnects.

    Args:
        folder: where all files are written.
        more: options of the proxy.
        answers: the script of the hostile server.
        hello: whether there is a handshake.
        how: the policy and the server.
    """

    def __init__(self, folder: Path, *more: str, answers: Any = None, hello: bool = True, **how: Any) -> None:
        (folder / "answers.json").write_text(json.dumps(answers or {}))
        self.folder = folder
        self.got: list[dict[str, Any]] = []
        self.code: int | None = None
        with (folder / "shown").open("wb") as shown:
            words, pipe = command(folder, *more, **how), subprocess.PIPE
            self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=shown, env=environment(folder))
        if hello:
            self.send(line_of(HELLO), line_of(READY))

    def send(self, *lines: str | bytes) -> None:
        """Write these lines."""
        assert self._process.stdin is not None
        for line in lines:
            self._process.stdin.write((line if isinstance(line, bytes) else line.encode()) + b"\n")
        self._process.stdin.flush()

    def until(self, *ids: Any) -> None:
        """Read until these requests are answered, or the proxy has exited."""
        assert self._process.stdout is not None
        left = set(ids)
        while left and (line := self._process.stdout.readline()):
            self.got.append(json.loads(line))
            if "method" not in self.got[-1]:
                left.discard(self.got[-1].get("id"))

    def answer(self, id: Any) -> dict[str, Any]:
        """The latest answer to a request."""
        return next(m for m in reversed(self.got) if m.get("id") == id and "method" not in m)

    def result(self, id: Any) -> Any:
        """The result of a request; asserts that it is no error."""
        return self.answer(id)["result"]

    def error(self, id: Any) -> int | None:
        """The code of the error that a request was answered with, if any."""
        return next((int(m["error"]["code"]) for m in self.got if m.get("id") == id and "error" in m), None)

    @property
    def server_log(self) -> str:
        """Every line that the server got."""
        return (self.folder / "asked.log").read_text()

    @property
    def shown(self) -> str:
        """The operator's output."""
        return (self.folder / "shown").read_bytes().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self.code = self._process.wait(PATIENCE_S)


def talk(
    folder: Path, *lines: str | bytes, ids: tuple[int | str, ...] = (), more: tuple[str, ...] = (), **how: Any
) -> Talk:
    """The answers to these lines once a last ping and the requests with `ids` are answered."""
    with Talk(folder, *more, **how) as client:
        client.send(*lines, last_ping())
        client.until("last", *ids)
    return client


def line_of(message: dict[str, Any]) -> bytes:
    """A message as a line without its end."""
    return json.dumps(message).encode()


def last_ping() -> str:
    """A request that is answered after everything before it was handled."""
    return json.dumps({"jsonrpc": "2.0", "id": "last", "method": "ping"})


def call(tool: str, id: Any = 7, /, **arguments: Any) -> str:
    """A valid tool call, as one line."""
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


class ProxyOverHttp:
    """A proxy that listens on a free port; entering it returns its URL and the requests that its server got."""

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
    """The status and headers of the response; `message` may be the bytes of a body."""
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


class Posted:
    """A request over HTTP whose messages are read as they arrive, until its answer."""

    def __init__(self, url: str, message: str | None = None, *, method: str = "POST", **headers: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
        both = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
        self._connection.request(method, urlsplit(url).path, message, both)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        if self.status != 200:
            self._close()

    def next(self) -> dict[str, Any]:
        """The next message."""
        data = next(line for line in self._response if line.startswith(b"data:"))
        message: dict[str, Any] = json.loads(data[5:])
        if "method" not in message:
            self._close()
        return message

    def answer(self) -> dict[str, Any]:
        """The answer: a server's own requests may come before it."""
        while "method" in (message := self.next()):
            pass
        return message

    def _close(self) -> None:
        self._response.close()
        self._connection.close()
