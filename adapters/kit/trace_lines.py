"""Files, gzip and standard input as numbered lines of JSON; every error names its line."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any, ClassVar, TypeVar

import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import ProctorError, os_words
from proctor.policies.values.json_values import NOT_JSON, RepeatedKeyError, json_words, unique_members

from .values import whole_characters


class TraceError(ProctorError, ValueError):
    """A recorded session that cannot be read; `place` is `file:line`, or `file` for the whole file."""

    code: ClassVar[str] = "bad_trace"

    def __init__(self, message: str, *, place: str) -> None:
        super().__init__(f"{place}: {message}")
        self.place = place


T = TypeVar("T")
MAX_LINE_BYTES = 256 * 1024 * 1024
"""A longer line is rejected, as it is no session and would fill the memory."""
_GZIP = b"\x1f\x8b"
_anything = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode
_unique = json.JSONDecoder(object_pairs_hook=unique_members)


class TraceLines:
    """The lines of one trace, without blank ones; `number` is that of the last line read, from 1."""

    def __init__(self, name: str, stream: io.BufferedIOBase) -> None:
        self.name = name
        self.number = 0
        self._stream = stream
        self._ahead: list[tuple[int, bytes]] = []

    def __iter__(self) -> Iterator[bytes]:
        while (numbered := self._next()) is not None:
            yield numbered[1]

    def peek(self, count: int) -> Iterator[bytes]:
        """The next lines, up to `count` of them, which stay to be read."""
        for position in range(count):
            if position == len(self._ahead):
                numbered = self._read()
                if numbered is None:
                    return
                self._ahead.append(numbered)
            yield self._ahead[position][1]

    @property
    def looked_at(self) -> int:
        """The number of the last line that `peek` returned."""
        return self._ahead[-1][0] if self._ahead else self.number

    def rest(self) -> str:
        """The rest as one text, each line at its number. Raises TraceError if it is not UTF-8."""
        first = self.number + 1
        parts: list[bytes] = []
        for line in self:
            parts += [b"\n" * (self.number - first), line]
            first = self.number + 1
        data = b"".join(parts)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            self.number = 1 + data.count(b"\n", 0, error.start)
            raise self.fail("not valid UTF-8") from None

    def decode(self, decoder: msgspec.json.Decoder[T], line: bytes | msgspec.Raw) -> T:
        """The line as a value. Raises TraceError with the place if it is none."""
        try:
            return decoder.decode(line)
        except NOT_JSON as error:
            raise self.fail(json_words(error)) from None

    def fail(self, message: str, *, about_file: bool = False) -> TraceError:
        """The error for the last line read, or for the whole file."""
        place = self.name if about_file or not self.number else f"{self.name}:{self.number}"
        return TraceError(message[:500], place=place)

    def _next(self) -> tuple[int, bytes] | None:
        numbered = self._ahead.pop(0) if self._ahead else self._read()
        if numbered is not None:
            self.number, line = numbered
            self._check_keys(line)
        return numbered

    def _check_keys(self, line: bytes) -> None:
        """Raises TraceError for a key that is given twice; what else is wrong is said where the line is read."""
        try:
            if not _is_as_encoded(line):
                _unique.decode(line.decode())
        except RepeatedKeyError as error:
            raise self.fail(str(error)) from None
        except (ValueError, RecursionError):
            return

    def _read(self) -> tuple[int, bytes] | None:
        number = self.looked_at
        while True:
            number += 1
            line = self._read_line(number)
            if not line:
                return None
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line.isspace():
                return number, whole_characters(line)

    def _read_line(self, number: int) -> bytes:
        place = f"{self.name}:{number}"
        try:
            line = self._stream.readline(MAX_LINE_BYTES + 1)
        except EOFError:
            raise TraceError("the gzip file is cut short", place=place) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(f"damaged gzip file: {_lower(str(error))}", place=place) from None
        except OSError as error:
            raise TraceError(f"cannot be read: {os_words(error)}", place=place) from None
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(f"a line of more than {MAX_LINE_BYTES} bytes", place=place)
        return line


@contextmanager
def open_lines(path: str, *, stdin: IO[bytes] | None = None) -> Iterator[TraceLines]:
    """Open a trace: a file, or standard input for `-`; gzip is detected by its first bytes.

    Raises TraceError if there is no such file or it cannot be read.
    """
    if path == "-":
        try:
            stream = _unpacked(io.BufferedReader(_Raw(stdin or sys.stdin.buffer)))
        except OSError as error:
            raise TraceError(os_words(error), place="<stdin>") from None
        yield TraceLines("<stdin>", stream)
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below, after its own opening errors are told apart
    except OSError as error:
        raise TraceError(os_words(error), place=path) from None
    with file:
        yield TraceLines(path, _unpacked(file))


def documents(lines: TraceLines) -> Iterator[Any]:
    """The JSON values of a trace: one a line or, if the first line is not a whole value, one after another in any
    layout. Raises TraceError.
    """
    for first in lines.peek(1):
        if is_whole(first):
            yield from (lines.decode(_anything, line) for line in lines)
        else:
            yield from _laid_out(lines)


def is_whole(line: bytes) -> bool:
    """Whether the line is a JSON value by itself."""
    try:
        _anything.decode(line)
    except NOT_JSON:
        return False
    return True


def _is_as_encoded(line: bytes) -> bool:
    """Whether its value is written so again, with each key of an object once."""
    try:
        return _encode(_anything.decode(line)) == line.strip()
    except NOT_JSON:
        return False


def _laid_out(lines: TraceLines) -> Iterator[Any]:
    text = lines.rest()
    lines.number = 1
    at = 0
    while (start := _skip_blanks(text, at)) < len(text):
        lines.number += text.count("\n", at, start)
        try:
            value, at = _unique.raw_decode(text, start)
        except RecursionError:
            raise lines.fail("nested too deeply") from None
        except json.JSONDecodeError as error:
            raise TraceError(f"not JSON: {_lower(error.msg)}", place=f"{lines.name}:{error.lineno}") from None
        except RepeatedKeyError as error:
            raise lines.fail(str(error)) from None
        except ValueError:
            raise lines.fail("a number has too many digits") from None
        yield value
        lines.number += text.count("\n", start, at)


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


class _Raw(io.RawIOBase):
    def __init__(self, stream: IO[bytes]) -> None:
        self._source = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _unpacked(stream: io.BufferedReader) -> io.BufferedIOBase:
    return gzip.GzipFile(fileobj=stream) if stream.peek(2)[:2] == _GZIP else stream


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


class TraceSession(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded session.

    `events` are in the order they happened, each with its `seq`; `complete`: no more will come, so that open
    obligations are violations. `never_ran` are the ids of requested calls that are known not to have run. `metadata`
    has what the record says besides its events: model, task, outcome.
    """

    id: str
    source: str
    format: str
    events: list[ev.Event]
    complete: bool = True
    never_ran: frozenset[str] = frozenset()
    metadata: dict[str, Any] = {}


