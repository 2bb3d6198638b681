"""The board of `watch` on a terminal: what it draws, and the keys it reads."""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec
from rich.cells import cell_len, chop_cells
from rich.live import Live
from rich.text import Text

from proctor.policies.monitor.limit_checker import LimitStatus
from proctor.policies.values.amounts import amount_in, counted, dollars, figure_in, used_of
from proctor.supervisor import ApprovalAnswer, ProctorError
from proctor.supervisor.control.kill_switch import Scope
from proctor.supervisor.errors import StoreError, UsageError

from ..kit.display_text import encoded, escape_control, tokens_used, took
from ..operations.views import ApprovalView, Board, BoardRun, BudgetView
from .output import approval_details, console, in_words
from .persons import acting, check_outside_runs

if TYPE_CHECKING:
    from ..operations.service import OperatorService


_BAR = 10
_INPUT = 60
"""How many characters of a call's input are on its row; its details have all."""


def heading(board: Board) -> str:
    """The first line: how many runs, pending approvals and freezes there are."""
    count = f"{len(board.runs)} or more" if board.more else str(len(board.runs))
    return f"{count} active, {len(board.approvals)} waiting for a person"


def approval_lines(request: ApprovalView) -> Iterator[Text]:
    """A call that is pending approval."""
    yield Text(f"{'lost' if request.lost else request.outcome:<8} {request.approval_id}", "yellow")
    shown = encoded(request.call.input)
    yield Text(
        f"         {escape_control(request.call.name)} {shown if len(shown) < _INPUT else shown[: _INPUT - 1] + '…'}"
    )


def run_lines(run: BoardRun) -> Iterator[Text]:
    """A current run, with a bar for each of its limits."""
    style = "red" if run.status == "lost" else "yellow" if run.waiting else "green"
    yield Text(f"{'waiting' if run.waiting else run.status:<8} {run.run_id}", style)
    yield Text(f"         {'  '.join(about(run))}")
    for use in run.limits:
        yield Text(f"         {bar(use)}", "red" if use.exceeded else "")


def about(run: BoardRun) -> Iterator[str]:
    """A run's owner, duration, calls and usage."""
    yield escape_control(run.provider) or "no agent yet"
    if run.tenant:
        yield escape_control(run.tenant)
    if run.started_at is not None:
        yield took(max(0, round((datetime.now(UTC) - run.started_at).total_seconds() * 1000)))
    yield counted(run.calls, "call")
    if run.violations:
        yield counted(run.violations, "violation")
    if run.usage.total_tokens:
        yield tokens_used(run.usage)
    if run.usage.cost_usd:
        yield dollars(run.usage.cost_usd)


def bar(use: LimitStatus) -> str:
    """How much of a limit is used, in words and as a bar of characters."""
    part = min(use.used / use.max, 1.0) if use.max else 1.0
    return f"[{'#' * round(part * _BAR):<{_BAR}}] {use.limit}: {used_of(use.unit, use.used, use.max)}"


_WIDE_BAR = 20
_NEAR = 0.8
"""The used part from which a budget is shown as nearly used up."""


def budget_lines(budget: BudgetView) -> Text:
    """A shared budget: its key, a bar of what is used and reserved (`+`), and the amounts."""
    parts = [budget.in_use / budget.max, budget.ahead / budget.max] if budget.max else [1.0, 0.0]
    full = round(min(parts[0], 1) * _WIDE_BAR)
    held = min(round(parts[1] * _WIDE_BAR), _WIDE_BAR - full)
    bar = f"[{'#' * full}{'+' * held}{' ' * (_WIDE_BAR - full - held)}]"
    style = "red" if not budget.left else "yellow" if sum(parts) >= _NEAR else ""
    whose = f" {budget.key}" if budget.key else ""
    window = f" {_window(budget.window)}" if budget.window else ""
    line = Text(f"{budget.budget}{whose}{window}\n", "bold")
    unit = budget.unit
    whole = _figure(unit, budget.max) if unit == "ms" else amount_in(unit, budget.max)
    amounts = f"{_figure(unit, budget.in_use)} of {whole} used"
    if budget.ahead:
        amounts += f", {_figure(unit, budget.ahead)} reserved by {counted(budget.runs, 'run')}"
    amounts += f", {_figure(unit, budget.left)} left"
    resets = f"; resets {budget.resets_at:%Y-%m-%d %H:%M} UTC" if budget.resets_at is not None else ""
    return line.append(f"  {bar} {amounts}{resets}", style)


