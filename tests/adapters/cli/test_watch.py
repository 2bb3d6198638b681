"""`watch`: the dashboard in the terminal, live; in a pipe and for programs, once."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answering import token_for
from rich.cells import cell_len
from terminal import Terminal

from proctor.adapters.cli.board_view import Question, Screen, drawn
from proctor.adapters.kit.process_tree import RUN_MARK
from tests.forked_programs import warm_proctor

PROCTOR = (sys.executable, "-m", "proctor")
STEP = "  - {call: deploy, input: {to: production}, if_denied: [{say: Then not.}]}\n"
WAITING = f"name: agent\ntools: [deploy]\nsteps:\n{STEP * 3}"


@pytest.fixture
def waiting(cli: Any, place: Path) -> Iterator[str]:
    """A run of another process with a pending call; returns the approval's id."""
    place.joinpath("waits.yaml").write_text(WAITING)
    policy = place / "team.yaml"
    budgets = "budgets: [{name: plan, max_tool_calls: 50%, allowance: 8, window: 5h}]\n"
    policy.write_text(policy.read_text().replace("timeout_s: 30", "timeout_s: 3000") + budgets)
    files = ("--set", "script=waits.yaml", "--policy", "team.yaml", "--policy", "org.yaml")
    words = ("run", "--adapter", "scripted", *files, "--no-prompt", "--context", "tenant=acme", "x")
    with subprocess.Popen([warm_proctor(), *words], stdout=subprocess.DEVNULL) as run:
        while not (lines := cli("approvals", "--json").lines):
            assert run.poll() is None
            time.sleep(0.05)
        yield lines[0]["approval_id"]
        cli("kill", "--all")


def test_without_a_terminal_the_current_state_is_printed_once(cli: Any, waiting: str) -> None:
    """Whole ids, no colour, at most 80 columns; limits with their usage. JSON is one line."""
    shown = cli("watch")
    [line] = cli("watch", "--json").lines

    assert shown.code == 0
    assert "1 active, 1 waiting for a person" in shown.out
    assert f"pending  {waiting}\n         deploy" in shown.out
    assert "scripted  acme" in shown.out
    assert "max_total_tokens: 0 of 1,000" in shown.out
    assert "team/plan in 5h00m\n  [                    ] 0 of 4 tool calls used, 4 left" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "\x1b" not in shown.out
    assert line["runs"][0]["tenant"] == "acme"
    assert {limit["limit"]: limit["used"] for limit in line["runs"][0]["limits"]} == {"max_total_tokens": 0}
    assert [approval["approval_id"] for approval in line["approvals"]] == [waiting]
    assert line["blocks"] == []


def test_a_freeze_is_shown_at_the_top(cli: Any, ran: Any, place: Path) -> None:
    """With the person and the reason. Without a store, the dashboard is empty, which is no error."""
    (place / "state" / "proctor" / "runs.db").rename(place / "kept.db")
    assert cli("watch").out == "0 active, 0 waiting for a person\n\n"
    (place / "kept.db").rename(place / "state" / "proctor" / "runs.db")
    cli("kill", "--all", "--no-new-starts", "--reason", "an incident")

    assert cli("watch").out.startswith("no run starts, frozen by `")


class Board(Terminal):  # type: ignore[misc, unused-ignore]
    """`watch` on a terminal."""

    def __init__(self, *words: str, columns: int = 80, rows: int = 30, **more: str) -> None:
        env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", **token_for(None), **more}
        super().__init__([*PROCTOR, "watch", *words], env, columns=columns, rows=rows)

    def does(self, *steps: tuple[str, str]) -> str:
        """Press keys, each once the effect of the previous ones is shown; returns the last screen."""
        for keys, shown in steps:
            self.press(keys)
            screen = str(self.until(shown))
        return screen


@pytest.fixture
def terminal() -> Iterator[Callable[..., Board]]:
    """Opens a terminal with the dashboard."""
    opened: list[Board] = []

    def open_(*words: str, **more: Any) -> Board:
        opened.append(Board(*words, **more))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


def test_calls_are_answered_and_the_run_is_cancelled_by_keys(cli: Any, waiting: str, terminal: Any) -> None:
    """`a` shows the whole call and asks for a reason, `d` for a text to the model, in any script, with Backspace. `x`
    cancels the run after a confirmation, and Escape does not.
    """
    run, first = waiting.rpartition(".")[0], int(waiting.rpartition(".")[2])
    board = terminal("--by", "ana")
    call = board.does(("", f"> pending  {waiting}"), ("a", "Enter approves it"))
    board.does(
        ("looks fine\r", f"pending  {run}.{first + 1}"),
        ("k", f"> pending  {run}.{first + 1}"),
        ("d", "Text for the model"),
        ("Erst dié\x7fe Prüfung\r", f"pending  {run}.{first + 2}"),
        ("k", f"> pending  {run}.{first + 2}"),
        ("x", f"Enter cancels {run}"),
    )
    board.press("\x1b")
    board.until("Enter cancels", gone=True)
    assert cli("runs", "--status", "waiting", "--json").lines
    board.does(("x", f"Enter cancels {run}"), ("too dear\r", "0 active, 0 waiting for a person"))
    assert cli("watch", "--json").lines[0]["blocks"] == []
    board.press("q")

    assert board.ended() == 0
    assert 'to: "production"' in call
    recorded = {line["type"]: line for line in reversed(cli("show", "last", "--json").lines)}
    granted, refused, end = (
        recorded[f"{each}"] for each in ("tool_approval_granted", "tool_call_denied", "run_cancelled")
    )
    assert (granted["by"], granted["reason"]) == ("ana", "looks fine")
    assert refused["tell_model"] == "Erst die Prüfung"
    assert (end["by"], "too dear" in end["reason"]) == ("ana", True)


