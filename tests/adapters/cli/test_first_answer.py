"""A pending call is asked about at the run's terminal and elsewhere at once: the first answer decides."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import web_server
from terminal import Terminal
from web_server import Site

POLICY = "name: team\napproval: {timeout_s: 3000}\nnets: [require human-approval before deploy]\n"
SCRIPT = "tools: [deploy]\nsteps:\n  - {call: deploy, input: {to: prod}}\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with web_server.site(tmp_path) as found:
        yield found


@contextmanager
def held_call(site: Site) -> Iterator[Terminal]:
    """A run at a terminal, with a pending request."""
    folder = site.store.parent
    (folder / "agent.yaml").write_text(SCRIPT)
    (folder / "policy.yaml").write_text(POLICY)
    words = ("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "policy.yaml")
    command = [*web_server.PROCTOR, *words, "--store", str(site.store), "x"]
    terminal = Terminal(command, {**os.environ, "NO_COLOR": "1"}, folder)
    try:
        terminal.until("run it? [y/n]")
        yield terminal
    finally:
        terminal.close()


def test_an_answer_on_the_dashboard_removes_the_question_from_the_terminal(site: Site) -> None:
    """The terminal says who answered, and the run continues."""
    with held_call(site) as terminal:
        [approval] = site.get("/api/approvals")["approvals"]
        terminal.press("y\x04")  # half a line, which the terminal passes on
        body = {"answer": "grant", "input_digest": approval["input_digest"]}
        answered = site.ask("POST", f"/api/approvals/{approval['approval_id']}/answer", body=body)

        assert terminal.ended() == 0
        assert "approved  deploy by ana" in terminal.text
    assert answered.data["taken_up"]


def test_an_answer_at_the_terminal_closes_the_request_on_the_dashboard(site: Site) -> None:
    """A later answer there gets an error."""
    with held_call(site) as terminal:
        [approval] = site.get("/api/approvals")["approvals"]
        terminal.press("y\n")
        assert terminal.ended() == 0
        path = f"/api/approvals/{approval['approval_id']}"
        late = site.ask("POST", f"{path}/answer", body={"answer": "deny", "input_digest": approval["input_digest"]})

    assert site.get("/api/approvals")["total"] == 0
    assert site.get(path)["state"] == "granted"
    assert (late.status, late.data["code"]) == (409, "answered")