def _window(window: str) -> str:
    return window if not window.isdigit() else f"in {took(int(window))}"


def _figure(unit: str, amount: float) -> str:
    return took(round(amount)) if unit == "ms" else figure_in(unit, amount)


def run_details(run: BoardRun) -> Iterator[str]:
    """A run, its limits, and the commands that show more."""
    yield f"{run.status} {run.run_id}"
    yield f"session  {run.session_id}"
    if run.prompt:
        yield f"prompt   {encoded(run.prompt)}"
    if run.labels:
        yield f"labels   {', '.join(escape_control(f'{name}={value}') for name, value in run.labels.items())}"
    if run.started_at is not None:
        yield f"began    {run.started_at:%Y-%m-%d %H:%M:%S} UTC"
    if run.owner is not None:
        yield f"owner    {escape_control(str(run.owner))}"
    yield f"so far   {', '.join(about(run))}"
    yield from (f"         {bar(use)}" for use in run.limits)
    yield ""
    yield f"proctor tail --follow --run {run.run_id}"
    yield f"proctor explain {run.run_id}"


Kind = Literal["approve", "deny", "end", "find", "closed"]


class Question(msgspec.Struct):
    """The question at the foot of the screen, and the words typed so far.

    `target` is the approval or the run it is about, `digest` that of the input that was shown.
    """

    kind: Kind
    target: str = ""
    digest: str = ""
    words: str = ""


class Screen:
    """The person's view of the board, and the action they are about to take."""

    def __init__(self) -> None:
        self.board = Board()
        self.selected = ""
        self.closed = ""
        """The row that was selected until somebody else closed it; empty once a key was pressed on the next one."""
        self.acted_on = ""
        self.view: Literal["board", "details", "keys"] = "board"
        self.question: Question | None = None
        self.wanted = ""
        self.shown_with = ""
        self.scrolled = 0
        self.notice = ""
        self.outage = ""
        self.left = False

    def show(self, board: Board) -> None:
        """The board as it is now. What is selected stays so; once it is gone, what stands in its place is."""
        before, self.board, self.outage = self._names(), board, ""
        same_filter, self.shown_with = self.shown_with == self.wanted, self.wanted
        names = self._names()
        if self.selected not in names:
            place = before.index(self.selected) if self.selected in before else 0
            if self.view == "details":
                typing = self.question
                self._leave(f"{self.selected} is closed")
                if typing is not None:  # what is still typed is for no other row
                    self.question = Question("closed", self.selected)
            self.closed = self.selected if same_filter and self.selected != self.acted_on else ""
            self.selected = names[min(place, len(names) - 1)] if names else ""

    def row(self) -> ApprovalView | BoardRun | None:
        for approval in self.board.approvals:
            if approval.approval_id == self.selected:
                return approval
        return next((run for run in self.board.runs if run.run_id == self.selected), None)

    def press(self, key: str) -> Question | None:
        """Handle a key; returns the question that it has answered, to be carried out."""
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
            if question.kind == "find":
                self.wanted = question.words.strip()
            elif question.kind != "closed":
                self.acted_on = self.selected
                self._leave()
                return question
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
        """Handle a key that concerns the selected row."""
        row = self.row()
        closed, self.closed = self.closed, ""
        if row is None:
            return
        if key == "enter":
            self._open()
        elif closed:
            self.notice = f"{closed} is closed; this is another row"
        elif key == "x":
            self._open()
            self.question = Question("end", row.run_id)
        elif key in ("a", "d") and isinstance(row, BoardRun):
            self.notice = "this row is a run; `a` and `d` answer waiting calls"
        elif key in ("a", "d") and isinstance(row, ApprovalView):
            self._open()
            self.question = Question("approve" if key == "a" else "deny", row.approval_id, row.input_digest)

    def _open(self) -> None:
        if self.view != "details":
            self.view, self.scrolled = "details", 0

    def _leave(self, notice: str = "") -> None:
        self.view, self.question, self.notice, self.scrolled = "board", None, notice, 0

    def _step(self, by: int) -> None:
        if self.view != "board":
            self.scrolled = max(0, self.scrolled + by)
            return
        names = self._names()
        if names:
            place = names.index(self.selected) if self.selected in names else 0
            self.closed = ""
            self.selected = names[min(max(place + by, 0), len(names) - 1)]

    def _names(self) -> list[str]:
        return [one.approval_id for one in self.board.approvals] + [run.run_id for run in self.board.runs]