def test_words_for_a_call_that_is_answered_meanwhile_answer_no_other(cli: Any, waiting: str, terminal: Any) -> None:
    """Another person is first, and the run requests the next call: what is still typed is not for that one, nor is a
    key that was meant for the row that is gone.
    """
    run, first = waiting.rpartition(".")[0], int(waiting.rpartition(".")[2])
    board = terminal()
    board.does(("", f"> pending  {waiting}"), ("a", "Enter approves it"), ("he said ", "he said"))
    assert cli("deny", waiting, "--by", "ben").code == 0
    board.does(("", f"{waiting} is closed"), ("add it\r", f"pending  {run}.{first + 1}"))
    board.does(("k", f"> pending  {run}.{first + 1}"))
    assert cli("deny", f"{run}.{first + 1}", "--by", "ben").code == 0
    board.does(("", f"{run}.{first + 2}"), ("a", f"{run}.{first + 1} is closed; this is another row"))
    board.does(("k", f"> pending  {run}.{first + 2}"))

    assert [line["approval_id"] for line in cli("approvals", "--json").lines] == [f"{run}.{first + 2}"]


def test_rows_are_found_selected_and_opened(cli: Any, waiting: str, terminal: Any) -> None:
    """`/` filters by text, Escape shows all, arrows select, Enter opens."""
    run = waiting.rpartition(".")[0]
    board = terminal()
    board.until(f"> pending  {waiting}")
    for words, found in (("nothing like it", "0 active, 0"), ("ACME", "1 active, 0"), ("production", "0 active, 1")):
        board.press(f"/{words}\r")
        board.until(f"{found} waiting for a person with `{words}` in it")
        board.press("\x1b")
    shown = board.does(
        ("", "1 active, 1 waiting for a person\n"),
        ("\x1b[B", f"> waiting  {run}"),
        ("a", "this row is a run"),
        ("\r", "session  ses_"),
    )
    assert "max_total_tokens: 0 of 1,000" in shown
    board.does(("?", f"> waiting  {run}"), ("?", "approve the call; you can give a reason"))


def test_a_small_terminal_keeps_the_selection_visible(cli: Any, waiting: str, terminal: Any) -> None:
    """With eight rows of forty columns, the question is at the bottom, and the rest of a long call is one
    key away; so are all keys, and the way out.
    """
    board = terminal(columns=40, rows=8)
    board.does(
        ("", "? keys  q leave"),
        ("", "1 waiting"),
        ("j", "> waiting"),
        ("k\r", "more lines"),
        ("jjjjjjjjjjjjjjj", "expires"),
    )


@pytest.mark.parametrize("words", ["", "x" * 90, "日本語"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 80])
def test_a_terminal_of_any_size_is_drawn(width: int, words: str) -> None:
    """A split window may have one column for a moment, while something is typed."""
    screen = Screen()
    screen.question = Question("find", words=words)
    for height in (1, 2, 3, 24):
        lines = drawn(screen, width, height).plain.split("\n")
        assert (len(lines), max(map(cell_len, lines)) <= width) == (height, True)


def test_the_dashboard_outlasts_a_store_that_is_away(cli: Any, waiting: str, terminal: Any, place: Path) -> None:
    """It says that what it shows is old, until it can read the store again: as while a database restarts."""
    board = terminal()
    board.does(("", "1 waiting for a person"))
    store = place / "state" / "proctor" / "runs.db"
    store.rename(place / "kept.db")
    board.until("not up to date: store")
    assert "1 waiting for a person" in board.text
    place.joinpath("kept.db").rename(store)
    board.until("not up to date", gone=True)
    board.press("q")
    assert board.ended() == 0


def test_a_terminal_without_cursor_control_prints_the_current_state_once(ran: Any, terminal: Any) -> None:
    """As in an editor."""
    board = terminal(TERM="dumb")

    assert board.ended() == 0
    assert "0 active, 0 waiting for a person" in board.text


def test_a_terminal_that_claims_to_be_huge_is_drawn_in_part(ran: Any, terminal: Any) -> None:
    """Its whole size would be four billion characters."""
    board = terminal()
    board.until("0 active")
    fcntl.ioctl(board._its, termios.TIOCSWINSZ, struct.pack("HHHH", 65535, 65535, 0, 0))
    board.press("?q")

    assert board.ended() == 0


def test_a_supervised_run_can_answer_nothing_and_ctrl_c_leaves_the_dashboard(
    cli: Any, waiting: str, terminal: Any
) -> None:
    """Its mark is recognised, as in `approve`. Cancels by others are shown. The terminal is restored; exit code 0."""
    board = terminal(**{RUN_MARK: "run_of_the_agent"})
    board.does(("", waiting), ("a", "Enter approves it"), ("\r", "is for people"))
    assert cli("approvals", "--json").lines
    board.press("\x1b")
    cli("kill", "--all")
    board.until("0 active, 0 waiting for a person")
    board.process.send_signal(signal.SIGINT)

    assert board.ended() == 0
    assert "Traceback" not in board.text
    assert termios.tcgetattr(board._its) == board.settings
