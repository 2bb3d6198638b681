"""`serve`: its start, its end, and wrong options."""

import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from certificates import certificate_files

from proctor.supervisor.testing.fakes import PATIENCE_S

SERVE = (sys.executable, "-m", "proctor", "serve", "--listen", "127.0.0.1:0")


class Serving:
    """`proctor serve`, with the first line that it prints: a URL with the token after `#`."""

    def __init__(self, *words: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [*SERVE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url, _, self.token = self.line.strip().partition("#token=")
        self.out = self.err = ""

    def opened(self, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Origin": self.url.rstrip("/")}
        return urlopen(Request(f"{self.url}{path}", headers=headers), timeout=PATIENCE_S, **more)

    def end(self, by: int = signal.SIGTERM) -> int:
        """Its exit code, once it has ended; its other output is known then."""
        self.process.send_signal(by)
        self.out, self.err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@pytest.fixture
def serving(place: Path) -> Iterator[Callable[..., Serving]]:
    """Starts servers, which end with the test."""
    started: list[Serving] = []

    def start(*words: str, **env: str) -> Serving:
        started.append(Serving(*words, **env))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_prints_a_working_url_and_ends_in_order(serving: Any, by: int) -> None:
    """The token follows `#`, which browsers do not send, and is mentioned nowhere else. Open streams are closed. A
    second Ctrl-C during the close changes nothing.
    """
    server = serving()
    with server.opened("api/runs") as answer:
        assert json.load(answer) == {"runs": [], "next": None}
    with server.opened("api/changes") as stream:
        assert stream.readline() == b": open\n"
        server.process.send_signal(by)
        rest = stream.read()
        code = server.end(signal.SIGINT)

    assert (code, server.out, server.err) == (0, "", "serving until Ctrl-C\n")
    assert b"Traceback" not in rest


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_its_notes_are_written_at_once(serving: Any, unbuffered: str) -> None:
    """A service manager logs them as they come, also with `PYTHONUNBUFFERED`, as containers often set it."""
    process = serving(PYTHONUNBUFFERED=unbuffered).process
    ready, _, _ = select.select([process.stderr], [], [], PATIENCE_S)

    assert [stream.readline() for stream in ready] == ["serving until Ctrl-C\n"]
    process.stderr.close()


def test_a_signal_right_after_the_url_ends_it_in_order(serving: Any) -> None:
    """A service manager may stop it immediately."""
    assert serving().end(signal.SIGTERM) == 0


def test_a_missing_store_is_reported_once_and_serving_continues(cli: Any, place: Path, serving: Any) -> None:
    """On standard error, where a service manager logs it. A token from the environment is not printed."""
    assert cli("store", "--make", "--store", "runs.db").code == 0
    token = "a-token-of-the-environment"
    server = serving("--json", "--store", "runs.db", PROCTOR_WEB_TOKEN=token)
    server.url, server.token = json.loads(server.line)["url"], token
    with server.opened("api/me") as answer:
        assert json.load(answer)["roles"] == ["see", "answer", "stop"]
    place.joinpath("runs.db").unlink()
    answers = [_status_of(f"{server.url}healthz") for _ in range(2)]

    assert (server.end(), answers) == (0, [503, 503])
    assert token not in server.line + server.out
    assert server.err.count("web.store_unreachable") == 1
    assert "was removed while it was in use" in server.err


def test_events_after_the_url_is_printed_are_sent_to_the_webhook(place: Path, serving: Any) -> None:
    """It has its position in the log by then, so a run that starts at once is not missed."""
    serving("--webhook", "http://127.0.0.1:9/", PROCTOR_WEBHOOK_SECRET="a-secret-both-sides-know")

    assert [path for path in place.rglob("*.webhook-*") if path.suffix != ".lock"]


def _status_of(url: str) -> int:
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.fixture
def certificate(place: Path) -> tuple[Path, Path]:
    """A certificate for this machine's own name, and its key."""
    files: tuple[Path, Path] = certificate_files(place, "127.0.0.1")
    return files


def test_it_serves_tls_with_a_certificate(certificate: tuple[Path, Path], serving: Any) -> None:
    """With an https URL, whose page may send requests. Plain HTTP is not answered."""
    cert, key = map(str, certificate)
    server = serving("--cert", cert, "--key", key)
    with server.opened("api/runs", context=ssl.create_default_context(cafile=cert)) as answer:
        assert json.load(answer) == {"runs": [], "next": None}
    with pytest.raises((URLError, ConnectionError, HTTPException)):
        urlopen(f"http{server.url.removeprefix('https')}api/runs", timeout=PATIENCE_S)

    assert server.url.startswith("https://127.0.0.1:")


def test_a_wrong_certificate_or_key_is_reported(cli: Any, place: Path, certificate: tuple[Path, Path]) -> None:
    """Before it listens."""
    cert, _ = certificate
    place.joinpath("other.pem").write_text("nothing of the kind")

    assert "go together" in cli("serve", "--cert", cert).err
    missing = cli("serve", "--cert", cert, "--key", "missing.pem").err
    assert missing == "error: `missing.pem` cannot be read: no such file or directory\n"
    wrong = cli("serve", "--cert", cert, "--key", "other.pem").err
    assert wrong.endswith("are not a certificate and its key: one of them is no such PEM file\n")


def test_a_port_in_use_is_one_error(cli: Any) -> None:
    """With the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = cli("serve", "--listen", address)

    assert answer.code == 2
    assert f"cannot listen on `{address}`" in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(("name", "value", "message"), [
    ("PROCTOR_WEB_TOKEN", "short", "the token in PROCTOR_WEB_TOKEN must have at least 16 characters"),
    ("PROCTOR_RUN", "run_x", "does not work within a supervised run"),
])  # fmt: skip
def test_it_rejects_a_guessable_token_and_a_start_within_a_run(
    cli: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    """The token is not repeated. A supervised run could otherwise answer its own requests."""
    monkeypatch.setenv(name, value)
    answer = cli("serve", "--listen", "127.0.0.1:0")

    assert answer.code == 2
    assert message in answer.err
    assert "short" not in answer.err
