"""Errors to exit codes and one message on standard error; the only place that does so.

0  fine
1  a policy was violated
2  bad input or usage
3  the provider or the machine failed, or somebody ended it
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from unicodedata import east_asian_width

import click

from ..kit.display_text import escape_control, escape_control_lines

if TYPE_CHECKING:
    from proctor.policies.errors import Problem, ProctorError
    from proctor.supervisor.errors import StoreErrorKind


FINE, VIOLATED, BAD_INPUT, FAILED = 0, 1, 2, 3
UNPROVED = 3
"""Of `prove`: neither proved nor refuted."""
_CODES = {
    "error": BAD_INPUT,
    "policy_violation": VIOLATED,
    "tool_refused": VIOLATED,
    "not_installed": FAILED,
    "starts_blocked": FAILED,
    "owner_lost": FAILED,
    "store_error": FAILED,
    "provider_error": FAILED,
}
"""Exit codes by the `code` of an error's class, and of those below it that are not here themselves."""
_NOT_A_STORE: tuple[StoreErrorKind, ...] = ("not_a_store", "newer_schema", "older_schema", "run_exists")
"""Kinds of store errors that are bad input, not failures of the machine."""
_OF_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EBADF)
_NOT_LET = (errno.EACCES, errno.EPERM)


def report(error: BaseException, *, debug: bool) -> int:
    """Print an error on standard error and return its exit code."""
    if debug:
        traceback.print_exception(error)
    leaves = list(_leaves(error))
    shown = next((leaf for leaf in leaves if not isinstance(leaf, KeyboardInterrupt)), leaves[0])
    code, text = _code_and_text(shown)

    print(escape_control_lines(text), file=sys.stderr)
    return code


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in an error group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _code_and_text(error: BaseException) -> tuple[int, str]:
    from proctor.policies.errors import PolicyError, ProctorError, os_words

    if isinstance(error, PolicyError):
        return BAD_INPUT, problem_text(error.problems)
    if isinstance(error, ProctorError):
        return code_of(error), f"error: {error}"
    if isinstance(error, KeyboardInterrupt):
        return FAILED, "interrupted"
    if isinstance(error, SystemExit):
        return FAILED, "error: an agent's code ended the program with `sys.exit`; let it return or raise instead"
    if isinstance(error, OSError) and error.filename is not None:
        return FAILED if error.errno in _OF_MACHINE else BAD_INPUT, f"error: `{error.filename}`: {os_words(error)}"
    if isinstance(error, FileNotFoundError) and not _has_folder():
        return BAD_INPUT, "error: the current folder has been removed; change to another"
    if isinstance(error, OSError) and error.errno in _OF_MACHINE:
        return FAILED, f"error: the output cannot be written: {os_words(error)}"
    if isinstance(error, UnicodeEncodeError):  # of the command line, the environment or a folder's name
        return BAD_INPUT, f"error: `{error.object}` is not UTF-8 text"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("proctor."):
        return (
            FAILED,
            f"error: the installation has no `{error.name}`; after a `git pull`, run `pip install -e .` again",
        )
    first = (str(error).splitlines() or [""])[0]
    kind = type(error).__name__
    return FAILED, f"error: this should not have happened: {kind}: {first}\nrun `proctor --debug ...` for details"


def is_machines(error: BaseException) -> bool:
    """Whether an error says that the machine let nobody write a file: its disk failed, has no space, is read-only, or
    its permissions forbid it. A name that can be no file's is bad input.
    """
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (*_OF_MACHINE, *_NOT_LET)


