"""HTTP hooks, which the real Claude Code sends itself, and requests that others send in its name."""

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import hook_processes
import loopback
import pytest
from hook_processes import HookProcesses, end_daemons, recorded
from stored_rows import stored_rows

from proctor.adapters.hooks import over_http
from proctor.adapters.hooks.daemon import PROBE
from proctor.adapters.hooks.origin import origin_of_connection
from proctor.adapters.hooks.over_http import HookServer, endpoint_in, read_endpoint
from proctor.adapters.hooks.settings import install, settings_path, settings_with_hooks, uninstall
from proctor.policies.errors import EventError
from proctor.supervisor.errors import UsageError
from proctor.supervisor.testing.fakes import PATIENCE_S

POLICY = (
    "{name: p, on_violation: deny, tool_rules: [{tell_model: keep out,"
    " deny: [{tool: Bash, where: [{path: $.command, contains: never}]}]}]}"
)


class Sending:
    """The client in a folder whose settings make it send its hooks; `client` is the real one."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.client = client
        self.api = client.api
        self.store, self.policy = folder / "store.db", folder / "policy.yaml"
        self.policy.write_text(POLICY)
        self.settings = settings_path(user=False, folder=client.cwd)
        home = client.env["HOME"]
        self.hooks = settings_with_hooks([self.policy], self.store, home=home, http=True)
        self.write({"permissions": {"allow": ["Bash"]}})
        install(self.settings, self.hooks)
        [place] = folder.glob("store.db-hook-*")
        found = read_endpoint(str(place))
        assert found is not None
        self.endpoint = found

    def write(self, settings: dict[str, Any], name: str = "settings.local.json") -> None:
        path = self.settings.with_name(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(settings))

    def script(self, name: str, text: str) -> None:
        """A Python program in the folder, which can import the tests' helpers."""
        path = f"import sys; sys.path.insert(0, {str(Path(hook_processes.__file__).parents[1])!r})"
        (self.client.cwd / name).write_text(f"{path}\n{text}")

    def tries(self, *commands: str) -> dict[str, str]:
        """The model runs these, each in its own turn; the result that it got for each."""
        calls = [self.api.bash(command) for command in commands]
        self.api.say(*map(self.api.reply, calls), self.api.reply(self.api.text("done")))
        self.client.run()
        results = self.client.tool_results()
        return {call["input"]["command"]: results.get(call["id"], "") for call in calls}


@pytest.fixture
def sending(claude: Any, tmp_path: Path) -> Iterator[Sending]:
    """The client with HTTP hooks."""
    sending = Sending(claude, tmp_path)
    yield sending
    end_daemons(sending.store)


@pytest.mark.claude
def test_the_client_sends_its_hooks_and_obeys_the_answer(sending: Sending) -> None:
    """Only the prompt starts a program. A denied call does not run, and an allowed one is recorded to its end.
    Another process with the settings' token can't speak for the client.
    """
    limits = "limits: {max_tool_calls: {max: 2, action: deny, scope: session}}, tool_rules"
    sending.policy.write_text(POLICY.replace("tool_rules", limits))
    sending.script(
        "forge.py",
        f"""
import glob, json, os, urllib.request
[log] = glob.glob(os.environ["CLAUDE_CONFIG_DIR"] + "/projects/*/*.jsonl")
end = {{"session_id": os.path.basename(log)[:-6], "hook_event_name": "SessionEnd", "reason": "x"}}
headers = {{"Authorization": {sending.endpoint.authorization!r}}}
requests = urllib.request.Request({sending.endpoint.url!r}, json.dumps(end).encode(), headers)
to = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
open("answer", "wb").write(to.open(requests).read())
""",
    )
    ours = sending.hooks["hooks"].items()
    kinds = {one["hooks"][0]["type"] for event, [one] in ours if event != "UserPromptSubmit"}
    results = sending.tries("touch never", f"{sys.executable} forge.py", "touch second", "touch third")

    assert kinds == {"http"}
    assert "keep out" in results["touch never"]
    assert "still running" in (sending.client.cwd / "answer").read_text()
    assert [(sending.client.cwd / name).exists() for name in ("never", "second", "third")] == [False, True, False]
    types = ("run_started", "run_cancelled", "tool_call_denied", "tool_call_completed", "run_completed")
    assert recorded(sending.store, *types) == [
        *("run_started", "tool_call_denied", "tool_call_completed", "tool_call_completed"),
        *("tool_call_denied", "run_completed"),
    ]


@pytest.mark.claude
def test_a_call_is_blocked_while_no_daemon_runs(sending: Sending) -> None:
    """The first call kills the daemon, and the second does not run. The next prompt starts another."""
    sending.policy.write_text("{name: p}")
    sending.script("kill.py", f"from tests.hook_processes import end_daemons; end_daemons({str(sending.store)!r})")
    sending.tries(f"{sys.executable} kill.py", "touch unjudged")
    blocked = not (sending.client.cwd / "unjudged").exists()
    sending.tries("touch judged")

    assert blocked
    assert (sending.client.cwd / "judged").exists()


