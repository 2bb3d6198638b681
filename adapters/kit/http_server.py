"""An HTTP server of this process: where it listens, what it takes for a request, and that it leaves signals alone.
Needs uvicorn.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proctor.policies.errors import os_words
from proctor.supervisor.errors import UsageError


class Server(uvicorn.Server):
    """Leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class StrictHttp(H11Protocol):
    """A connection that is closed at the first request that is malformed, also if it is answered already, or whose
    length is given twice: a proxy in front may have read it as another one.
    """

    def __init__(self, config: uvicorn.Config, *more: Any, **named: Any) -> None:
        super().__init__(config, *more, **named)
        self.conn = _Connection(h11.SERVER, config.h11_max_incomplete_event_size or _HEADER_BYTES)

    def send_400_response(self, msg: str) -> None:
        """Answer, unless the request's body is what is malformed, and its answer has begun."""
        if self.cycle is not None:  # whoever answers it hears that nobody listens
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()


class _Connection(h11.Connection):
    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _LENGTHS:
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding exclude each other")
        return event


_LENGTHS = {b"content-length", b"transfer-encoding"}
_HEADER_BYTES = 64 * 1024


def url_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listening(address: str, *, why: str, anywhere: bool = False) -> socket.socket:
    """A socket that listens at `HOST:PORT`; port 0 takes a free one.

    Raises UsageError for an address that is malformed or taken, and, with the reason `why`, for one that other
    machines reach unless it may be `anywhere`.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        is_local, number = ip_address(host).is_loopback, int(port)
        if not 0 <= number <= 65_535:
            raise ValueError(number)
    except ValueError:
        raise UsageError(f"`{address}` is not an address; use HOST:PORT, such as 127.0.0.1:8700") from None
    if not is_local and not anywhere:
        raise UsageError(f"`{address}` can be reached from other machines; {why}")
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named: each answer would wait 40 ms otherwise
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, number))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on `{address}`: {os_words(error)}") from None
    return listener
