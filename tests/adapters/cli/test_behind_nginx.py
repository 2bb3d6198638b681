"""`proctor serve` behind a real nginx, with the commands and configuration of docs/operate/dashboard.md."""

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import web_server
from certificates import certificate_files
from web_server import ANA, BEN, EVE, Answer

from proctor.adapters.web.auth import AT_MOST
from proctor.supervisor.testing.fakes import PATIENCE_S

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="needs nginx: apt-get install nginx-light")
pytestmark = needs_nginx
x509 = pytest.importorskip("cryptography.x509", reason="needs the extra `audit`: pip install '.[audit]'")
PAGE = Path(__file__).parents[3] / "docs" / "operate" / "dashboard.md"
NAME = "ops.example"
AROUND = """\
{own}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""
"""The test's own paths around the page's configuration."""
POLICY = "{name: open, limits: {max_tool_calls: 9}}"


class Proxied:
    """The site as people reach it: by its name, over TLS, with a verified certificate."""

    def __init__(self, port: int, certificate: Path, store: Path) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(certificate))
        self.store = store

    def connect(self, client: str = "127.0.0.1") -> http.client.HTTPConnection:
        """A connection from an address of this machine."""
        connection = http.client.HTTPConnection(NAME, timeout=PATIENCE_S)
        plain = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S, source_address=(client, 0))
        connection.sock = self._context.wrap_socket(plain, server_hostname=NAME)
        return connection

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = ANA,
        body: Any = None,
        client: str = "127.0.0.1",
        **more: str,
    ) -> Answer:
        """Send one request; `more` are headers."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        headers |= {} if token is None else {"Authorization": f"Bearer {token}"}
        data = None if body is None else json.dumps(body).encode()
        headers |= {} if data is None else {"Content-Type": "application/json"}
        with closing(self.connect(client)) as connection:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return Answer(response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})

    @contextmanager
    def stream(self, path: str) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a stream as they arrive."""
        with closing(self.connect()) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {ANA}"})
            response = connection.getresponse()
            assert response.status == 200
            yield (json.loads(line[5:]) for line in response if line.startswith(b"data:"))


def written(language: str, containing: str) -> str:
    """The page's block that contains this."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found: str
    [found] = [block for block in blocks if containing in block]
    return found


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """`proctor serve` with the page's command, on a free port: HOST:PORT."""
    [command] = [line for line in written("sh", "--proxy 127.0.0.1").splitlines() if line]
    with web_server.serving(folder, *command.removeprefix("proctor serve --tokens tokens.yaml ").split()) as own:
        yield own.host


@contextmanager
def proxying(folder: Path, upstream: str) -> Iterator[int]:
    """Nginx with the page's configuration, on a socket that is already listening, as for a replacement without
    downtime.
    """
    certificate, key = certificate_files(folder, NAME)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, number = listener.getsockname()[1], listener.fileno()
        server = written("text", "proxy_pass")
        ours = {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "cert.pem": str(certificate),
            "key.pem": str(key),
            "http://127.0.0.1:8700": f"http://{upstream}",
        }
        for theirs, mine in ours.items():
            assert server.count(theirs) == 1, theirs
            server = server.replace(theirs, mine)
        own = "user root;" if os.geteuid() == 0 else ""
        folder.joinpath("nginx.conf").write_text(AROUND.format(folder=folder, own=own, server=server))
        assert NGINX is not None
        command = [NGINX, "-e", "error.log", "-p", str(folder), "-c", "nginx.conf"]
        inherited = {**os.environ, "NGINX": f"{number};"}
        with subprocess.Popen(command, cwd=folder, env=inherited, pass_fds=(number,)) as nginx:
            try:
                yield port
            finally:
                nginx.terminate()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """Both, and the site as people reach it."""
    folder = tmp_path_factory.mktemp("site")
    with serving(folder) as upstream, proxying(folder, upstream) as port:
        yield Proxied(port, folder / "cert.pem", folder / "runs.db")