class TraceLog:
    """Collects the events of one session and numbers them from 1."""

    def __init__(self, session_id: str, provider: str = "") -> None:
        self.session_id = session_id
        self.provider = provider
        self.events: list[ev.Event] = []
        self.turn = 0

    def add(self, kind: Callable[..., ev.Event], *, at: datetime | None = None, **fields: Any) -> None:
        """Append one event of this kind, stamped with the session's id and the next `seq`."""
        stamps = {"session_id": self.session_id, "provider": self.provider, "at": at}
        self.events.append(kind(seq=len(self.events) + 1, **stamps, **fields))

    def enter_turn(self, turn: int, at: datetime | None = None) -> None:
        """Set the current turn; a new one is reported as started."""
        if turn > self.turn:
            self.turn = turn
            self.add(ev.TurnStarted, at=at, turn=turn)

    def end_call(
        self,
        call_id: str,
        name: str,
        output: Any,
        *,
        at: datetime | None = None,
        failed: Any,
        refused: bool = False,
        unfinished: bool = False,
    ) -> None:
        """Add a call's outcome: `output` is its result, or its error if it failed. If it is `unfinished`, what it has
        started goes on.
        """
        named: dict[str, Any] = {"at": at, "tool_call_id": call_id, "tool_name": name}
        if refused:
            self.add(ev.ToolCallDenied, **named)
        elif failed:
            self.add(ev.ToolCallFailed, **named, error=output)
        else:
            self.add(ev.ToolCallCompleted, **named, tool_output=output, unfinished=unfinished)

    def session(self, source: str, format: str, metadata: dict[str, Any], *, complete: bool = True) -> TraceSession:
        """The session of these events, with the known values of `metadata`."""
        return TraceSession(
            id=self.session_id,
            source=source,
            format=format,
            events=self.events,
            complete=complete,
            never_ran=self._never_ran(),
            metadata={name: value for name, value in metadata.items() if value is not None},
        )

    def _never_ran(self) -> frozenset[str]:
        """The requested calls that did not start, if the record is known to have every start."""
        started = {event.tool_call_id for event in self.events if isinstance(event, ev.ToolCallStarted)}
        requested = {event.tool_call_id for event in self.events if isinstance(event, ev.ToolCallRequested)}
        return frozenset(requested - started)


def parsed(value: Any) -> Any:
    """The value of text that is JSON; anything else as it came."""
    if not isinstance(value, str):
        return value
    try:
        return _anything.decode(value)
    except NOT_JSON:
        return value


def tool_input(value: Any) -> dict[str, Any]:
    """A call's arguments as an object; anything else (free text, a list) under the key `input`."""
    found = parsed(value)
    if isinstance(found, dict):
        return found
    return {} if found is None or found == "" else {"input": value}


def text_of(content: Any) -> Any:
    """The text of content blocks, joined by line ends; content without any text as it came."""
    if not isinstance(content, list):
        return content
    blocks = (block for block in content if isinstance(block, dict))
    texts = [text for block in blocks if isinstance(text := block.get("text"), str)]
    return "\n".join(texts) if texts else content


def message_kind(role: str) -> type[ev.Event]:
    """The event for a message of this role: received from assistants, sent to the model by all others."""
    return ev.MessageReceived if role == "assistant" else ev.MessageSent
