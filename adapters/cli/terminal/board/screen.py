"""What is selected, asked and noted, as keys change it. It reads no terminal and no store."""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.supervisor import RunInfo, StoredApproval

from .board import NOTHING, Board

Kind = Literal["approve", "deny", "end", "find"]


class Question(msgspec.Struct):
    """What is asked at the foot of the screen, and the words typed so far.

    `target` is the approval or the run it is about, `digest` that of the input that was shown.
    """

    kind: Kind
    target: str = ""
    digest: str = ""
    words: str = ""


class Screen:
    """What the person sees of the board, and what they are about to do."""

    def __init__(self) -> None:
        self.board: Board = NOTHING
        self.selected = ""
        self.view: Literal["board", "details", "keys"] = "board"
        self.question: Question | None = None
        self.wanted = ""
        self.scrolled = 0
        self.notice = ""
        self.left = False

    def show(self, board: Board) -> None:
        """The board as it is now. What is selected stays so; once it is gone, what stands in its place is."""
        before, self.board = self._names(), board
        names = self._names()
        if self.selected not in names:
            place = before.index(self.selected) if self.selected in before else 0
            if self.view == "details":
                self._leave(f"{self.selected} is closed")
            self.selected = names[min(place, len(names) - 1)] if names else ""

    def row(self) -> StoredApproval | RunInfo | None:
        """The selected row."""
        for approval in self.board.approvals:
            if approval.request.approval_id == self.selected:
                return approval
        return next((run for run, _ in self.board.runs if run.run_id == self.selected), None)

    def press(self, key: str) -> Question | None:
        """Take a key; gives the question that it has answered, which is now to be done."""
        if self.question is not None:
            return self._answer(self.question, key)
        self.notice = ""
        if key == "q":
            self.left = True
        elif key in ("escape", "?", "enter") and self.view != "board":
            self._leave()
        elif key == "?":
            self.view = "keys"
        elif key in _STEPS:
            self._step(_STEPS[key])
        elif key == "/":
            self.question = Question("find", words=self.wanted)
        elif key == "escape":
            self.wanted = ""
        else:
            self._about_row(key)
        return None

    def _answer(self, question: Question, key: str) -> Question | None:
        if key == "enter":
            self.question = None
            if question.kind != "find":
                self._leave()
                return question
            self.wanted = question.words.strip()
        elif key == "escape":
            self.question = None
        elif key == "backspace":
            question.words = question.words[:-1]
        elif key == "clear":
            question.words = ""
        elif key in _STEPS and len(key) > 1:
            self._step(_STEPS[key])
        elif len(key) == 1:
            question.words += key
        return None

    def _about_row(self, key: str) -> None:
        row = self.row()
        if row is None:
            return
        if key == "enter":
            self._open()
        elif key == "x":
            self._open()
            self.question = Question("end", row.run_id if isinstance(row, RunInfo) else row.request.run_id)
        elif key in ("a", "d") and isinstance(row, RunInfo):
            self.notice = "this is a run; `a` and `d` answer a call that waits"
        elif key in ("a", "d") and isinstance(row, StoredApproval):
            self._open()
            request = row.request
            self.question = Question("approve" if key == "a" else "deny", request.approval_id, request.input_digest)

    def _open(self) -> None:
        if self.view != "details":
            self.view, self.scrolled = "details", 0

    def _leave(self, notice: str = "") -> None:
        self.view, self.question, self.notice, self.scrolled = "board", None, notice, 0

    def _step(self, by: int) -> None:
        """In details the text moves, else the selection does."""
        if self.view != "board":
            self.scrolled = max(0, self.scrolled + by)
            return
        names = self._names()
        if names:
            place = names.index(self.selected) if self.selected in names else 0
            self.selected = names[min(max(place + by, 0), len(names) - 1)]

    def _names(self) -> list[str]:
        approvals = [approval.request.approval_id for approval in self.board.approvals]
        return approvals + [run.run_id for run, _ in self.board.runs]


_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}
