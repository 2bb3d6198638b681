"""Attempts on `proctor serve` without a valid token, from another site's page, or by an agent."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import web_server
from loopback import raw
from web_server import ANA, BEN, EVE, Site

from proctor.adapters.web.auth import AT_MOST, HEADERS, MAX_BODY
from proctor.adapters.web.server import OPERATIONS

POLICY = """\
name: org
approval: {timeout_s: 60}
nets: [require human-approval before write]
"""
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\u0007"
ASKS = f"""\
tools: [write]
steps:
  - call: write
    input: {{path: notes.txt, content: {json.dumps(HOSTILE)}}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with web_server.site(tmp_path_factory.mktemp("web")) as found:
        yield found


def paths() -> list[tuple[str, str]]:
    """Every operation that needs a token, on objects that do not exist."""
    return [(op.method, op.path.replace("{", "").replace("}", "")) for op in OPERATIONS if op.role is not None]


def test_one_operation_needs_no_token(site: Site) -> None:
    """It returns one word, the same for everyone."""
    assert [op.path for op in OPERATIONS if op.role is None] == ["/healthz"]
    assert {site.ask("GET", "/healthz", token=token).body for token in (None, ANA, "wrong")} == {b'{"status":"ok"}'}


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong-token-1234567890", f"Bearer {ANA[:-1]}", f"Basic {ANA}", ANA],
)
def test_without_a_valid_token_nothing_can_be_read_or_done(tmp_path: Path, authorization: str | None) -> None:
    """Not even whether an object exists. After too many wrong tokens, requests get no answer."""
    with web_server.site(tmp_path) as site:
        for n, (method, path) in enumerate(paths()):
            answer = site.ask(method, path, token=None, body={}, headers={"Authorization": authorization})

            assert answer.status == 401 or (n >= AT_MOST and answer.status == 429), path
            assert answer.status == 429 or answer.headers["www-authenticate"] == "Bearer"


def test_two_tokens_are_rejected(site: Site) -> None:
    """A proxy and a server that each use another of them would disagree."""
    request = (
        f"GET /api/me HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {EVE}\r\nAuthorization: Bearer {ANA}\r\n"
    )

    assert raw(site.host, f"{request}Connection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 401")


def test_a_token_in_the_url_is_rejected(site: Site) -> None:
    """URLs end up in logs and histories."""
    assert site.ask("GET", f"/api/me?token={ANA}", token=None).status == 401
    assert site.ask("GET", "/api/me", token=None, headers={"Cookie": f"token={ANA}"}).status == 401


@pytest.mark.parametrize(("token", "allowed"), [(ANA, {"answer", "stop"}), (BEN, {"answer"}), (EVE, set())])
def test_a_token_allows_only_its_roles(site: Site, token: str, allowed: set[str]) -> None:
    """An operation of another role is rejected before anything is looked up."""
    for op in OPERATIONS:
        if op.role not in ("see", None):
            path = op.path.replace("{", "").replace("}", "")
            status = site.ask(op.method, path, token=token, body={}).status
            assert (status == 403) is (op.role not in allowed), op.name


@pytest.mark.parametrize("host", [
    None,
    "",
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1.evil.example:{port}",
    "0.0.0.0:{port}",
])  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/api/runs", "/openapi.json", "/page/app.js"])
def test_another_host_name_for_this_server_is_rejected(site: Site, host: str | None, path: str) -> None:
    """DNS rebinding: an attacker's host name that resolves to this machine."""
    port = site.host.rpartition(":")[2]
    host = host and host.format(port=port)
    request = f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {ANA}\r\nConnection: close\r\n"
    request += "" if host is None else f"Host: {host}\r\n"

    assert raw(site.host, f"{request}\r\n".encode()).split()[1] in (b"421", b"400")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_machines_own_names_are_accepted(site: Site, name: str) -> None:
    """As people type them."""
    assert site.ask("GET", "/api/me", headers={"Host": f"{name}:{site.host.rpartition(':')[2]}"}).status == 200


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
@pytest.mark.parametrize(("path", "more", "status"), [
    ("/", {}, 200),
    ("/api/me", {}, 200),
    ("/api/me", {"Authorization": "Bearer none"}, 401),
    ("/", {"Host": "evil.example"}, 421),
], ids=["page", "api", "no token", "another name"])  # fmt: skip
def test_a_request_to_switch_protocols_changes_nothing(
    site: Site, protocol: str, path: str, more: dict[str, str], status: int
) -> None:
    """The server speaks only HTTP/1.1, and checks the host and the token first."""
    handshake = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    wish = {"Connection": "Upgrade", "Upgrade": protocol, **handshake}

    assert site.ask("GET", path, headers={**wish, **more}).status == status


def test_two_host_headers_are_rejected(site: Site) -> None:
    """Whichever of them is valid."""
    for hosts in ((site.host, "evil.example"), ("evil.example", site.host)):
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        request = f"GET /api/me HTTP/1.1\r\n{lines}Authorization: Bearer {ANA}\r\nConnection: close\r\n\r\n"
        assert raw(site.host, request.encode()).split()[1] in (b"421", b"400")


@pytest.mark.parametrize("headers", [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
])  # fmt: skip
def test_another_sites_page_is_rejected(site: Site, headers: dict[str, str]) -> None:
    """Even with a valid token. Another port of this machine is another site too."""
    assert site.ask("GET", "/api/me", headers=headers).status == 403
    assert site.ask("POST", "/api/runs/run_x/cancel", body={}, headers=headers).status == 403


