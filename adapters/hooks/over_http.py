"""Hooks without a process of their own: the client sends each as a request to the daemon.

The port and the token stand in the folder of that process, and in the settings of the client. Who sends is found from
the connection: the process that holds its other end.
"""

import contextlib
import fcntl
import hmac
import json
import os
import secrets
import socket
import threading
import zlib
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.values.json_values import NOT_JSON

from ..kit.values import atomic_write
from .daemon_client import check_private, refusal
from .origin import Origin, origin_of_connection

FILE = "http"
"""The endpoint, in the folder of the daemon."""
LOCK = "lock"
"""What that process holds while it runs."""
PATH = "/proctor/hook"
MOST_BYTES = 64 << 20
"""No hook of a client is larger."""
FIRST_HOOK_S = 20.0
"""Seconds a connection has for its first hook; one that sent it may wait for the next as long as its client works."""
_FIRST, _PORTS, _TRIES = 20_000, 12_000, 200
"""Ports below those that systems give to connections."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where hooks are sent, and what shows that the sender may."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """As the client's settings have it."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    @property
    def authorization(self) -> str:
        """As the request has it."""
        return f"Bearer {self.token}"


def endpoint_in(folder: str) -> Endpoint:
    """The endpoint of the daemon of a folder: the one it has, or a new one where that one is not to be
    had. Raises OSError, or UnansweredError for a folder of somebody else.
    """
    check_private(folder)
    found = read_endpoint(folder)
    if found is not None and (_is_answered(folder) or _is_free(found.port)):
        return found
    first = zlib.crc32(folder.encode())
    ports = (_FIRST + (first + n) % _PORTS for n in range(_TRIES))
    port = next((port for port in ports if _is_free(port)), None)
    if port is None:
        raise OSError("there is no free port for hooks")
    made = Endpoint(port, secrets.token_urlsafe(32))
    with atomic_write(Path(folder, FILE), mode=0o600) as file:
        file.write(msgspec.json.encode(made))
    return made


def read_endpoint(folder: str) -> Endpoint | None:
    """The endpoint that a folder has, if it has one."""
    try:
        return msgspec.json.decode(Path(folder, FILE).read_bytes(), type=Endpoint)
    except (OSError, *NOT_JSON):
        return None


def _is_answered(folder: str) -> bool:
    """Whether a daemon answers there now."""
    try:
        with Path(folder, LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class HookServer(ThreadingHTTPServer):
    """Takes hooks of Claude Code on a loopback port.

    Args:
        endpoint: where, and the token. Raises OSError where the port is taken.
        decide: decides on what a client sent: `=` and what it is told, or `!` and why nothing was decided.
        likely: processes that are likely to send.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        endpoint: Endpoint,
        decide: Callable[[bytes, Origin, socket.socket], bytes],
        likely: Callable[[], Iterable[int]],
    ) -> None:
        super().__init__(("127.0.0.1", endpoint.port), _Connection)
        self.endpoint = endpoint
        self.decide = decide
        self.likely = likely
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has gone, and needs no answer."""

    def close(self) -> None:
        """Listen no more; the port is free then."""
        self.shutdown()
        self.server_close()


class _Connection(BaseHTTPRequestHandler):
    """One connection of a client, with many hooks one after another."""

    protocol_version = "HTTP/1.1"
    timeout = None
    disable_nagle_algorithm = True
    server: HookServer
    _origin: Origin | None = None

    def setup(self) -> None:
        """Nobody holds a thread without a hook, however slowly they send."""
        super().setup()
        self._first = threading.Timer(FIRST_HOOK_S, self._close_late)
        self._first.daemon = True
        self._first.start()

    def finish(self) -> None:
        self._first.cancel()
        super().finish()

    def _close_late(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_POST(self) -> None:
        """Answer a hook. Whatever is no 2xx is a failure to the client, which then refuses (`onFailure`)."""
        given = self.headers.get("Authorization", "")
        length = self.headers.get("Content-Length", "")
        authorized = hmac.compare_digest(given.encode(), self.server.endpoint.authorization.encode())
        if not authorized or self.path != PATH:
            return self._refused(403)
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return self._refused(413)
        data = self.rfile.read(int(length))
        self._first.cancel()
        if len(data) < int(length):
            return self._refused(400)
        try:
            self._origin = self._origin or origin_of_connection(self.connection, self.server.likely())
            answer = self.server.decide(data, self._origin, self.connection)
        except EventError as error:
            answer = f"!{error}".encode("utf-8", "backslashreplace")
        if answer[:1] == b"!":
            why = answer[1:].partition(b"\0")[0].decode()
            output = refusal(data, why, "claude")
            if output is None:
                return self._refused(400)
            answer = b"=" + json.dumps(output).encode()
        self._send(200, answer[1:])

    def _refused(self, status: int) -> None:
        self.close_connection = True
        self._send(status, b"")

    def _send(self, status: int, body: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads a log of hooks."""


def without_proxy(environment: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """Variables that keep these requests from a proxy, which could answer in the place of the daemon."""
    return {
        name: ",".join(dict.fromkeys(["127.0.0.1", *filter(None, environment.get(name, "").split(","))]))
        for name in ("NO_PROXY", "no_proxy")
    }
