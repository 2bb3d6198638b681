"""A held call is asked at the run's terminal and everywhere else at once: whoever answers first decides."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import web_server
from web_server import Site

from proctor.supervisor.testing.fakes import PATIENCE_S

POLICY = "name: team\napproval: {timeout_s: 3000}\nnets: [require human-approval before deploy]\n"
SCRIPT = "tools: [deploy]\nsteps:\n  - {call: deploy, input: {to: prod}}\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The server."""
    with web_server.site(tmp_path) as found:
        yield found


class Terminal:
    """What a run shows at its terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.text = ""

    def until(self, text: str) -> None:
        """Read until it is there."""
        while text not in self.text:
            assert select.select([self._fd], [], [], PATIENCE_S)[0], self.text
            self.text += os.read(self._fd, 65536).decode()

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())


@contextmanager
def held_call(site: Site) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """A run at a terminal that asks there."""
    folder = site.store.parent
    (folder / "agent.yaml").write_text(SCRIPT)
    (folder / "policy.yaml").write_text(POLICY)
    own, its = pty.openpty()
    words = ("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "policy.yaml")
    with subprocess.Popen(
        [*web_server.PROCTOR, *words, "--store", str(site.store), "x"],
        cwd=folder, stdin=its, stdout=its, stderr=its, env={**os.environ, "NO_COLOR": "1"}, start_new_session=True,
    ) as run:  # fmt: skip
        os.close(its)
        terminal = Terminal(own)
        try:
            terminal.until("run it? [y/n]")
            yield terminal, run
        finally:
            run.kill()
            os.close(own)


def test_an_answer_from_the_page_takes_the_question_from_the_terminal(site: Site) -> None:
    """Which says who answered; the run goes on."""
    with held_call(site) as (terminal, run):
        [approval] = site.get("/api/approvals")["approvals"]
        body = {"answer": "grant", "input_digest": approval["input_digest"]}
        answered = site.ask("POST", f"/api/approvals/{approval['approval_id']}/answer", body=body)
        terminal.until("approved  deploy by ana")
        terminal.until("ended")

        assert answered.data["taken_up"]
        assert run.wait(PATIENCE_S) == 0


def test_an_answer_at_the_terminal_closes_it_on_the_page(site: Site) -> None:
    """Which says so to whoever comes later."""
    with held_call(site) as (terminal, run):
        [approval] = site.get("/api/approvals")["approvals"]
        terminal.type("y\n")
        terminal.until("ended")
        path = f"/api/approvals/{approval['approval_id']}"
        late = site.ask("POST", f"{path}/answer", body={"answer": "deny", "input_digest": approval["input_digest"]})

        assert run.wait(PATIENCE_S) == 0
    assert site.get("/api/approvals")["total"] == 0
    assert site.get(path)["state"] == "granted"
    assert (late.status, late.data["code"]) == (409, "answered")
