"""Health, metrics and the API description; attempts with a wrong token."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import psutil
import pytest
import web_server
from postgres_server import OwnServer, needs_own_server
from starlette.types import ASGIApp, Message, Scope, Send
from web_server import ANA, EVE

from proctor.adapters.operations.identities import one_token
from proctor.adapters.web import api_runs
from proctor.adapters.web.api_control import KEPT_S, StoreHealth
from proctor.adapters.web.auth import AT_MOST, WINDOW_S, TooManyTriesError, Tries
from proctor.adapters.web.server import OPERATIONS, application
from proctor.supervisor import MemoryStore, RunInfo
from proctor.supervisor.testing.fakes import PATIENCE_S


def test_anyone_may_read_the_health_and_nothing_else(site: web_server.Site) -> None:
    """Under any host name, without a token, from any page, as documented. Only reading is answered there; similar
    paths and unknown parameters are not.
    """
    strange = {"Host": "10.0.0.7:80", "Origin": "https://other.example"}
    answer = site.ask("GET", "/healthz", token=None, headers=strange)
    described = site.get("/openapi.json", token=None)["paths"]["/healthz"]["get"]

    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
    assert site.ask("HEAD", "/healthz", token=None).body == b""
    assert answer.headers["cache-control"] == "no-store"
    assert described["security"] == []
    assert sorted(described["responses"]) == ["200", "400", "503"]
    assert site.ask("POST", "/healthz", token=None).status == 405
    assert site.ask("GET", "/healthz/../api/runs", token=None).status == 401
    assert site.ask("GET", "/healthz/", token=None).status == 401
    assert site.ask("GET", "/healthz?secrets=1", token=None).status == 400
    assert site.ask("GET", "/api/runs", headers={"Host": "10.0.0.7:80"}).status == 421


@pytest.mark.anyio
async def test_streams_that_begin_at_once_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound holds for requests that come together, before any of them has sent a message."""
    monkeypatch.setattr(api_runs, "MOST_STREAMS", 1)
    tokens, token = one_token(None)
    statuses: list[int] = []
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/changes",
        "raw_path": b"/api/changes",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:1"), (b"authorization", f"Bearer {token}".encode())],
    }

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async with MemoryStore() as store, anyio.create_task_group() as tasks:
        app = application(store, tokens, ["http://127.0.0.1:1"], closing=anyio.Event())
        for _ in range(3):
            tasks.start_soon(request, app, dict(scope), send)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert sorted(statuses) == [200, 503, 503]


async def request(app: ASGIApp, scope: Scope, send: Send) -> None:
    """Send a request without a body to an application, and stay."""
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        if (message := next(messages, None)) is not None:
            return message
        await anyio.sleep_forever()
        raise AssertionError

    await app(scope, receive, send)


@pytest.mark.parametrize("done", ["removed", "replaced"])
def test_a_missing_file_is_reported_without_its_name(
    tmp_path: Path, done: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients with a token learn more. A stream ends normally, so that its reader reconnects."""
    with web_server.site(tmp_path) as site:
        site.until("/healthz", lambda found: found == {"status": "ok"})
        with site.stream("/api/stream") as stream:
            if done == "removed":
                site.store.unlink()
            else:
                site.store.with_name("other.db").write_bytes(site.store.read_bytes())
                os.replace(site.store.with_name("other.db"), site.store)
            assert list(stream) == []
        assert (caplog.text.count("web.stream_ended"), caplog.text.count("web.failed")) == (1, 0)
        rejected = _answered(site, 503)

        assert rejected.status == 503
        assert rejected.data["code"] == "store_unreachable"
        assert str(tmp_path) not in rejected.body.decode()
        assert "while it was in use" in site.ask("GET", "/api/runs").data["message"]


def test_no_response_waits_for_the_acknowledgement_of_the_one_before(site: web_server.Site) -> None:
    """On a persistent connection the client would acknowledge it 40 ms late."""
    connection = http.client.HTTPConnection(site.host, timeout=PATIENCE_S)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read() == b'{"status":"ok"}'
    [served] = [
        found.fd
        for found in psutil.Process().net_connections("tcp")
        if found.raddr == connection.sock.getsockname() and found.laddr == connection.sock.getpeername()
    ]
    with socket.socket(fileno=os.dup(served)) as theirs:  # the server is in this process
        at_once = theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    connection.close()

    assert at_once


@needs_own_server  # type: ignore[untyped-decorator]
def test_a_database_that_stops_and_restarts_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server continues to serve, and works as before; its log has the reason."""
    with OwnServer() as database, web_server.site(tmp_path, place=database.url()) as site:
        assert site.ask("GET", "/healthz", token=None).status == 200
        for how in (signal.SIGQUIT, signal.SIGKILL):
            database.stop(how)
            rejected = _answered(site, 503)
            database.start()
            back = _answered(site, 200)

            assert rejected.data["code"] == "store_unreachable"
            assert str(database.folder) not in rejected.body.decode()
            assert back.data == {"status": "ok"}
    assert "error='no answer within 5 s'" in caplog.text
    assert "Traceback" not in caplog.text


class _CountingStore(MemoryStore):
    """Counts its queries for runs; does not answer while `stuck`."""

    reads, stuck = 0, False

    async def runs(self, **which: Any) -> list[RunInfo]:
        self.reads += 1
        if self.stuck:
            await anyio.sleep_forever()
        return await super().runs(**which)


@pytest.mark.trio
async def test_the_store_is_queried_once_a_second_for_any_number_of_requests(autojump_clock: object) -> None:
    """Requests without a token cause no work."""
    store = _CountingStore()
    health = StoreHealth(store)
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(health.good)
    at_once = store.reads
    await anyio.sleep(KEPT_S)

    assert await health.good()
    assert (at_once, store.reads) == (1, 2)


@pytest.mark.trio
async def test_a_store_that_does_not_answer_is_unhealthy_until_it_does(autojump_clock: object) -> None:
    """All concurrent requests get the same result."""
    store = _CountingStore()
    store.stuck = True
    health = StoreHealth(store)
    found: list[bool] = []

    async def ask() -> None:
        found.append(await health.good())

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask)
    store.stuck = False
    await anyio.sleep(KEPT_S)

    assert (found, store.reads) == ([False] * 10, 1)
    assert await health.good()


