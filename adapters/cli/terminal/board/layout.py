"""The board as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from rich.cells import cell_len, chop_cells
from rich.text import Text

from proctor.adapters.kit.values.printable import printable
from proctor.supervisor import StoredApproval

from ..blocks import in_words
from .board import Board
from .details import approval_details, run_details
from .rows import approval_lines, heading, run_lines
from .screen import Screen

KEYS = {
    "j k, arrows": "select; in details, scroll",
    "Enter": "details: the whole call, or the run",
    "a": "approve the call, with words for the record",
    "d": "deny it, with words to the model",
    "x": "end the run, with words for the record",
    "/": "show only what has a text in it; Escape shows all",
    "?": "these keys",
    "q": "leave; the runs go on",
}
_ASKED = {
    "approve": "Enter approves it, Escape does not. Words for the record",
    "deny": "Enter denies it, Escape does not. Words to the model",
    "end": "Enter ends {target}, Escape does not. Words for the record",
    "find": "Enter shows only what has this text in it",
}
_HINTS = {
    "board": "j k select   Enter details   a approve   d deny   x end   / find   ? keys   q leave",
    "details": "a approve   d deny   x end   Escape back",
    "keys": "Escape back",
}


def plain(board: Board) -> Text:
    """The board as it is once, for an output that does not change."""
    lines = [*_head(board, ""), *chain.from_iterable((Text(), *lines) for _, lines in _rows(board))]
    return Text("\n").join([*lines, Text()])


def drawn(screen: Screen, width: int, height: int) -> Text:
    """Exactly so many lines, none wider than the terminal."""
    head = [*_head(screen.board, screen.wanted), Text()]
    foot = list(_foot(screen, width))
    room = max(height - len(head) - len(foot), 1)
    body = _rows_shown(screen, room) if screen.view == "board" else _page_shown(screen, width, room)
    lines = [*head, *body, *[Text()] * (room - len(body)), *foot][-height:]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _rows_shown(screen: Screen, room: int) -> list[Text]:
    """The rows around the selected one, which is marked."""
    lines: list[Text] = []
    end = 0
    for name, row in _rows(screen.board):
        chosen = name == screen.selected
        for n, line in enumerate(row):
            lines.append(Text.assemble("> " if chosen and n == 0 else "  ", line))
            lines[-1].stylize("bold" if chosen else "")
        end = len(lines) if chosen else end
        lines.append(Text())
    top = max(0, end - room)
    return lines[top : top + room]


def _page_shown(screen: Screen, width: int, room: int) -> list[Text]:
    """The part of a page that was scrolled to, and how much more there is."""
    wrapped = [part for line in _page(screen) for part in chop_cells(line, max(width, 20)) or [""]]
    screen.scrolled = min(screen.scrolled, max(0, len(wrapped) - room))
    shown = [Text(line) for line in wrapped[screen.scrolled : screen.scrolled + room]]
    left = len(wrapped) - screen.scrolled - room
    if left > 0:
        shown[-1] = Text(f"... {left + 1} more lines: arrow down", "bold yellow")
    return shown


def _page(screen: Screen) -> Iterator[str]:
    if screen.view == "keys":
        yield from (f"{key:<13} {does}" for key, does in KEYS.items())
        return
    row = screen.row()
    if isinstance(row, StoredApproval):
        yield from approval_details(row)
    elif row is not None:
        yield from run_details(row, next(limits for run, limits in screen.board.runs if run is row))


def _foot(screen: Screen, width: int) -> Iterator[Text]:
    question = screen.question
    yield Text()
    if question is None:
        yield Text(printable(screen.notice), "bold yellow") if screen.notice else Text(_HINTS[screen.view], "dim")
        return
    yield Text(_ASKED[question.kind].format(target=question.target), "bold yellow")
    yield Text(f"> {_end_of(printable(question.words), width - 4)}_")


def _end_of(text: str, width: int) -> str:
    """The end of what is being typed, which is where the person looks."""
    return text if cell_len(text) <= width else chop_cells(text[::-1], max(width, 1))[0][::-1]


def _head(board: Board, wanted: str) -> Iterator[Text]:
    for block in board.blocks:
        yield Text(printable(in_words(block)), "bold red")
    finding = f" with `{printable(wanted)}` in it; Escape shows all" if wanted else ""
    yield Text(heading(board) + finding, "bold")


def _rows(board: Board) -> Iterator[tuple[str, list[Text]]]:
    for approval in board.approvals:
        yield approval.request.approval_id, list(approval_lines(approval))
    for run, limits in board.runs:
        yield run.run_id, list(run_lines(run, limits))
