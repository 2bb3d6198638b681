"""Thousands of raw connections to `proctor serve`: a client with a token is still answered."""

import socket
import ssl
import struct
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from web_server import ANA, EVE, Site, ran, serving

from proctor.adapters.web.server import REQUEST_S
from proctor.supervisor.testing.fakes import PATIENCE_S

FILES = 160
"""The open files that the server may have, so that its capacity is soon used up."""


def flood(stack: ExitStack, site: Site, number: int, text: str) -> list[socket.socket]:
    """This many connections that send a text and wait."""
    host, port = site.host.split(":")
    found = []
    for _ in range(number):
        opened = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
        found.append(opened)
        try:
            opened.sendall(text.encode())
        except OSError:  # it was closed already, for one of the next
            continue
    return found


HALVES = {
    "nothing": "",
    "half a line": "GET /api/r",
    "half the headers": "POST /api/kill HTTP/1.1\r\nHost: {host}\r\nX-A: ",
    "half a body": "POST /api/kill HTTP/1.1\r\nHost: {host}\r\nContent-Length: 50\r\n\r\n",
    "the page, again and again": "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n" * 20,
    "no request at all": "\0\r\n\r\n",
    "headers that are none": "GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: -1\r\n\r\n",
    "a body that breaks off": "POST /api/kill HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"
    + "f" * 70_000,
    "wrong tokens": "GET /api/me HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer not-the-right-one\r\n\r\n",
}


def test_other_connections_do_not_lock_out_a_client_with_a_token(tmp_path: Path) -> None:
    """However many there are, from the same address: everything is answered, and nothing is logged. If a reader opens
    streams and unfinished requests, a client that may cancel is answered. Connections without a token are closed
    first, so a client's stream outlives them.
    """
    with serving(tmp_path, files=FILES) as site, ExitStack() as watching:
        stream = flood(watching, site, 1, _get("/api/stream", site, ANA))[0]
        assert b"200 OK" in stream.recv(4096)
        for text in HALVES.values():
            with ExitStack() as stack:
                flood(stack, site, 300, text.format(host=site.host))
                assert answers(site)
        stream.settimeout(0.5)
        with pytest.raises(TimeoutError):
            _read_to_end(stream)
        assert len((tmp_path / "errors").read_text().splitlines()) <= 1

        with ExitStack() as stack:
            head = f"Host: {site.host}\r\nAuthorization: Bearer {EVE}\r\n"
            flood(stack, site, 150, f"GET /api/stream HTTP/1.1\r\n{head}\r\n")
            flood(stack, site, 200, f"GET /api/me HTTP/1.1\r\n{head}\r\nGET /api/me HTTP/1.1\r\n{head}")
            assert answers(site)


def answers(site: Site) -> bool:
    """Whether a server answers its health check, tells a client its name, and cancels everything for it."""
    well = site.ask("GET", "/healthz", token=None)
    stopped = site.ask("POST", "/api/switch", body={"everything": True, "wait_s": 0})
    return (well.status, site.get("/api/me")["name"], stopped.status) == (200, "ana", 200)


def test_a_request_must_be_complete_in_time(tmp_path: Path) -> None:
    """A slow request is closed, whether it is the first of its connection or not. A stream is not."""
    with serving(tmp_path, files=FILES) as site, ExitStack() as stack:
        half = f"GET /api/me HTTP/1.1\r\nHost: {site.host}\r\n"
        slow = flood(stack, site, 1, half)[0]
        second = flood(stack, site, 1, _get("/api/me", site, ANA) + half)[0]
        stream = flood(stack, site, 1, _get("/api/stream", site, ANA))[0]
        ended = threading.Event()

        def trickle() -> None:
            while not ended.wait(0.5):
                for each in (slow, second):
                    try:
                        each.sendall(b"X")
                    except OSError:
                        return

        sender = threading.Thread(target=trickle)
        sender.start()
        try:
            _read_to_end(slow)
            _read_to_end(second)
            stream.settimeout(REQUEST_S / 4)
            with pytest.raises(TimeoutError):
                _read_to_end(stream)
        finally:
            ended.set()
            sender.join()


def test_headers_have_a_bound(tmp_path: Path) -> None:
    """An endless line, and too many lines."""
    with serving(tmp_path, files=FILES) as site, ExitStack() as stack:
        for text in ("GET /" + "a" * 100_000, "GET / HTTP/1.1\r\n" + "X: y\r\n" * 50_000):
            answer = _read_to_end(flood(stack, site, 1, text)[0])
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


