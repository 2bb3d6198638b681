"""What is posted to `proctor mcp --listen` starts a server or runs a tool only as a session of the protocol."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from proxy_processes import HELLO, READY, ProxyOverHttp, call, last_ping, post

from proctor.supervisor.testing.fakes import PATIENCE_S

pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")

SESSION = "mcp-session-id"


def raw(url: str, *pieces: bytes) -> bytes:
    """Everything that is answered to these bytes until the proxy hangs up."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), PATIENCE_S) as door:
        for piece in pieces:
            door.sendall(piece)
        return b"".join(iter(lambda: door.recv(65536), b""))


def head(url: str, *lines: str) -> bytes:
    """The head of a request to the proxy; the connection ends after it."""
    given = [f"Host: {urlsplit(url).netloc}", "Content-Type: application/json", "Connection: close", *lines]
    return (
        "\r\n".join(["POST /mcp HTTP/1.1", "Accept: application/json, text/event-stream", *given, "", ""])
    ).encode()


def test_only_a_handshake_starts_a_server(tmp_path: Path) -> None:
    """Not a picture in a web page, which says no origin; not a call, a batch, half a message, another method."""
    odd: list[Any] = [json.loads(call("write")), [HELLO], {**HELLO, "method": "Initialize"}, b"", b"{", b"\xff", b"7"]
    with ProxyOverHttp(tmp_path) as (url, log):
        met = [post(url, b"", method=method)[0] for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")]
        posted = [post(url, message)[0] for message in odd]
        met += [post(url, HELLO, origin="null")[0], post(url, HELLO, **{SESSION: "x"})[0]]

        assert all(status >= 400 for status in (*met, *posted))
        assert not log.exists()


def test_a_session_takes_a_call_in_no_other_way(tmp_path: Path) -> None:
    """Framed twice, hidden behind another request, in a header, as a batch, under a session that is over."""
    denied = call("write").encode()
    with ProxyOverHttp(tmp_path) as (url, log):
        session = post(url, HELLO)[1][SESSION]
        headers = {SESSION: session}
        post(url, READY, **headers)
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (denied[:9], denied[9:])) + b"0\r\n\r\n"
        line = f"{SESSION}: {session}"
        raw(url, head(url, line, "Transfer-Encoding: chunked"), chunks)
        raw(url, head(url, line, "Content-Length: 4", "Transfer-Encoding: chunked"), chunks)
        raw(url, head(url, line, "Content-Length: 2", f"Content-Length: {len(denied)}"), denied)
        raw(url, head(url, line, f"{SESSION}: other", f"Content-Length: {len(denied)}"), denied)
        raw(
            url,
            head(url, line, "Content-Length: 2") + b"{}" + head(url, line, f"Content-Length: {len(denied)}") + denied,
        )
        for body in (b"[" + denied + b"]", b"\xef\xbb\xbf" + denied, denied.decode().encode("utf-16")):
            post(url, body, **headers)
        post(url, denied, **headers, **{"x-http-method-override": "tools/call", "content-type": "text/plain"})
        post(url, last_ping().encode(), **headers)
        ended = post(url, b"", method="DELETE", **headers)[0]
        after = post(url, denied, **headers)[0]

        assert "tools/call" not in log.read_text()
        assert ended == 200
        assert after == 404
