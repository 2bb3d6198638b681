"""`serve`: started, ended, and told wrongly."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from proctor.supervisor.testing.fakes import PATIENCE_S

Cli = Any
SERVE = (sys.executable, "-m", "proctor.adapters.cli", "serve", "--listen", "127.0.0.1:0")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_a_url_that_works_and_ends_in_order(place: Path, end: int) -> None:
    """The token stands behind `#`, which no browser sends; nothing else is said of it."""
    process = subprocess.Popen(SERVE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url, _, token = process.stdout.readline().strip().partition("#token=")
        with urlopen(
            Request(f"{url}api/runs", headers={"Authorization": f"Bearer {token}"}), timeout=PATIENCE_S
        ) as answer:
            assert json.load(answer) == {"runs": [], "next": None}
    finally:
        process.send_signal(end)
        out, err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, out, err) == (0, "", "serving until Ctrl-C\n")


def test_streams_that_are_open_do_not_hold_up_the_end(place: Path) -> None:
    """They are closed in order."""
    process = subprocess.Popen(SERVE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url, _, token = process.stdout.readline().strip().partition("#token=")
        request = Request(f"{url}api/changes", headers={"Authorization": f"Bearer {token}"})
        with urlopen(request, timeout=PATIENCE_S) as stream:
            assert stream.readline() == b": open\n"
            process.terminate()
            rest = stream.read()
    finally:
        process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
    assert b"Traceback" not in rest


def test_a_store_that_is_gone_is_reported_once_and_serving_continues(cli: Cli, place: Path) -> None:
    """On standard error, where a service manager keeps it."""
    assert cli("store", "--make", "--store", "runs.db").code == 0
    process = subprocess.Popen(
        [*SERVE, "--store", "runs.db"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().partition("#")[0]
        place.joinpath("runs.db").unlink()
        answers = [_status_of(f"{url}healthz") for _ in range(2)]
    finally:
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_S)

    assert answers == [503, 503]
    assert err.count("web.store_unreachable") == 1
    assert "was removed while it was in use" in err
    assert process.returncode == 0


def _status_of(url: str) -> int:
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


@pytest.fixture
def certificate(place: Path) -> tuple[Path, Path]:
    """A certificate of this machine's own name, and its key."""
    x509 = pytest.importorskip("cryptography.x509", reason="needs the extra `audit`: pip install '.[audit]'")
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = made.add_extension(address, critical=False).sign(key, SHA256())
    place.joinpath("cert.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    place.joinpath("key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return place / "cert.pem", place / "key.pem"


def test_it_speaks_tls_with_a_certificate(place: Path, certificate: tuple[Path, Path]) -> None:
    """Under an https URL, whose page may ask; plain HTTP is not answered."""
    cert, key = map(str, certificate)
    process = subprocess.Popen([*SERVE, "--cert", cert, "--key", key], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url, _, token = process.stdout.readline().strip().partition("#token=")
        headers = {"Authorization": f"Bearer {token}", "Origin": url.rstrip("/")}
        trusting = ssl.create_default_context(cafile=cert)
        with urlopen(Request(f"{url}api/runs", headers=headers), timeout=PATIENCE_S, context=trusting) as answer:
            assert json.load(answer) == {"runs": [], "next": None}
        with pytest.raises((URLError, ConnectionError, HTTPException)):
            urlopen(f"http{url.removeprefix('https')}api/runs", timeout=PATIENCE_S)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)

    assert url.startswith("https://127.0.0.1:")


def test_a_wrong_certificate_or_key_is_reported(cli: Cli, place: Path, certificate: tuple[Path, Path]) -> None:
    """Before anything listens."""
    cert, _ = certificate
    place.joinpath("other.pem").write_text("nothing of the kind")

    assert "go together" in cli("serve", "--cert", cert).err
    assert "cannot be read: no such file" in cli("serve", "--cert", cert, "--key", "missing.pem").err.lower()
    assert "are not a certificate and its key" in cli("serve", "--cert", cert, "--key", "other.pem").err
    assert "is not an address" in cli("serve", "--proxy", "ops.example").err


def test_a_token_of_the_environment_is_not_printed(place: Path) -> None:
    """Whoever set it has it."""
    token = "a-token-of-the-environment"
    environment = {**os.environ, "PROCTOR_WEB_TOKEN": token}
    process = subprocess.Popen([*SERVE, "--json"], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        with urlopen(
            Request(f"{url}api/me", headers={"Authorization": f"Bearer {token}"}), timeout=PATIENCE_S
        ) as answer:
            assert json.load(answer)["roles"] == ["see", "answer", "stop"]
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE_S)

    assert token not in url + out


def test_a_port_in_use_is_one_clear_error(cli: Cli) -> None:
    """With the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = cli("serve", "--listen", address)

    assert answer.code == 2
    assert f"cannot listen on `{address}`" in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--store", "nowhere.db"), "there is no store at `nowhere.db`"),
        (("--store", "org.yaml"), "org.yaml"),
        (("--listen", "0.0.0.0:0"), "is not on loopback"),
        (("--listen", "here"), "is not an address"),
        (("--listen", "0.0.0.0:0", "--anywhere"), "needs `--tokens FILE`"),
        (("--origin", "ops.example"), "is not an origin"),
        (("--origin", "https://ops.example/page"), "is not an origin"),
        (("--tokens", "nowhere.yaml"), "`nowhere.yaml` cannot be read"),
    ],
)
def test_a_wrong_option_is_one_clear_error(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    """Exit code 2, one line."""
    answer = cli("serve", *(() if "--listen" in arguments else ("--listen", "127.0.0.1:0")), *arguments)

    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert answer.out == ""


def test_a_token_that_could_be_guessed_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the environment too; it is not repeated."""
    monkeypatch.setenv("PROCTOR_WEB_TOKEN", "short")
    answer = cli("serve", "--listen", "127.0.0.1:0")

    assert answer.code == 2
    assert "at least 16 characters" in answer.err
    assert "short" not in answer.err


def test_a_supervised_run_cannot_serve(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hand itself the token to its own approvals."""
    monkeypatch.setenv("PROCTOR_RUN", "run_x")
    answer = cli("serve")

    assert answer.code == 2
    assert "does not work within a supervised run" in answer.err
