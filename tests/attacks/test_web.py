"""What somebody without the right token, another site's page, or an agent might try on `proctor serve`."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import web_server
from loopback import raw
from web_server import ANA, BEN, EVE, Site

from proctor.adapters.web.auth import AT_MOST, HEADERS, MOST_BODY
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
    """Every operation that needs a token, on things there are not."""
    return [(op.method, op.path.replace("{", "").replace("}", "")) for op in OPERATIONS if op.role is not None]


def test_one_operation_needs_no_token(site: Site) -> None:
    """It says one word, the same whoever asks."""
    assert [op.path for op in OPERATIONS if op.role is None] == ["/healthz"]
    assert {site.ask("GET", "/healthz", token=token).body for token in (None, ANA, "wrong")} == {b'{"status":"ok"}'}


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong-token-1234567890", f"Bearer {ANA[:-1]}", f"Basic {ANA}", ANA],
)
def test_without_a_good_token_nothing_is_seen_or_done(tmp_path: Path, authorization: str | None) -> None:
    """Whatever is asked; it is not even told whether there is such a thing. Too many wrong tokens get no answer."""
    with web_server.site(tmp_path) as site:
        for n, (method, path) in enumerate(paths()):
            answer = site.ask(method, path, token=None, body={}, headers={"Authorization": authorization})

            assert answer.status == 401 or (n >= AT_MOST and answer.status == 429), path
            assert answer.status == 429 or answer.headers["www-authenticate"] == "Bearer"


def test_two_tokens_are_refused(site: Site) -> None:
    """A proxy and a server that each take another one of them would disagree."""
    request = (
        f"GET /api/me HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {EVE}\r\nAuthorization: Bearer {ANA}\r\n"
    )

    assert raw(site.host, f"{request}Connection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 401")


def test_a_token_in_the_url_is_refused(site: Site) -> None:
    """URLs end up in logs and histories."""
    assert site.ask("GET", f"/api/me?token={ANA}", token=None).status == 401
    assert site.ask("GET", "/api/me", token=None, headers={"Cookie": f"token={ANA}"}).status == 401


@pytest.mark.parametrize(("token", "allowed"), [(ANA, {"answer", "stop"}), (BEN, {"answer"}), (EVE, set())])
def test_a_token_allows_its_roles_only(site: Site, token: str, allowed: set[str]) -> None:
    """What another role may do is refused before anything is looked up."""
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
def test_another_name_of_this_server_reaches_nothing(site: Site, host: str | None, path: str) -> None:
    """DNS rebinding: a page's own name that is made to lead here."""
    port = site.host.rpartition(":")[2]
    host = host and host.format(port=port)
    request = f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {ANA}\r\nConnection: close\r\n"
    request += "" if host is None else f"Host: {host}\r\n"

    assert raw(site.host, f"{request}\r\n".encode()).split()[1] in (b"421", b"400")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_this_machines_names_of_itself_reach_it(site: Site, name: str) -> None:
    """As people type them."""
    assert site.ask("GET", "/api/me", headers={"Host": f"{name}:{site.host.rpartition(':')[2]}"}).status == 200


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
@pytest.mark.parametrize(("path", "more", "status"), [
    ("/", {}, 200),
    ("/api/me", {}, 200),
    ("/api/me", {"Authorization": "Bearer none"}, 401),
    ("/", {"Host": "evil.example"}, 421),
], ids=["page", "api", "no token", "another name"])  # fmt: skip
def test_a_wish_for_another_protocol_changes_no_answer(
    site: Site, protocol: str, path: str, more: dict[str, str], status: int
) -> None:
    """This server speaks HTTP/1.1 only, and asks for the name and the token first."""
    handshake = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    wish = {"Connection": "Upgrade", "Upgrade": protocol, **handshake}

    assert site.ask("GET", path, headers={**wish, **more}).status == status


def test_two_hosts_reach_nothing(site: Site) -> None:
    """The good one first or last."""
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
def test_another_sites_page_may_not_ask(site: Site, headers: dict[str, str]) -> None:
    """Not even with a good token; another port of this machine is another site too."""
    assert site.ask("GET", "/api/me", headers=headers).status == 403
    assert site.ask("POST", "/api/runs/run_x/cancel", body={}, headers=headers).status == 403


def test_nothing_allows_another_site_to_read(site: Site) -> None:
    """A browser that asks first (CORS) is not told that it may."""
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answers = [site.ask("OPTIONS", "/api/me", token=None, headers=headers), site.ask("OPTIONS", "/", token=None)]

    assert [answer.status for answer in answers] == [403, 405]
    assert not any(name.startswith("access-control") for answer in answers for name in answer.headers)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_form_can_send_is_refused(site: Site, kind: str | None) -> None:
    """A body is JSON and says so."""
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
def test_no_other_file_is_shown(site: Site, path: str) -> None:
    """The page's files are known by name; nothing is looked up on the disk."""
    answer = site.ask("GET", path, token=None)

    assert answer.status in (401, 404)
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


def test_a_body_beyond_its_bound_is_refused(site: Site) -> None:
    """Announced or not: no more than the bound is kept."""
    large = b'{"reason": "' + b"x" * MOST_BODY + b'"}'
    chunk = b"%x\r\n%s\r\n" % (len(large), large)
    request = (
        f"POST /api/runs/run_x/cancel HTTP/1.1\r\nHost: {site.host}\r\nAuthorization: Bearer {ANA}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )

    assert site.ask("POST", "/api/runs/run_x/cancel", body=large).status == 413
    assert raw(site.host, request.encode() + chunk + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")


def test_deep_and_odd_json_is_an_error_of_the_request(site: Site) -> None:
    """It does not bring the server down."""
    for body in (b"[" * 30_000, b'{"reason": "\xff"}', b'{"reason": 1e999}', b"null", b""):
        assert site.ask("POST", "/api/runs/run_x/cancel", body=body).status == 400


def test_every_answer_tells_browsers_to_run_nothing_of_others(site: Site) -> None:
    """Errors too: code and style of this server's own files only, no frames, no guessed types, no referrer."""
    for path in ("/", "/api/me", "/api/nothing", "/openapi.json", "/page/nothing"):
        for token in (ANA, None):
            answer = site.ask("GET", path, token=token)
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_two_answers_that_race_are_one(site: Site) -> None:
    """Of many that come at once the record has one; nobody is told that another one was taken."""
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


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """As is one with a token that could be guessed. A token without roles only sees."""
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
def test_a_token_file_of_roots_may_be_read_by_the_group_of_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credential of systemd, a secret of Kubernetes: root's, 0440. Not by all, not to write, not another's."""
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