def _answered(site: web_server.Site, status: int) -> web_server.Answer:
    """The first response with this status."""
    for _ in range(int(PATIENCE_S / 0.1)):
        answer = site.ask("GET", "/healthz", token=None)
        if answer.status == status:
            return answer
        threading.Event().wait(0.1)
    raise AssertionError(answer)


POLICY = "{name: team, approval: {timeout_s: 3000}, nets: [require human-approval before write]}"
SCRIPT = "name: agent\ntools: [write]\nsteps:\n  - {call: write, input: {path: notes.txt, content: x}}\n"
ENDLESS = "/stream$|/changes$"
"""What ends only when it is closed."""
RULED_OUT = "positive_data_acceptance"
"""The only disabled check: what a document can't express (one scope of several, the format of a time) is rejected
with 400.
"""


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("schemathesis"), reason="pip install -e '.[dev]'")
def test_no_possible_request_breaks_the_api_or_its_description(tmp_path: Path) -> None:
    """No server error. Each response has a described status, schema and headers, invalid requests are rejected, and
    nothing is found without a token. The requests are deterministic.
    """
    command = [*(sys.executable, "-m", "schemathesis.cli", "run"), "--generation-deterministic"]
    command += ["--request-timeout", "120", "--phases", "coverage,fuzzing", "--max-examples", "3"]
    command += ["--exclude-path-regex", ENDLESS, "--exclude-checks", RULED_OUT, "--suppress-health-check", "all"]
    with web_server.site(tmp_path) as site, web_server.going(site, SCRIPT, POLICY):
        site.until("/api/approvals", lambda found: found["approvals"])
        command += [f"{site.url}/openapi.json", "--header", f"Authorization: Bearer {ANA}"]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=500)

        assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
        assert f"Tested: {sum(op.media == 'application/json' for op in OPERATIONS)}" in ended.stdout
        assert site.get("/api/me")["name"] == "ana"


GOOD = "a-token-that-is-good"


@pytest.fixture
def clock() -> SimpleNamespace:
    """Time that advances on command."""
    return SimpleNamespace(now=0.0)


@pytest.fixture
def tries(clock: SimpleNamespace) -> Tries:
    """With one valid token."""
    return Tries(one_token(GOOD)[0], lambda: clock.now)


def spent(tries: Tries, client: str) -> None:
    for n in range(AT_MOST):
        assert tries.holder(f"wrong-{n}", client) is None


def test_after_too_many_attempts_the_response_says_when_to_retry(tries: Tries, clock: SimpleNamespace) -> None:
    """After the window, wrong tokens are counted from zero."""
    spent(tries, "10.0.0.1")
    clock.now = 10
    with pytest.raises(TooManyTriesError) as raised:
        tries.holder("wrong", "10.0.0.1")
    clock.now += raised.value.wait_s

    assert raised.value.wait_s == WINDOW_S - 10
    assert tries.holder("wrong", "10.0.0.1") is None


def test_one_ipv6_network_is_one_address(tries: Tries) -> None:
    """Its owner has 2**64 addresses. An IPv4 address in another form is the same."""
    spent(tries, "2001:db8::1")
    spent(tries, "::ffff:10.0.0.1")

    for client in ("2001:db8::2", "10.0.0.1"):
        with pytest.raises(TooManyTriesError):
            tries.holder("wrong", client)
    assert [tries.holder("wrong", other) for other in ("2001:db8:0:1::1", "10.0.0.2")] == [None, None]


def test_the_server_answers_429_and_still_serves_every_valid_token(tmp_path: Path) -> None:
    """With the time to wait. Headers about the client's address are ignored."""
    with web_server.site(tmp_path) as site:
        for n in range(AT_MOST):
            assert site.ask("GET", "/api/me", token="wrong", headers={"X-Forwarded-For": f"10.0.0.{n}"}).status == 401
        rejected = site.ask("GET", "/api/me", token="wrong")

        assert (rejected.status, rejected.data["code"]) == (429, "too_many_tries")
        assert 0 < int(rejected.headers["retry-after"]) <= WINDOW_S
        assert [site.get("/api/me", token=token)["name"] for token in (ANA, EVE)] == ["ana", "eve"]