_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}

KEYS = {
    "j k, arrows": "select; in details, scroll",
    "Enter": "details: the whole call, or the run",
    "a": "approve the call; you can give a reason",
    "d": "deny the call; you can tell the model why",
    "x": "cancel the run; you can give a reason",
    "/": "show only rows with a text; Escape shows all",
    "?": "these keys",
    "q": "leave; the runs continue",
}

_ASKED = {
    "approve": "Enter approves it, Escape does not. Reason, as recorded",
    "deny": "Enter denies it, Escape does not. Text for the model",
    "end": "Enter cancels {target}, Escape does not. Reason, as recorded",
    "find": "Enter shows only rows with this text",
    "closed": "{target} is closed; Enter goes back",
}
_HINTS = {
    "board": "? keys  q leave  j k select  Enter details  a approve  d deny  x cancel  / find",
    "details": "a approve   d deny   x cancel   Escape back",
    "keys": "Escape back",
}


def plain(board: Board) -> Text:
    """The board once, for an output that is no terminal."""
    shared = [line for each in board.budgets for line in (Text(), *budget_lines(each).split("\n"))]
    lines = [*_head(board, ""), *chain.from_iterable((Text(), *lines) for _, lines in _rows(board)), *shared]
    return Text("\n").join([*lines, Text()])


def drawn(screen: Screen, width: int, height: int) -> Text:
    """The screen as exactly `height` lines, none wider than the terminal."""
    stale = [Text(f"not up to date: {escape_control(screen.outage)}", "bold red")] if screen.outage else []
    head = [*stale, *_head(screen.board, screen.wanted), Text()]
    foot = list(_foot(screen, width))
    height_left = max(height - len(head) - len(foot), 1)
    body = _rows_shown(screen, height_left) if screen.view == "board" else _page_shown(screen, width, height_left)
    lines = [*head, *body, *[Text()] * (height_left - len(body)), *foot][-height:]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _rows_shown(screen: Screen, height_left: int) -> list[Text]:
    lines: list[Text] = []
    end = 0
    for name, row in _rows(screen.board):
        chosen = name == screen.selected
        for n, line in enumerate(row):
            lines.append(Text.assemble("> " if chosen and n == 0 else "  ", line))
            lines[-1].stylize("bold" if chosen else "")
        end = len(lines) if chosen else end
        lines.append(Text())
    top = max(0, end - height_left)
    return lines[top : top + height_left]


def _page_shown(screen: Screen, width: int, height_left: int) -> list[Text]:
    """The visible part of a page, and how much more there is."""
    wrapped = [part for line in _page(screen) for part in chop_cells(line, max(width, 20)) or [""]]
    screen.scrolled = min(screen.scrolled, max(0, len(wrapped) - height_left))
    shown = [Text(line) for line in wrapped[screen.scrolled : screen.scrolled + height_left]]
    left = len(wrapped) - screen.scrolled - height_left
    if left > 0:
        shown[-1] = Text(f"... {left + 1} more lines: arrow down", "bold yellow")
    return shown


def _page(screen: Screen) -> Iterator[str]:
    if screen.view == "keys":
        yield from (f"{key:<13} {does}" for key, does in KEYS.items())
        return
    row = screen.row()
    if isinstance(row, ApprovalView):
        yield row.approval_id
        yield from approval_details(row)
    elif row is not None:
        yield from run_details(row)


def _foot(screen: Screen, width: int) -> Iterator[Text]:
    question = screen.question
    yield Text()
    if question is None:
        yield (
            Text(escape_control(screen.notice), "bold yellow") if screen.notice else Text(_HINTS[screen.view], "dim")
        )
        return
    yield Text(_ASKED[question.kind].format(target=question.target), "bold yellow")
    yield Text(f"> {_end_of(escape_control(question.words), width - 4)}_")


def _end_of(text: str, width: int) -> str:
    width = max(width, 1)
    return text if cell_len(text) <= width else chop_cells(text[::-1], width)[0][::-1]


def _head(board: Board, wanted: str) -> Iterator[Text]:
    for block in board.blocks:
        yield Text(escape_control(in_words(block)), "bold red")
    finding = f" with `{escape_control(wanted)}` in it; Escape shows all" if wanted else ""
    yield Text(heading(board) + finding, "bold")


