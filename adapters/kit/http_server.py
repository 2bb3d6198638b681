"""An HTTP server of this process: where it listens, and one that leaves signals alone. Needs uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import uvicorn

from proctor.supervisor.errors import UsageError


class Server(uvicorn.Server):
    """Leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def url_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listening(address: str, *, why: str, anywhere: bool = False) -> socket.socket:
    """A listening socket.

    Args:
        address: `HOST:PORT`; port 0 takes a free one.
        why: the reason, for the error, not to listen to other machines.
        anywhere: whether the address may be one that other machines reach.

    Raises:
        UsageError: the address is malformed, not loopback, or taken.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        is_local, number = ip_address(host).is_loopback, int(port)
    except ValueError:
        raise UsageError(f"`{address}` is not an address; use HOST:PORT, such as 127.0.0.1:8765") from None
    if not is_local and not anywhere:
        raise UsageError(f"`{address}` is not on loopback; {why}")
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named: each answer would wait 40 ms otherwise
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, number))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise UsageError(f"cannot listen on `{address}`: {error}") from error
    return listener
