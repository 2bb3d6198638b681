"""The board on a terminal, with its keys, until somebody leaves it."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import anyio
import msgspec
from rich.live import Live

from proctor.adapters.web.folds import Folds
from proctor.supervisor import ApprovalAnswer, KillSwitch, ProctorError, answer
from proctor.supervisor.ports.adapters import Store

from ...own_tree import check_outside_runs
from ..output import console
from .board import read_board
from .keys import key_by_key, pressed
from .layout import drawn
from .screen import Question, Screen

_LOOK_AGAIN_S = 1.0
_PAUSE_S = 0.2
_REASON = "ended by an operator"


class Person(msgspec.Struct, frozen=True):
    """Who sits at the terminal, as answers have it."""

    name: str
    groups: tuple[str, ...] = ()


async def live_board(store: Store, person: Person) -> None:
    """Show the board as it changes, and do what keys ask for, until `q`. Without keys (where standard input is no
    terminal) it only shows.
    """
    with_keys = sys.stdin.isatty()
    unbuffered = key_by_key(sys.stdin.fileno()) if with_keys else nullcontext()
    with unbuffered, Live(console=console(), auto_refresh=False, screen=True) as shown:
        board = _LiveBoard(store, person, shown)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(board.look)
            if with_keys:
                async for key in pressed(sys.stdin.fileno()):
                    wanted = board.screen.wanted
                    if (question := board.screen.press(key)) is not None:
                        tasks.start_soon(board.do, question)
                    if board.screen.left:
                        break
                    if board.screen.wanted != wanted:
                        tasks.start_soon(board.read)
                    board.draw()
                tasks.cancel_scope.cancel()


class _LiveBoard:
    def __init__(self, store: Store, person: Person, shown: Live) -> None:
        self.screen = Screen()
        self._store = store
        self._person = person
        self._shown = shown
        self._folds = Folds(store)

    def draw(self) -> None:
        """The screen as it is now."""
        width, height = self._shown.console.size
        self._shown.update(drawn(self.screen, width, height), refresh=True)

    async def read(self) -> None:
        """Show what the store has now."""
        wanted = self.screen.wanted
        board = await read_board(self._store, self._folds, wanted)
        if wanted == self.screen.wanted:  # otherwise other words were typed meanwhile
            self.screen.show(board)
            self.draw()

    async def look(self) -> None:
        """Show what the store has, again and again."""
        token = 0
        while True:
            await self.read()
            await anyio.sleep(_PAUSE_S)
            token = await self._store.wait(token, _LOOK_AGAIN_S)

    async def do(self, question: Question) -> None:
        """Answer a call or end a run, and say what came of it."""
        try:
            self.screen.notice = await (self._end(question) if question.kind == "end" else self._answer(question))
        except ProctorError as error:
            self.screen.notice = str(error)
        self.draw()

    async def _answer(self, question: Question) -> str:
        granted = question.kind == "approve"
        check_outside_runs("approve" if granted else "deny")
        given = ApprovalAnswer(
            granted=granted,
            by=self._person.name,
            groups=self._person.groups,
            reason=question.words or None if granted else None,
            tell_model=None if granted else question.words or None,
            input_digest=question.digest,
        )
        approval = await answer(self._store, question.target, given)
        done = "approved" if granted else "denied"
        return f"{done}: {question.target}" + ("" if approval.recorded else "; the run has not taken it up yet")

    async def _end(self, question: Question) -> str:
        from proctor.adapters.kit.processes.remains import end_remains

        check_outside_runs("kill")
        switch = KillSwitch(self._store, remains=end_remains)
        outcomes = await switch.kill(by=self._person.name, reason=question.words or _REASON, run_id=question.target)
        if not outcomes:
            return f"{question.target} is over already"
        return ", ".join(f"{one.run_id}: {one.status if one.ended else 'has not ended yet'}" for one in outcomes)