def test_the_dashboard_and_the_api_are_reached_by_their_public_name(site: Proxied) -> None:
    """Over the proxy's TLS, with all of the server's own headers."""
    page, mine = site.ask("GET", "/", token=None), site.ask("GET", "/api/me")

    assert (page.status, mine.data["name"]) == (200, "ana")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "server" not in page.headers or "uvicorn" not in page.headers["server"]
    assert site.ask("GET", "/api/me", token=None).status == 401
    assert site.ask("GET", "/healthz", token=None).status == 200


def test_events_pass_as_they_arrive_while_the_run_continues(site: Proxied) -> None:
    """The proxy does not buffer them until the next event or the end."""
    run = web_server.Site("http://unused", site.store)
    with web_server.going(
        run, "steps: [{call: bash, input: {command: ls}}, {silence: forever}]\n", POLICY
    ) as process:
        assert process.stdout is not None
        started = next(event for event in map(json.loads, process.stdout) if event["type"] == "run_started")
        with site.stream(f"/api/runs/{started['run_id']}/stream") as events:
            for event in events:
                if event["type"] == "tool_call_completed":
                    break
            ended = site.ask("POST", f"/api/runs/{started['run_id']}/cancel", body={"reason": "enough"})
            rest = [event for event in events if event.get("type") == "run_cancelled"]

    assert ended.status == 202
    assert [(event["reason"], event["by"]) for event in rest] == [("enough", "ana")]


def test_other_host_names_and_origins_are_rejected(site: Proxied) -> None:
    """The proxy passes on the requested host name, and the server checks it."""
    own = f"https://{NAME}"

    assert site.ask("GET", "/api/me", Host="evil.example").status == 421
    assert site.ask("GET", "/api/me", Host=f"{NAME}:8443").status == 421
    assert site.ask("GET", "/api/me", Origin="https://evil.example").status == 403
    assert site.ask("GET", "/api/me", Origin=f"http://{NAME}").status == 403
    assert site.ask("GET", "/api/me", Sec_Fetch_Site="cross-site").status == 403
    assert site.ask("GET", "/api/me", Origin=own, Sec_Fetch_Site="same-origin").status == 200


def test_each_person_has_the_roles_of_their_token(site: Proxied) -> None:
    """As without a proxy."""
    block = {"scope": "all", "reason": "an incident"}

    assert [site.ask("POST", "/api/switch", token=token, body=block).status for token in (EVE, BEN)] == [403, 403]
    assert site.ask("POST", "/api/switch", body={"scope": "all", "reason": "x" * 70_000}).status == 413


def test_wrong_tokens_are_counted_for_each_client(site: Proxied) -> None:
    """Not for the proxy that forwards them all. A client can't claim another address."""
    for n in range(AT_MOST):
        rejected = site.ask("GET", "/api/me", token="wrong", client="127.0.0.2", X_Forwarded_For=f"10.0.0.{n}")
        assert rejected.status == 401
    spent = site.ask("GET", "/api/me", token="wrong", client="127.0.0.2", X_Forwarded_For="10.9.9.9")

    assert (spent.status, "retry-after" in spent.headers) == (429, True)
    assert site.ask("GET", "/api/me", token="wrong", client="127.0.0.1").status == 401
    assert site.ask("GET", "/api/me", token=EVE, client="127.0.0.2").status == 200


def test_the_server_itself_is_reached_only_on_this_machine(tmp_path: Path) -> None:
    """It listens on loopback, and accepts the proxy's host name besides its own."""
    with serving(tmp_path) as upstream:
        address, _, port = upstream.partition(":")
        assert address == "127.0.0.1"
        with closing(http.client.HTTPConnection(address, int(port), timeout=PATIENCE_S)) as connection:
            connection.request("GET", "/api/me", headers={"Host": NAME, "Authorization": f"Bearer {ANA}"})
            assert connection.getresponse().status == 200