CHUNKED = "Transfer-Encoding: chunked\r\n"
AMBIGUOUS = {
    "two lengths": "Content-Length: 0\r\nContent-Length: 60\r\n\r\n",
    "a length and chunks": f"Content-Length: 5\r\n{CHUNKED}\r\n0\r\n\r\n",
    "chunks and a length": f"{CHUNKED}Content-Length: 5\r\n\r\n0\r\n\r\n",
    "an encoding that is none": "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a signed length": "Content-Length: +0\r\n\r\n",
    "a blank after a name": "Content-Length : 0\r\n\r\n",
    "a second Host": "Host: evil.example\r\nContent-Length: 0\r\n\r\n",
    "a chunk of no number": f"{CHUNKED}\r\n0x0\r\n\r\n",
    "a chunk longer than it says": f"{CHUNKED}\r\n1\r\nabc0\r\n\r\n",
    "a line end within a chunk's line": f"{CHUNKED}\r\n0;a\nb\r\n\r\n",
    "a trailer that is none": f"{CHUNKED}\r\n0\r\nno trailer\r\n\r\n",
}
"""Requests that another server may end at another place."""


def test_a_request_that_another_server_may_read_as_two_is_rejected(tmp_path: Path) -> None:
    """Each is one error and the end of its connection, without a log entry: for every path, whether its body is read
    or not, and even if it was answered already.
    """
    with serving(tmp_path, files=FILES) as site, ExitStack() as stack:
        for method, path in (("POST", "/api/switch"), ("GET", "/api/me"), ("GET", "/healthz")):
            head = f"{method} {path} HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {ANA}\r\n"
            for name, rest in AMBIGUOUS.items():
                text = head + rest + _get("/api/me", site, ANA)
                answer = _read_to_end(flood(stack, site, 1, text)[0])
                assert (name, answer.count(b"HTTP/1.1 "), answer[:12]) == (name, 1, b"HTTP/1.1 400")
        head = _get("/", site, ANA).removesuffix("\r\n")
        answered = flood(stack, site, 1, f"{head}{CHUNKED}\r\n")[0]
        assert answered.recv(4096).startswith(b"HTTP/1.1 200")
        answered.sendall(b"no chunk\r\n")
        assert b"HTTP/1.1" not in _read_to_end(answered)
        assert answers(site)
    assert (tmp_path / "errors").read_text() == ""


def test_endless_handshakes_do_not_lock_out_a_client_with_a_token(tmp_path: Path) -> None:
    """A connection counts before its TLS handshake."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-keyout", "key.pem", "-out", "cert.pem"),
        ],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    with serving(tmp_path, "--cert", "cert.pem", "--key", "key.pem", files=FILES) as site, ExitStack() as stack:
        flood(stack, site, 300, "")
        flood(stack, site, 50, "GET / HTTP/1.1\r\n\r\n")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = stack.enter_context(socket.create_connection(tuple(site.host.split(":")), PATIENCE_S))
        secure = stack.enter_context(context.wrap_socket(plain))
        secure.sendall(_get("/api/me", site, ANA).encode())

        assert secure.recv(4096).startswith(b"HTTP/1.1 200")
    assert (tmp_path / "errors").read_text() == ""


def test_subscribers_that_vanish_log_nothing_and_block_nobody(tmp_path: Path) -> None:
    """In the middle of a long log, again and again. Meanwhile the server is healthy."""
    with serving(tmp_path) as site, ExitStack() as stack:
        steps = "".join(f"  - say: line {n}\n" for n in range(3_000))
        session = ran(site, f"steps:\n{steps}", "name: any\n")[0]["session_id"]
        request = _get(f"/api/sessions/{session}/stream", site, ANA)
        followers = flood(stack, site, 150, request)
        for each in followers:
            assert each.recv(4096).startswith(b"HTTP/1.1 200")
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # vanish by a reset
            each.close()
        began = time.monotonic()
        site.get("/healthz", token=None)
        took = time.monotonic() - began
        site.until("/api/me", lambda me: me["name"] == "ana")

    assert (tmp_path / "errors").read_text() == ""
    assert took < PATIENCE_S


def _get(path: str, site: Site, token: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {token}\r\n\r\n"


def _read_to_end(opened: socket.socket) -> bytes:
    found = b""
    try:
        while data := opened.recv(65536):
            found += data
    except ConnectionError:
        pass
    return found
