"""Files, gzip and standard input as numbered lines of JSON, each failure with its place."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import msgspec

from proctor.policies.values.canonical import json_words

from .errors import TraceError

T = TypeVar("T")

MAX_LINE_BYTES = 256 * 1024 * 1024
"""A line longer than this is refused: it is no session, and reading on would fill the memory."""

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_anything = msgspec.json.Decoder()


class TraceLines:
    """The lines of one trace that are not blank; `number` is that of the line read last, from 1."""

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
        """The number of the line that was looked ahead at last."""
        return self._ahead[-1][0] if self._ahead else self.number

    def rest(self) -> str:
        """All that is left, as one text, each line at its number. Raises TraceError when it is not UTF-8."""
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
        """The line as a value. Raises TraceError with the place when it is not one."""
        try:
            return decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.fail(json_words(error)) from None

    def fail(self, message: str, *, whole_file: bool = False) -> TraceError:
        """The error that says what is wrong with the line read last, or with the whole file."""
        place = self.name if whole_file or not self.number else f"{self.name}:{self.number}"
        return TraceError(message[:500], place=place)

    def _next(self) -> tuple[int, bytes] | None:
        numbered = self._ahead.pop(0) if self._ahead else self._read()
        if numbered is not None:
            self.number = numbered[0]
        return numbered

    def _read(self) -> tuple[int, bytes] | None:
        number = self.looked_at
        while True:
            number += 1
            line = self._read_line(number)
            if not line:
                return None
            if number == 1:
                line = line.removeprefix(_BOM)
            if not line.isspace():
                return number, line

    def _read_line(self, number: int) -> bytes:
        place = f"{self.name}:{number}"
        try:
            line = self._stream.readline(MAX_LINE_BYTES + 1)
        except EOFError:
            raise TraceError("the gzip file is cut short", place=place) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(f"damaged gzip file: {_lower(str(error))}", place=place) from None
        except OSError as error:
            raise TraceError(f"cannot be read: {_reason(error)}", place=place) from None
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(f"a line of more than {MAX_LINE_BYTES} bytes", place=place)
        return line


@contextmanager
def open_lines(path: str, *, stdin: IO[bytes] | None = None) -> Iterator[TraceLines]:
    """Open a trace: a file, or standard input for `-`; gzip is recognised by its first bytes.

    Raises TraceError when there is no such file or it cannot be read.
    """
    if path == "-":
        yield TraceLines("<stdin>", _unpacked(io.BufferedReader(_Raw(stdin or sys.stdin.buffer))))
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below, after its own opening errors are told apart
    except OSError as error:
        raise TraceError(_reason(error), place=path) from None
    with file:
        yield TraceLines(path, _unpacked(file))


def documents(lines: TraceLines) -> Iterator[Any]:
    """The JSON values of a trace: one a line or, where the first line is no whole value, one after another
    in whatever layout they have. Raises TraceError.
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _laid_out(lines: TraceLines) -> Iterator[Any]:
    text = lines.rest()
    decoder = json.JSONDecoder()
    lines.number = 1
    at = 0
    while (start := _skip_blanks(text, at)) < len(text):
        lines.number += text.count("\n", at, start)
        try:
            value, at = decoder.raw_decode(text, start)
        except RecursionError:
            raise lines.fail("nested too deeply") from None
        except json.JSONDecodeError as error:
            raise TraceError(f"not JSON: {_lower(error.msg)}", place=f"{lines.name}:{error.lineno}") from None
        yield value
        lines.number += text.count("\n", start, at)


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


class _Raw(io.RawIOBase):
    """Gives any binary stream the buffered reader it needs to be looked ahead in."""

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


def _reason(error: OSError) -> str:
    return _lower(error.strerror or str(error))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