def _rows(board: Board) -> Iterator[tuple[str, list[Text]]]:
    for approval in board.approvals:
        yield approval.approval_id, list(approval_lines(approval))
    for run in board.runs:
        yield run.run_id, list(run_lines(run))


_POLL_S = 1.0
_PAUSE_S = 0.2
_REASON = "ended by an operator"


class Person(msgspec.Struct, frozen=True):
    """The person at the terminal, as named in answers; `refusal` says why they may not answer, if so, `holder` whose
    token they have.
    """

    name: str
    groups: tuple[str, ...] = ()
    refusal: str = ""
    holder: str | None = None


async def live_board(service: OperatorService, person: Person) -> None:
    """Show the board as it changes, and do what keys ask for, until `q`. Without keys (where standard input is no
    terminal) it only shows.
    """
    with_keys = sys.stdin.isatty()
    unbuffered = key_by_key(sys.stdin.fileno()) if with_keys else nullcontext()
    with unbuffered, Live(console=console(), auto_refresh=False, screen=True) as shown:
        board = _LiveBoard(service, person, shown)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(board.poll)
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
    def __init__(self, service: OperatorService, person: Person, shown: Live) -> None:
        self.screen = Screen()
        self._service = service
        self._person = person
        self._shown = shown

    def draw(self) -> None:
        width, height = self._shown.console.size
        self._shown.update(drawn(self.screen, width, height), refresh=True)

    async def read(self) -> None:
        wanted = self.screen.wanted
        try:
            board = await self._service.board(wanted)
            if wanted != self.screen.wanted:
                return  # other words were typed meanwhile
            self.screen.show(board)
        except StoreError as error:
            self.screen.outage = str(error)
        self.draw()

    async def poll(self) -> None:
        token = 0
        while True:
            await self.read()
            await anyio.sleep(_PAUSE_S)
            with suppress(StoreError):  # the next read says so
                token = await self._service.store.wait(token, _POLL_S)

    async def do(self, question: Question) -> None:
        """Answer an approval or cancel a run, and show the result."""
        try:
            self.screen.notice = await (self._end(question) if question.kind == "end" else self._answer(question))
        except ProctorError as error:
            self.screen.notice = str(error)
        self.draw()

    def _check(self, what: str) -> None:
        check_outside_runs(what)
        if self._person.refusal:
            raise UsageError(self._person.refusal)

    async def _answer(self, question: Question) -> str:
        granted = question.kind == "approve"
        self._check("approve" if granted else "deny")
        by, reason = acting(self._person.name, self._person.holder, question.words or None if granted else None)
        given = ApprovalAnswer(
            granted=granted,
            by=by,
            groups=self._person.groups,
            reason=reason,
            tell_model=None if granted else question.words or None,
            input_digest=question.digest,
        )
        answered = await self._service.answer(question.target, given)
        late = "" if answered.taken_up else "; the run has not received it yet"
        return f"{answered.outcome}: {question.target}{late}"

    async def _end(self, question: Question) -> str:
        self._check("kill")
        by, reason = acting(self._person.name, self._person.holder, question.words or _REASON)
        stopped = await self._service.stop(Scope("run", question.target), by=by, reason=reason or "")
        outcomes = stopped.outcomes
        if not outcomes:
            return f"{question.target} is over already"
        return ", ".join(f"{one.run_id}: {one.status if one.ended else 'has not ended yet'}" for one in outcomes)


_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)

_NAMES = {
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
"""The sequences a terminal sends for keys that are not letters, with the names of those keys here."""


@contextmanager
def key_by_key(fd: int) -> Iterator[None]:
    """The terminal gives each key at once and does not show it; Ctrl-C stays what it is."""
    import termios
    import tty

    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def pressed(fd: int) -> AsyncIterator[str]:
    """The pressed keys until the terminal is closed: letters as they are, others by name."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while True:
        await anyio.wait_readable(fd)
        try:
            data = os.read(fd, 4096)
        except OSError:  # the terminal was taken away
            return
        if not data:
            return
        for key in keys_in(decode(data)):
            yield key


def keys_in(text: str) -> Iterator[str]:
    """The keys in a terminal's input, without unknown sequences."""
    for found in _KEY.findall(text):
        name = _NAMES.get(found, found if found.isprintable() else "")
        if name:
            yield name
