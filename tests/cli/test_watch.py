"""`watch`: the board, once for a pipe and for programs, live on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.supervisor.testing.patience import PATIENCE_S

Cli = Any
PROCTOR = (sys.executable, "-m", "proctor.adapters.cli")
WAITING = "name: agent\ntools: [deploy]\nsteps:\n  - {call: deploy, input: {to: production}}\n"


@pytest.fixture
def waiting(cli: Cli, place: Path) -> Iterator[str]:
    """A run of another process whose call waits for a person; gives the approval's id."""
    place.joinpath("waits.yaml").write_text(WAITING)
    files = ("--set", "script=waits.yaml", "--policy", "team.yaml", "--policy", "org.yaml")
    words = ("run", "--adapter", "scripted", *files, "--no-prompt", "--context", "tenant=acme", "x")
    with subprocess.Popen([*PROCTOR, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while not (lines := cli("approvals", "--json").lines):
            assert run.poll() is None
        yield lines[0]["approval_id"]
        cli("kill", "--all")


def test_what_goes_on_is_shown_once_where_nobody_sees_it_change(cli: Cli, waiting: str) -> None:
    """Whole ids, no colour, no line wider than 80 columns; the limits with what is used of them."""
    shown = cli("watch")

    assert shown.code == 0
    assert "1 going on, 1 waiting for a person" in shown.out
    assert f"waits    {waiting}\n         deploy" in shown.out
    assert "scripted  acme" in shown.out
    assert "max_total_tokens: 0 of 1000" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "\x1b" not in shown.out


def test_programs_get_one_line(cli: Cli, waiting: str) -> None:
    """Runs with their limits, approvals, blocks."""
    [line] = cli("watch", "--json").lines

    assert line["runs"][0]["tenant"] == "acme"
    assert {limit["limit"]: limit["used"] for limit in line["runs"][0]["limits"]} == {"max_total_tokens": 0}
    assert [approval["request"]["approval_id"] for approval in line["approvals"]] == [waiting]
    assert line["blocks"] == []


def test_no_store_is_an_empty_board(cli: Cli, place: Path) -> None:
    """And no error."""
    assert cli("watch").out == "0 going on, 0 waiting for a person\n\n"


def test_a_block_of_starts_stands_above_all(cli: Cli, ran: Any) -> None:
    """By whom and why."""
    cli("kill", "--all", "--no-new-starts", "--reason", "an incident")

    assert cli("watch").out.startswith("no run starts, ordered by `")


def test_the_board_of_a_terminal_changes_and_ctrl_c_leaves_it(cli: Cli, waiting: str, place: Path) -> None:
    """On a pseudo-terminal of 80 columns: the call waits, is approved elsewhere, and is gone; exit code 0."""
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    board = subprocess.Popen([*PROCTOR, "watch"], stdin=its, stdout=its, stderr=its, env=env, start_new_session=True)
    os.close(its)
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + PATIENCE_S
        while text not in seen:
            assert time.monotonic() < deadline, seen[-2000:]
            if select.select([own], [], [], 0.1)[0]:
                seen += os.read(own, 65536).decode("utf-8", "replace")

    try:
        until("1 waiting for a person")
        cli("approve", waiting)
        until("0 going on, 0 waiting for a person")
        board.send_signal(signal.SIGINT)
        code = board.wait(PATIENCE_S)
    finally:
        board.kill()
        os.close(own)

    assert code == 0
    assert "Traceback" not in seen
