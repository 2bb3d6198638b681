"""An HTTP server on loopback, for every scripted API of the tests: `import loopback`.

Each API defines its requests and answers; this file has what they share.
"""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from proctor.supervisor.testing.fakes import PATIENCE_S

Answer = Callable[["Exchange"], None]


class Exchange:
    """One request, to be answered by `give` or `stream`, or by closing the connection."""

    def __init__(self, handler: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        self._handler = handler
        self._closing = closing
        self.method = handler.command
        self.path = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.raw = handler.rfile.read(int(handler.headers.get("content-length") or 0))

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body."""
        found: dict[str, Any] = json.loads(self.raw) if self.raw else {}
        return found

    def give(
        self, body: Mapping[str, Any] | bytes, *, status: int = 200, kind: str = "application/json", **headers: str
    ) -> None:
        """Answer with a whole body; a mapping is JSON. `headers`: more of them, by their names with `_` for `-`."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self._begin(status, kind, {"content-length": str(len(data)), **more})
        self._handler.wfile.write(data)

    def stream(self, events: Iterable[Mapping[str, Any] | str]) -> None:
        """Answer with server-sent events as they come, each named by its `type` if it has one; then close."""
        self._begin(200, "text/event-stream", {"connection": "close"})
        for event in events:
            name = f"event: {event['type']}\n" if isinstance(event, Mapping) and "type" in event else ""
            data = event if isinstance(event, str) else json.dumps(event)
            self._handler.wfile.write(f"{name}data: {data}\n\n".encode())
            self._handler.wfile.flush()

    def close_input(self) -> None:
        """Close the connection, whatever was answered."""
        self._handler.close_connection = True
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Send nothing more until the server is closed."""
        self._closing.wait()

    def _begin(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        self._handler.send_response(status)
        self._handler.send_header("content-type", kind)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()


class Server:
    """Answers each request in its own thread until it is closed, at `url`.

    Args:
        answer: answers one request; only a client that disconnected may make it fail.
        port: the port, 0 for a free one.
    """

    def __init__(self, answer: Answer, *, port: int = 0) -> None:
        self.closing = threading.Event()
        self._server = _Threading(("127.0.0.1", port), _handler(answer, self.closing))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Release everything that is held, and stop serving."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def raw(place: str, *pieces: bytes) -> bytes:
    """The response of `HOST:PORT` to these bytes until the other side closes, even while they are being sent."""
    host, _, port = place.rpartition(":")
    answered: list[bytes] = []
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection, suppress(ConnectionError):
        for piece in pieces:
            connection.sendall(piece)
        answered.extend(iter(lambda: connection.recv(65536), b""))
    return b"".join(answered)


class _Threading(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # disconnecting clients are part of some tests
            super().handle_error(request, client_address)


def _handler(answer: Answer, closing: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(Exchange(self, closing))

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