def _has_folder() -> bool:
    """Whether the folder that this process works in is still there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def code_of(error: ProctorError) -> int:
    """The exit code for an error that is raised on purpose."""
    from proctor.policies.errors import EventError

    if is_machines(error):
        return FAILED
    if getattr(error, "kind", None) in _NOT_A_STORE:
        return BAD_INPUT
    if isinstance(error, EventError) and getattr(error, "partial", None) is not None:
        return FAILED  # what a provider reported, not what was given
    codes = (vars(each).get("code") for each in type(error).__mro__)
    return next(_CODES[code] for code in codes if code in _CODES)


_WIDEST = 100
"""How many characters of a source line are shown around a problem."""


def problem_text(problems: Sequence[Problem]) -> str:
    """The first problems, in the order of the text, and how many there are."""
    from proctor.policies.errors import PROBLEMS_SHOWN

    blocks = ["\n".join(_lines(problem)) for problem in problems[:PROBLEMS_SHOWN]]
    if len(problems) > len(blocks):
        blocks.append(f"{len(problems):,} problems, of which the first {len(blocks)} are shown")
    elif len(blocks) > 1:
        blocks.append(f"{len(blocks)} problems")
    return "\n".join(blocks)


def _lines(problem: Problem) -> Iterator[str]:
    place = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part)
    where = f" at `{problem.path}`" if problem.path else ""
    yield escape_control(f"{place + ': ' if place else ''}error: {problem.message}{where}")
    if problem.source.strip() and problem.column:
        yield from _marked(problem.source.rstrip("\r\n"), problem.line, problem.column - 1)
    if problem.suggestion:
        yield f"  {escape_control(problem.suggestion)}"


def _marked(source: str, number: int, at: int) -> Iterator[str]:
    start = max(0, at - _WIDEST // 2) if len(source) > _WIDEST else 0
    shown = "".join(c if c.isprintable() else " " for c in source[start : start + _WIDEST])  # one for one: the caret
    margin = f"{number:>5} | "
    yield margin + shown
    before = sum(2 if east_asian_width(c) in "WF" else 1 for c in shown[: at - start])
    yield " " * (len(margin) - 2) + "| " + " " * before + "^"


_PHRASES = (
    (re.compile(r"^Got unexpected extra arguments? \((.*)\)$"), r"unexpected argument `\1`"),
    (re.compile(r"^No such (option|command) '(.*?)'"), r"there is no \1 `\2`"),
    (re.compile(r"is not a valid (?:integer|float)(?: range)?$"), "is not a number"),
    (re.compile(r"^(\S+) is not in the range x>=(\S+)$"), r"`\1` is less than \2"),
    (re.compile(r"^(\S+) is not in the range (\S+)<=x<=(\S+)$"), r"`\1` is not between \2 and \3"),
    (re.compile(r"'([^']*)'"), r"`\1`"),
)


def usage_text(error: click.ClickException) -> str:
    """The text of a usage error: the problem, and where to find help."""
    return f"{_sentence(error)}{_help(error)}"


def _sentence(error: click.ClickException) -> str:
    parameter = getattr(error, "param", None)
    if isinstance(error, click.MissingParameter) and parameter is not None:
        return f"`{_name(parameter)}` is missing"
    if isinstance(error, click.BadParameter) and parameter is not None:
        return f"`{_name(parameter)}`: {_worded(error.message)}"
    if isinstance(error, click.NoSuchOption):
        return f"there is no option `{error.option_name}`{_similar(error)}"
    if command := getattr(error, "command_name", None):
        return f"there is no command `{command}`{_similar(error)}"
    return _worded(error.format_message())


def _similar(error: click.ClickException) -> str:
    """The option or command that an unknown one is like, if any; click would compare the dashes too."""
    if not (possible := getattr(error, "possibilities", None)):
        return ""
    from difflib import get_close_matches  # needed for a misspelt word only, and slow to import

    option = isinstance(error, click.NoSuchOption)
    unknown: str = getattr(error, "option_name" if option else "command_name")
    near = get_close_matches(unknown.lstrip("-"), [each.lstrip("-") for each in possible], 1)
    return f"; did you mean `{'--' if option else ''}{near[0]}`?" if near else ""


def _help(error: click.ClickException) -> str:
    """A hint at `--help`, for errors of the parser; our own messages say what to do."""
    ctx = getattr(error, "ctx", None)
    missing = isinstance(error, click.MissingParameter)
    unknown = not isinstance(error, click.BadParameter) and error.message[:1].isupper()
    if ctx is None or _similar(error) or not (missing or unknown):
        return ""
    return f"; `{ctx.command_path} --help` shows the usage"


def _name(parameter: click.Parameter) -> str:
    shown = parameter.metavar or ""
    if isinstance(parameter, click.Option):
        return f"{max(parameter.opts, key=len)} {shown}".rstrip()
    return shown or (parameter.name or "").upper()


def _worded(text: str) -> str:
    """A message of the parser in our words; our own begin in lower case and stay as they are."""
    text = text.strip()
    if not (text[:1].isupper() or text.endswith(".")):
        return text
    text = text.removesuffix(".")
    for pattern, words in _PHRASES:
        text = pattern.sub(words, text)
    return text[:1].lower() + text[1:]


Handlers: TypeAlias = dict[signal.Signals, Any]
_HANGUP = getattr(signal, "SIGHUP", None)
_PATIENCE = {signal.SIGINT: 2}
"""How many signals of a kind are handled before the next ends the program; of others, one."""


class EndingSignals:
    """Ctrl-C, SIGTERM and the loss of the terminal, taken from now to the end of the program.

    Until somebody listens the first one interrupts the program, as Ctrl-C does: there is no run yet. Afterwards it
    changes nothing: the run is over. A second SIGTERM, or a third Ctrl-C, ends the program as if nobody had listened:
    whoever sees the store then ends the run. Under `nohup` the loss of the terminal stays without effect.

    The handlers are Python's own: those of an event loop wait for the loop, which an agent may hold up.
    """

    def __init__(self) -> None:
        self._came: dict[int, int] = {}
        self._notify: Callable[[], object] = _interrupt
        for number in handlers():
            if number != _HANGUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._receive)

    @asynccontextmanager
    async def call(self, end: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Call `end`, within the event loop, at the first signal, also one that has come already."""
        import anyio

        from proctor.supervisor.ports.store import current_hop

        hop, received = current_hop(), anyio.Event()
        raised: Exception | None = None

        async def listen() -> None:
            await received.wait()
            await end()

        self._notify = lambda: hop(received.set)
        if self._came:  # what it interrupted then went on
            received.set()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                try:
                    yield
                except Exception as error:
                    raised = error
                tasks.cancel_scope.cancel()
        finally:
            self._notify = _do_nothing
        if raised is not None:  # itself, not one of a group
            raise raised

    def _receive(self, number: int, _: FrameType | None) -> None:
        came = self._came[number] = self._came.get(number, 0) + 1
        if sum(self._came.values()) > 1 and came > _PATIENCE.get(signal.Signals(number), 1):
            _end_by(number)
        self._notify()


def handlers() -> Handlers:
    """The handlers for signals that end a run."""
    meant = (signal.SIGINT, signal.SIGTERM, _HANGUP)
    return {number: signal.getsignal(number) for number in meant if number is not None}


def restore_handlers(before: Handlers) -> None:
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _do_nothing() -> None:
    pass


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def leave(code: int) -> NoReturn:
    """End the program with this exit code, though something in it does not end."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