def test_no_other_site_is_allowed_to_read(site: Site) -> None:
    """A CORS preflight is not answered with permission."""
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answers = [site.ask("OPTIONS", "/api/me", token=None, headers=headers), site.ask("OPTIONS", "/", token=None)]

    assert [answer.status for answer in answers] == [403, 405]
    assert not any(name.startswith("access-control") for answer in answers for name in answer.headers)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_form_content_types_are_rejected(site: Site, kind: str | None) -> None:
    """A body must be declared as JSON."""
    assert site.ask("POST", "/api/runs/run_x/cancel", body={}, headers={"Content-Type": kind}).status == 400


@pytest.mark.parametrize("path", [
    "/page/../identities.py",
    "/page/..%2fidentities.py",
    "/page/%2e%2e/identities.py",
    "/page/..%5cidentities.py",
    "/page//etc/passwd",
    "/page/%00",
    "/../../etc/passwd",
])  # fmt: skip
def test_no_other_file_is_served(site: Site, path: str) -> None:
    """The page's files are a fixed list; the disk is not searched."""
    answer = site.ask("GET", path, token=None)

    assert answer.status in (401, 404)
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


def test_a_body_beyond_its_bound_is_rejected(site: Site) -> None:
    """Whether its length is declared or not. Only the bound is kept in memory."""
    large = b'{"reason": "' + b"x" * MAX_BODY + b'"}'
    chunk = b"%x\r\n%s\r\n" % (len(large), large)
    request = (
        f"POST /api/runs/run_x/cancel HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {ANA}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )

    assert site.ask("POST", "/api/runs/run_x/cancel", body=large).status == 413
    assert raw(site.host, request.encode() + chunk + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")


def test_deep_and_odd_json_is_an_error_of_the_request(site: Site) -> None:
    """It does not crash the server."""
    for body in (b"[" * 30_000, b'{"reason": "\xff"}', b'{"reason": 1e999}', b"null", b""):
        assert site.ask("POST", "/api/runs/run_x/cancel", body=body).status == 400


def test_every_response_forbids_foreign_content(site: Site) -> None:
    """Errors too: only this server's scripts and styles, no frames, no content sniffing, no referrer."""
    for path in ("/", "/api/me", "/api/nothing", "/openapi.json", "/page/nothing"):
        for token in (ANA, None):
            answer = site.ask("GET", path, token=token)
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_of_two_racing_answers_one_counts(site: Site) -> None:
    """The event log has one of many concurrent answers, and no other author is told that theirs counts."""
    with web_server.going(site, ASKS, POLICY) as process:
        (waiting,) = site.until("/api/approvals", lambda found: found["total"] == 1)["approvals"]
        assert waiting["call"]["input"]["content"] == HOSTILE
        path = f"/api/approvals/{waiting['approval_id']}/answer"

        def answer(n: int) -> int:
            body = {"answer": ("grant", "deny")[n % 2], "input_digest": waiting["input_digest"]}
            return int(site.ask("POST", path, token=(ANA, BEN)[n % 2], body=body).status)

        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(answer, range(8)))
        assert process.stdout is not None
        events = [json.loads(line) for line in process.stdout]

    answers = [e["type"] for e in events if e["type"] in ("tool_approval_granted", "tool_approval_denied")]
    assert len(answers) == 1
    assert sorted(statuses) == [200] + [409] * 7


def test_a_token_file_that_others_can_read_is_rejected(tmp_path: Path) -> None:
    """So is one with a guessable token. A token without roles can only read."""
    from proctor.adapters.operations.identities import ROLES, read_tokens
    from proctor.supervisor.errors import UsageError

    file = tmp_path / "tokens.yaml"
    file.write_text(web_server.TOKENS)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        read_tokens(str(file))
    file.chmod(0o600)
    for text, why in (
        ("tokens: [{name: a, token: short}]", "at least 16"),
        (
            "tokens: [{name: a, token: aaaaaaaaaaaaaaaaaaaa, roles: [see, Explode]}]",
            r"unknown value `Explode`.*; a role is one of see, answer, stop",
        ),
        ("tokens: [{name: a}]", "one of"),
        ("tokens: [{token: aaaaaaaaaaaaaaaaaaaa}]", "name"),
        (f"tokens: [{{name: a, token: {'ä' * 20}}}]", "ASCII"),
        (f"tokens: [{{name: a, token: {'a ' * 20}a}}]", "blanks"),
        ("tokens: []", "no tokens"),
        ("tokens: [{name: a, sha256: abc}]", "SHA-256"),
        ("tokens: [{name: a, token: aaaaaaaaaaaaaaaaaaaa}, {name: b, token: aaaaaaaaaaaaaaaaaaaa}]", "somebody else"),
        ("{", "not YAML"),
        ("[" * 9_999, "nested too deeply"),
        ("- 1", "object"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=why):
            read_tokens(str(file))
    file.write_text(f"tokens: [{{name: a, token: {'a' * 20}}}]")
    holder = read_tokens(str(file)).holder("a" * 20)
    assert holder is not None
    assert [role for role in ROLES if holder.may(role)] == ["see"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file of root's: run it as root")
def test_a_token_file_of_root_may_be_readable_by_the_group_of_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A systemd credential or a Kubernetes secret: root's, 0440. Not readable by all, not writable, not another
    user's.
    """
    from proctor.adapters.operations.identities import read_tokens
    from proctor.supervisor.errors import UsageError

    file = tmp_path / "tokens.yaml"
    file.write_text(web_server.TOKENS)
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    file.chmod(0o440)
    found = read_tokens(str(file)).holder(ANA)

    assert found is not None
    assert found.name == "ana"
    for mode, owner in ((0o444, 0), (0o460, 0), (0o440, 10001)):
        file.chmod(mode)
        os.chown(file, owner, 0)
        with pytest.raises(UsageError, match="can be read by others"):
            read_tokens(str(file))
