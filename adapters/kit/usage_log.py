"""Reads a session's usage from the client's own log as it grows, because hooks do not report tokens.

The log of a session, and those of its subagents, are read from where the last hook stopped. Each client has a
subclass of `UsageLog` that reads one line, and finds the logs of subagents.
"""

from __future__ import annotations

import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from operator import add, sub
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec
from msgspec.structs import astuple

from proctor.policies.errors import EventError, os_words
from proctor.policies.events import TokenUsageUpdated
from proctor.policies.values.json_values import NOT_JSON, json_words

from .values import whole_characters

_REMEMBERED = 32
_CALLS_REMEMBERED = 256
WAIT_S = 1.0
"""Seconds to wait for a call and its usage in the log, as the client writes it and starts hooks at the same time."""
WAIT_AT_THE_END_S = 0.25
"""The same for the last turn of a run, on which nothing is decided."""
LOOK_S = 0.002
_CHUNK = 1024 * 1024


class LoggedTokens(msgspec.Struct, array_like=True):
    """Tokens by kind; `read` and `written` are the cache's, and not part of `input`."""

    input: int = 0
    output: int = 0
    read: int = 0
    written: int = 0
    thinking: int = 0

    def most(self, other: LoggedTokens) -> LoggedTokens:
        """The greater of each kind."""
        return LoggedTokens(*map(max, astuple(self), astuple(other)))

    def plus(self, other: LoggedTokens) -> LoggedTokens:
        return LoggedTokens(*map(add, astuple(self), astuple(other)))

    def less(self, other: LoggedTokens) -> LoggedTokens:
        """The difference between this usage and the other."""
        return LoggedTokens(*(max(0, left) for left in map(sub, astuple(self), astuple(other))))

    @property
    def all(self) -> int:
        """Tokens of input and output together."""
        return self.input + self.read + self.written + self.output

    def figures(self) -> dict[str, Any]:
        """The figures of a usage event, whose input tokens include the cache's."""
        return {
            "input_tokens": self.input + self.read + self.written,
            "output_tokens": self.output,
            "cache_read_tokens": self.read,
            "cache_write_tokens": self.written,
            "reasoning_tokens": self.thinking,
        }


class OneLog(msgspec.Struct, rename={"text": "said"}):
    """The state of reading one log: its tokens by model so far, its latest messages, its calls, and the beginning of
    its last text; `calls_ahead` and `text_ahead` are those of the turn whose tokens are not in the log yet.

    `below`: it is a subagent's.
    """

    offset: int = 0
    totals: dict[str, LoggedTokens] = {}
    latest: dict[str, LoggedTokens] = {}
    calls: list[str] = []
    text: str = ""
    calls_ahead: list[str] = []
    text_ahead: str = ""
    model: str = ""
    below: bool = False

    def add(self, line: Used, since: datetime) -> None:
        """Add a line's part of a turn; of a turn before `since`, nothing is counted."""
        self.model, self.below = line.model or self.model, self.below or line.below
        if line.at is not None and line.at.tzinfo is not None and line.at < since:
            return
        self.calls = [call_id for call_id in self.calls if call_id not in line.ended]
        calls, text = [*self.calls_ahead, *line.calls], _start(line.text) or self.text_ahead
        if line.tokens is None:
            self.calls_ahead, self.text_ahead = calls, text
            return
        self.calls, self.text = [*self.calls, *calls][-_CALLS_REMEMBERED:], text or self.text
        self.calls_ahead, self.text_ahead = [], ""
        self._count(line.tokens, line.message)

    def _count(self, tokens: LoggedTokens, message: str) -> None:
        """Count the tokens of a message, of which earlier lines may have counted some."""
        before = self.latest.pop(message, LoggedTokens()) if message else LoggedTokens()
        now = tokens.most(before)
        self.totals[self.model] = self.totals.get(self.model, LoggedTokens()).plus(now.less(before))
        if message:
            self.latest[message] = now
            while len(self.latest) > _REMEMBERED:
                del self.latest[next(iter(self.latest))]

    def keep_counted(self, before: OneLog) -> None:
        """Keep what was counted before the client wrote the log anew."""
        for model, tokens in before.totals.items():
            self.totals[model] = self.totals.get(model, LoggedTokens()).most(tokens)


class _State(msgspec.Struct):
    since: datetime
    logs: dict[str, OneLog] = {}


_states = msgspec.json.Decoder(_State)
_encoder = msgspec.json.Encoder()


