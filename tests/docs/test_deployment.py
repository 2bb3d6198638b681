"""The files of docs/deployment: units that systemd accepts and that work as documented, and an image without root."""

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from page_blocks import ROOT
from web_server import TOKENS

from proctor.adapters.cli.app import app
from proctor.supervisor.testing.fakes import PATIENCE_S

FILES = ROOT / "docs" / "deployment"
EXPOSURE = {"proctor-serve.service": 15, "proctor-worker.service": 30}
"""The highest score of `systemd-analyze security`, in tenths; 100 is a service without any protection."""
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="apt-get install systemd")


def unit_of(name: str) -> configparser.SectionProxy:
    """Its section `Service`, with settings that occur once."""
    read = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(FILES / name)
    return read["Service"]


@needs_systemd
@pytest.mark.parametrize(("name", "most"), EXPOSURE.items())
def test_systemd_accepts_the_unit_and_rates_it_as_protected(name: str, most: int, tmp_path: Path) -> None:
    """By systemd's own score. Its programs are searched for elsewhere than at their final paths; nothing else is
    wrong.
    """
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", (FILES / name).read_text(), flags=re.M)
    (tmp_path / name).write_text(text.replace("=proctor\n", "=daemon\n", 2))
    verified = subprocess.run(["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True)
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", FILES / name]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})

    assert [line for line in verified.stderr.splitlines() if name in line] == []
    assert ended.returncode == 0, ended.stdout[-400:] + ended.stderr
    assert "Overall exposure level" in ended.stdout


@pytest.mark.parametrize("name", EXPOSURE)
def test_the_unit_is_not_root_and_restarts_only_if_that_helps(name: str) -> None:
    """It writes only to its private state directory."""
    unit = unit_of(name)

    assert (unit["User"], unit["ProtectSystem"], unit["StateDirectoryMode"]) == ("proctor", "strict", "0700")
    assert (unit["NoNewPrivileges"], unit["CapabilityBoundingSet"], unit["Restart"]) == ("yes", "", "on-failure")


def test_the_dashboard_is_served_and_stops_as_its_unit_says(tmp_path: Path) -> None:
    """With its command, its environment and its credential, on an empty state directory: healthy at once, exit code
    0.
    """
    unit = unit_of("proctor-serve.service")
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    (tmp_path / "tokens.yaml").chmod(0o400)
    program, *arguments = shlex.split(unit["ExecStart"].replace("${CREDENTIALS_DIRECTORY}", str(tmp_path)))
    assert program == "/opt/proctor/bin/proctor"
    assert unit["Environment"] == "XDG_STATE_HOME=/var/lib"
    env = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path / "lib")}
    (tmp_path / "lib").mkdir()
    command = [sys.executable, "-m", "proctor", *arguments, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd="/")
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        with urlopen(f"{url}healthz", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
    assert (tmp_path / "lib" / "proctor" / "runs.db").is_file()


def test_a_mistake_in_a_unit_exits_with_the_code_that_is_not_restarted(tmp_path: Path) -> None:
    """In the tokens, the address, or the store."""
    assert unit_of("proctor-serve.service")["RestartPreventExitStatus"] == "2"
    for arguments in (["--tokens", "none.yaml"], ["--listen", "here"], ["--store", "no/where.db"]):
        free = () if "--listen" in arguments else ("--listen", "127.0.0.1:0")
        command = [sys.executable, "-m", "proctor", "serve", *arguments, *free]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)

        assert ended.returncode == 2, ended


def steps() -> list[tuple[str, str]]:
    """The instructions of the container file, each with its arguments."""
    text = re.sub(r"\\\n", " ", (FILES / "Containerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def test_nobody_can_guess_the_token_of_a_digest_on_a_page() -> None:
    """Whoever copies the file would let in everybody who does."""
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    guesses = ("foo", "bar", "hello", "test", "token", "secret", "password", "changeme", "dashboard", "proctor", "")

    assert [guess for guess in guesses if sha256(guess.encode()).hexdigest() in pages] == []


def test_the_image_is_not_root_writes_to_its_volume_and_contains_all_sources() -> None:
    """A numeric user, which an engine can check; every file that the wheel's build reads, and no others."""
    of_the_image = steps()[[word for word, _ in steps()].index("FROM", 2) :]
    given = dict(of_the_image)

    assert (given["USER"], given["VOLUME"], given["STOPSIGNAL"]) == ("10001:10001", "/var/lib/proctor", "SIGTERM")
    assert "XDG_STATE_HOME=/var/lib" in given["ENV"]
    assert given["ENTRYPOINT"] == '["proctor"]'
    assert "ADD" not in given

    copied = {name for word, rest in steps() if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (package,) = (ROOT / path for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    packages = {package.parent.name, *(path.resolve().name for path in package.iterdir() if path.is_symlink())}
    extras = next(rest for word, rest in steps() if word == "ARG" and rest.startswith("EXTRAS="))

    assert copied == packages | {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert set(extras.partition("=")[2].split(",")) <= set(project["project"]["optional-dependencies"])


@pytest.fixture
def compose() -> dict[str, Any]:
    """The compose file, with its anchors resolved."""
    found: dict[str, Any] = yaml.safe_load((FILES / "compose.yaml").read_text())
    return found


def test_our_services_are_read_only_without_capabilities_and_passwords(compose: dict[str, Any]) -> None:
    """Their state is in a declared volume, their build files exist, and the password is asked for."""
    required = "${PROCTOR_DB_PASSWORD:?choose one}"
    assert compose["services"]["db"]["environment"]["POSTGRES_PASSWORD"] == required
    assert compose["x-proctor"]["environment"]["PGPASSWORD"] == required
    assert compose["secrets"] == {"tokens": {"file": "./tokens.yaml"}}
    ours = {name: service for name, service in compose["services"].items() if service["image"] == "proctor"}

    assert sorted(ours) == ["serve", "tables"]
    for service in ours.values():
        assert (service["read_only"], service["init"], service["cap_drop"]) == (True, True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {mount.partition(":")[0] for mount in service["volumes"]} <= set(compose["volumes"])
        build = service["build"]
        assert (FILES / build["context"] / build["dockerfile"]).resolve() == FILES / "Containerfile"
        assert _understood(service["command"])


def test_each_service_waits_for_what_it_needs(compose: dict[str, Any]) -> None:
    """The tables need a healthy database, the dashboard its tables; each permanent service has a health check."""
    services = compose["services"]

    assert services["tables"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert services["serve"]["depends_on"] == {"tables": {"condition": "service_completed_successfully"}}
    assert "/healthz" in services["serve"]["healthcheck"]["test"][-1]
    assert services["db"]["healthcheck"]["test"][1] == "pg_isready"
    assert [name for name, one in services.items() if "ports" in one] == ["serve"]
    assert services["serve"]["ports"][0].startswith("127.0.0.1:")


def _understood(command: list[str]) -> bool:
    """Whether the command line has this command with these options."""
    name, *arguments = command
    with app.make_context("proctor", [name], resilient_parsing=True) as context:
        found = app.get_command(context, name)
        assert found is not None, name
        options = {option for parameter in found.get_params(context) for option in parameter.opts}
    return {word for word in arguments if word.startswith("--")} <= options