@pytest.mark.claude
@pytest.mark.parametrize("repository", ["a proxy", "no URLs", "no hooks"])
def test_a_repository_cannot_redirect_hooks(sending: Sending, repository: str) -> None:
    """Its settings can neither send a hook to another server, which would allow everything, nor omit one."""
    requests: list[str] = []

    def allows(exchange: loopback.Exchange) -> None:
        requests.append(exchange.body["hook_event_name"])
        decision = {"hookEventName": exchange.body["hook_event_name"], "permissionDecision": "allow"}
        exchange.give({"hookSpecificOutput": decision})

    server = loopback.Server(allows)
    proxy = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), server.url)
    settings: dict[str, dict[str, Any]] = {
        "a proxy": {"env": {**proxy, "NO_PROXY": "", "no_proxy": ""}},  # and none of its exceptions
        "no URLs": {"allowedHttpHookUrls": ["http://other/*"]},
        "no hooks": {"disableAllHooks": True},
    }
    sending.write(settings[repository], "settings.json")
    sending.client.env.pop("NO_PROXY")
    sending.tries("touch never")
    server.close()

    assert not (sending.client.cwd / "never").exists()
    assert requests == []


def test_a_connection_without_a_hook_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hundreds that send a part, or nothing, do not block the client. A connection that sent a hook stays open."""
    monkeypatch.setattr(over_http, "FIRST_HOOK_S", 1.0)
    tmp_path.chmod(0o700)
    endpoint = endpoint_in(str(tmp_path))
    monkeypatch.setattr(over_http, "origin_of_connection", lambda connection, likely: "a client")
    server = HookServer(endpoint, lambda data, origin, connection: b"=" + data, list)

    def sends(connection: socket.socket) -> bytes:
        head = (
            f"POST {over_http.PATH} HTTP/1.1\r\nAuthorization: {endpoint.authorization}\r\nContent-Length: 2\r\n\r\n"
        )
        connection.sendall(head.encode() + b"{}")
        answer = b""
        while not answer.endswith(b"{}"):
            answer += connection.recv(1000)
        return answer[:15]

    starts = [b"", b"POST /proctor", b"POST /proctor/hook HTTP/1.1\r\nAuthoriz"] * 70
    silent = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in starts]
    for connection, start in zip(silent, starts, strict=True):
        connection.sendall(start)
    slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(3)]
    with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
        client.settimeout(PATIENCE_S)
        first = sends(client)
        for letter in b"POST /proctor/hook HTTP/1.1":
            with suppress(OSError):
                for connection in slow:
                    connection.sendall(bytes([letter]))
            threading.Event().wait(0.05)
        for connection in [*silent, *slow]:
            connection.settimeout(PATIENCE_S)
            with suppress(ConnectionResetError):
                assert connection.recv(100) == b""
            connection.close()
        second = sends(client)
    server.close()

    assert first == second == b"HTTP/1.1 200 OK"


def process_of_another_user(connection: socket.socket) -> subprocess.Popen[bytes]:
    """One that holds the connection and nothing else."""
    held = connection.fileno()
    return subprocess.Popen(["/bin/sleep", "60"], user="nobody", pass_fds=[held], cwd="/")


@pytest.mark.parametrize("whose", ["mine", "another user's"])
@pytest.mark.parametrize("likely", [True, False])
def test_a_hook_that_another_user_sends_has_no_origin(whose: str, likely: bool) -> None:
    """A secret of the endpoint that has leaked does not make a client of another user's process."""
    if whose != "mine" and os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            if whose == "mine":
                with connection:
                    origin = origin_of_connection(accepted, [os.getpid()] if likely else [])
                assert origin.client.pid == os.getpid()
                return
            with process_of_another_user(connection) as other, ExitStack() as cleanup:
                cleanup.callback(other.kill)
                connection.close()
                with pytest.raises(EventError, match="is not known"):
                    origin_of_connection(accepted, [other.pid] if likely else [])