class UsageLog(ABC):
    """The logs of one session, at the path that the client names, as far as the last hook has read them (`state`);
    without that, turns before `since` belong to runs that were not supervised.
    """

    def __init__(self, path: str, state: bytes | None, since: datetime) -> None:
        self._main = Path(path) if path else None
        self._state = _states.decode(state) if state else _State(since)

    @abstractmethod
    def read_line(self, line: bytes) -> Used | None:
        """A line's part of a turn's usage. Raises msgspec.MsgspecError."""

    @abstractmethod
    def below(self, main: Path) -> Iterable[Path]:
        """The logs of the session's subagents. Raises EventError if they cannot be found."""

    @property
    def state(self) -> bytes:
        """The state of reading, for the next hook."""
        return _encoder.encode(self._state)

    def news(
        self, *, may_be_missing: bool, call_id: str = "", message: str = "", wait_s: float = 0.0
    ) -> list[TokenUsageUpdated]:
        """Usage since the last read, one event a model. Raises EventError if a log cannot be read.

        With `call_id` or `message` this waits up to `wait_s` seconds until the log has that call, or that message as
        the latest.
        """
        before, of_others = self._totals(), self._of_subagents()
        deadline = time.monotonic() + wait_s
        self._read_all(may_be_missing=may_be_missing or wait_s > 0)
        while not self._has(call_id, message) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            self._read_all(may_be_missing=True)
        if wait_s and not may_be_missing:
            self._read_all(may_be_missing=False)
        added = {model: total.less(before.get(model, LoggedTokens())) for model, total in self._totals().items()}
        news = {model: tokens for model, tokens in added.items() if tokens != LoggedTokens()}
        apart = {model: total - of_others.get(model, 0) for model, total in self._of_subagents().items()}
        return [
            TokenUsageUpdated(model=model or None, **tokens.figures(), subagent_tokens=max(0, apart.get(model, 0)))
            for model, tokens in news.items()
        ]

    def _has(self, call_id: str, message: str) -> bool:
        if call_id:
            return self.has_call(call_id)
        return not message or (self.main_log is not None and self.main_log.text == _start(message))

    def has_call(self, call_id: str) -> bool:
        """Whether a log has that call, and the tokens of its turn."""
        return any(call_id in log.calls for log in self._state.logs.values())

    @property
    def main_log(self) -> OneLog | None:
        """The log at the path that the client names, as far as it is read."""
        return self._state.logs.get(self._main.name) if self._main is not None else None

    def _read_all(self, *, may_be_missing: bool) -> None:
        main = self._main
        if main is not None and main.exists():
            self._read(main, below=False)
            for log in sorted(self.below(main)):
                self._read(log, below=True)
        elif not may_be_missing:
            raise EventError(f"there is no log of the session at `{main or ''}`, so what it used is not known")

    def _of_subagents(self) -> dict[str, int]:
        """The tokens of input and output of subagents, by model."""
        return {model: tokens.all for model, tokens in self._totals(only_below=True).items()}

    def _totals(self, *, only_below: bool = False) -> dict[str, LoggedTokens]:
        totals: dict[str, LoggedTokens] = {}
        for log in (log for log in self._state.logs.values() if log.below or not only_below):
            for model, tokens in log.totals.items():
                totals[model] = totals.get(model, LoggedTokens()).plus(tokens)
        return totals

    def _read(self, path: Path, *, below: bool) -> None:
        before = self._state.logs.get(path.name) or OneLog()
        with reading(path):
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise EventError(f"the session's log `{path}` is not a file")
            log = before if found.st_size >= before.offset else OneLog()
            log.below = log.below or below
            with path.open("rb") as file:
                for line in whole_lines(file, log):
                    if (used := self.read_line(whole_characters(line))) is not None:
                        log.add(used, self._state.since)
        if log is not before:
            log.keep_counted(before)
        self._state.logs[path.name] = log


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises EventError, with the path, for any error with a log."""
    try:
        yield
    except OSError as error:
        raise EventError(f"the session's log `{path}` cannot be read: {os_words(error)}") from error
    except NOT_JSON as error:
        raise EventError(f"the session's log `{path}` cannot be read: {json_words(error)}") from error


class ReadTo(Protocol):
    """How far a log was read."""

    offset: int


def whole_lines(file: BinaryIO, log: ReadTo) -> Iterator[bytes]:
    """The unread complete lines; one that is still being written is left for the next read."""
    file.seek(log.offset)
    rest = b""
    while chunk := file.read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in lines:
            log.offset += len(line) + 1
            yield line


def _start(text: str) -> str:
    """The beginning of a text, which identifies it."""
    return text.strip()[:200]


class Used(msgspec.Struct, frozen=True):
    """A turn's usage in one of its lines; `message` and `model` are "" if the line does not name them, and `tokens`
    None if a later line has them.

    `calls` are the ids of calls requested in this line, `text` its text, `ended` the calls that end in it; `below`:
    it is a subagent's.
    """

    message: str = ""
    model: str = ""
    tokens: LoggedTokens | None = None
    at: datetime | None = None
    calls: tuple[str, ...] = ()
    text: str = ""
    below: bool = False
    ended: tuple[str, ...] = ()
