"""The application of the page on apps works as described: in Starlette's test client, and in a real server."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from answering import token_of
from page_blocks import ROOT, blocks

from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("fastapi", "pydantic_ai", "httpx", "uvicorn"))), reason="pip install -e '.[dev]'"
)

(APP,) = [block.text for block in blocks(ROOT / "docs" / "how-to" / "apps.md") if block.file == "app.py"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The application's folder, and its store."""
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_outlives_its_request_and_is_approved_by_another(place: Path, backend: Any) -> None:
    """On both backends: started, approved, followed to its end. The page's framework needs asyncio."""
    from starlette.testclient import TestClient

    names: dict[str, Any] = {"__name__": "app"}
    exec(APP, names)
    if backend == "trio":
        names["adapter"] = FakeAdapter([Ask(name="refund", input={"order": "7"})])
    with TestClient(names["app"], backend=backend) as client:
        run_id = client.post("/runs", params={"prompt": "refund order 7"}).json()["run_id"]
        (fetched,) = until(lambda: client.get("/approvals").json())
        answered = client.post(f"/approvals/{quote(fetched['id'])}", params={"by": "ana"})
        events = [json.loads(line) for line in client.get(f"/runs/{run_id}/events").iter_lines()]
        missing = client.get("/runs/none/events").status_code
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(client.post, "/answers", params={"prompt": "refund order 7"})
            (request,) = until(lambda: client.get("/approvals").json())
            client.post(f"/approvals/{quote(request['id'])}", params={"by": "ana"})
            result = waiting.result(PATIENCE_S).json()

    assert (request["id"], result["status"]) == (f"{result['run_id']}.1", "completed")
    assert (fetched["tool"], answered.status_code, missing) == ("refund", 200, 404)
    assert [event["by"] for event in events if event["type"] == "tool_approval_granted"] == ["ana"]
    assert events[-1]["type"] == "run_completed"


def test_other_processes_answer_the_approvals_of_a_real_server(place: Path) -> None:
    """With the page's commands, and the program of the page on approvals, unchanged."""
    page = ROOT / "docs" / "how-to" / "approvals.md"
    (inbox,) = [block.text for block in blocks(page) if block.file == "inbox.py"]
    place.joinpath("inbox.py").write_text(inbox)
    with served(place) as ask:
        first_id = ask("POST", "/runs?prompt=go")["run_id"]
        (fetched,) = until(lambda: proctor("approvals", "--json"))
        proctor("approve", fetched["approval_id"])
        first = ask("GET", f"/runs/{first_id}/events", lines=True)
        run_id = ask("POST", "/runs?prompt=go")["run_id"]
        until(lambda: ask("GET", "/approvals"))
        other = subprocess.Popen([sys.executable, "inbox.py"], cwd=place, stdout=subprocess.PIPE, text=True)
        try:
            events = ask("GET", f"/runs/{run_id}/events", lines=True)
        finally:
            other.terminate()
            printed, _ = other.communicate(timeout=PATIENCE_S)

    assert "tool_call_completed" in {event["type"] for event in first}
    assert first[-1]["type"] == events[-1]["type"] == "run_completed"
    assert [event["by"] for event in events if event["type"] == "tool_approval_granted"] == ["ana"]
    assert printed.startswith("asked: refund ")


def test_a_server_that_is_stopped_ends_its_runs_first(place: Path) -> None:
    """The run is pending; SIGTERM; the event log has the reason. An earlier late answer was rejected with the reason,
    which is no error of the server.
    """
    with served(place) as ask:
        ask("POST", "/runs?prompt=go")
        (fetched,) = until(lambda: ask("GET", "/approvals"))
        proctor("deny", fetched["id"], "--by", "bo")
        rejected = ask("POST", f"/approvals/{quote(fetched['id'])}?by=ana")
        ask("POST", "/runs?prompt=go")
        until(lambda: ask("GET", "/approvals"))

    last = proctor("show", "last", "--json")[-1]

    assert rejected["detail"]
    assert (last["type"], last["reason"]) == ("run_cancelled", "the server is shutting down")


def until(look: Any) -> Any:
    """The expected state, once it is reached."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def proctor(*arguments: str) -> list[dict[str, Any]]:
    """The output of a command on the application's store."""
    command = [sys.executable, "-m", "proctor", *arguments, "--store", "runs.db"]
    env = os.environ | token_of(command[3:])
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True, env=env)
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


@contextmanager
def served(place: Path) -> Iterator[Any]:
    """The application in its own server; yields a function to query it. At exit it has stopped."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = listening.getsockname()
        command = [sys.executable, "-m", "uvicorn", "app:app", "--fd", str(listening.fileno())]
        how: Any = {"cwd": place, "env": {**os.environ, "PYTHONPATH": str(place)}}
        server = subprocess.Popen(command, pass_fds=[listening.fileno()], stderr=subprocess.PIPE, **how)
    with server:
        try:
            yield lambda method, path, lines=False: fetched(address, method, path, lines=lines)
        finally:
            server.send_signal(signal.SIGTERM)
            _, errors = server.communicate(timeout=PATIENCE_S)
    assert b"Application shutdown complete" in errors, errors.decode()


def fetched(address: tuple[str, int], method: str, path: str, *, lines: bool) -> Any:
    with closing(http.client.HTTPConnection(*address, timeout=PATIENCE_S)) as connection:
        connection.request(method, path)
        answer = connection.getresponse().read()
    return [json.loads(line) for line in answer.splitlines()] if lines else json.loads(answer)