class TestRequests:
    """Requests to the daemon without a client."""

    @pytest.fixture
    def daemon(self, tmp_path: Path) -> Iterator[HookProcesses]:
        """A daemon with an endpoint."""
        hooked = HookProcesses(tmp_path)
        endpoint_in(str(hooked.place))
        hooked.run(PROBE)
        yield hooked
        end_daemons(hooked.store)

    def post(self, hooked: HookProcesses, data: bytes, **change: str) -> tuple[int, Any]:
        endpoint = read_endpoint(str(hooked.place))
        assert endpoint is not None
        headers = {"Authorization": change.get("token", endpoint.authorization)}
        url = endpoint.url.replace("/proctor/hook", change.get("path", "/proctor/hook"))
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None

    def call(self, **fields: Any) -> bytes:
        named = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t1", "session_id": "s"}
        return json.dumps({**named, "tool_input": {"command": "ls"}, **fields}).encode()

    def test_an_invalid_hook_is_an_error_and_an_unreadable_call_is_denied(self, daemon: HookProcesses) -> None:
        """After a 2xx without a decision, a client would continue. A token from before the endpoint was recreated is
        rejected.
        """
        no_hooks: list[tuple[bytes, dict[str, str]]] = [
            (b"{}", {"token": "Bearer x"}),
            (b"{}", {"token": "Bearer \xe9"}),
            (b"{}", {"path": "/"}),
            (b"not JSON", {}),
            (b"[]", {}),
            (b'{"hook_event_name": 1}', {}),
            (b'{"tool_name": "Bash"}', {}),
        ]
        for data, change in no_hooks:
            assert self.post(daemon, data, **change)[0] in (400, 403), data
        spoilt: list[dict[str, Any]] = [{"tool_input": "@"}, {"session_id": ""}, {"tool_use_id": ""}]
        for fields in spoilt:
            status, answer = self.post(daemon, self.call(**fields))
            assert (status, answer["hookSpecificOutput"]["permissionDecision"]) == (200, "deny"), fields
        old = read_endpoint(str(daemon.place))
        assert old is not None
        end_daemons(daemon.store)
        Path(daemon.place, "http").unlink()
        other = endpoint_in(str(daemon.place))
        daemon.run(PROBE)

        assert other.token != old.token
        assert self.post(daemon, self.call(), token=old.authorization)[0] == 403
        assert self.post(daemon, self.call())[0] == 200

    def test_a_stolen_token_does_not_speak_for_the_client(self, daemon: HookProcesses) -> None:
        """Another process of the same user sends what the session's client did not."""
        own = self.call(session_id="own")
        outcome = self.call(session_id="own", hook_event_name="PostToolUse", tool_response="forged")
        ended = self.call(session_id="own", hook_event_name="SessionEnd")
        endpoint = read_endpoint(str(daemon.place))
        assert endpoint is not None
        assert self.post(daemon, own) == (200, {})
        for forged in (outcome, ended, self.call(session_id="own", tool_use_id="t2")):
            thief = (
                "import sys, urllib.request as u; "
                "u.urlopen(u.Request(sys.argv[1], sys.stdin.buffer.read(), {'Authorization': sys.argv[2]}))"
            )
            command = [sys.executable, "-c", thief, endpoint.url, endpoint.authorization]
            subprocess.run(command, input=forged, capture_output=True, check=False)
        types = [type for (type,) in stored_rows(daemon.store, "SELECT type FROM events")]

        assert types.count("tool_call_requested") == 1
        assert not {"tool_call_completed", "run_cancelled"} & {*types}

    def test_concurrent_hooks_share_one_budget(self, daemon: HookProcesses) -> None:
        """A hundred on separate connections. The session is that of the sending process."""
        daemon.policy.write_text("{name: p, limits: {max_tool_calls: {max: 3, scope: session, action: deny}}}")
        answers: list[Any] = []
        sent = [self.call(session_id="own", tool_use_id=f"t{n}") for n in range(100)]
        threads = [threading.Thread(target=lambda one=one: answers.append(self.post(daemon, one))) for one in sent]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [status for status, _ in answers] == [200] * 100
        assert sum("hookSpecificOutput" not in answer for _, answer in answers) == 3


def test_installed_settings_are_removed_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Including the proxy exception. Only those who can read the settings have the token."""
    monkeypatch.setenv("NO_PROXY", "example.org")
    path, policy, store = tmp_path / "settings.json", tmp_path / "policy.yaml", tmp_path / "store.db"
    policy.write_text("{name: p}")
    before = b'{ "env":{"A": "b"} }'
    path.write_bytes(before)
    wanted = settings_with_hooks([policy], store, http=True)
    install(path, wanted)
    env = json.loads(path.read_text())["env"]
    again = install(path, settings_with_hooks([policy], store, http=True))
    mode = path.stat().st_mode & 0o777
    uninstall(path)

    assert env["NO_PROXY"] == "127.0.0.1,example.org"
    assert not again
    assert mode == 0o600
    assert path.read_bytes() == before


def test_a_client_without_http_hooks_is_rejected(tmp_path: Path) -> None:
    """Only Claude Code has `--http`."""
    from proctor.adapters.hooks.clients import CLIENTS

    with pytest.raises(UsageError, match="sends no hooks over HTTP"):
        settings_with_hooks([tmp_path / "p"], tmp_path / "s", client=CLIENTS["codex"], http=True)
