"""What one line of the client's log says was used."""

from __future__ import annotations

from datetime import datetime
from operator import add, sub

import msgspec
from msgspec.structs import astuple

_SYNTHETIC = "<synthetic>"


class LoggedTokens(msgspec.Struct, array_like=True):
    """Tokens by kind; `read` and `written` are the cache's, and no part of `input`."""

    input: int = 0
    output: int = 0
    read: int = 0
    written: int = 0
    thinking: int = 0

    def most(self, other: LoggedTokens) -> LoggedTokens:
        """The greater of each kind."""
        return LoggedTokens(*map(max, astuple(self), astuple(other)))

    def plus(self, other: LoggedTokens) -> LoggedTokens:
        """Both together."""
        return LoggedTokens(*map(add, astuple(self), astuple(other)))

    def less(self, other: LoggedTokens) -> LoggedTokens:
        """What this has more than the other."""
        return LoggedTokens(*(max(0, left) for left in map(sub, astuple(self), astuple(other))))


class Used(msgspec.Struct, frozen=True):
    """What a response used as far as one of its lines says; `message` is "" where the line does not name it.

    `calls` are the ids of those it asks for in this line, `text` what it says there.
    """

    message: str
    model: str
    tokens: LoggedTokens
    at: datetime | None
    calls: tuple[str, ...] = ()
    text: str = ""


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    text: str = ""


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    content: list[_Block] | str | None = None


class _Line(msgspec.Struct):
    type: str = ""
    timestamp: datetime | None = None
    message: msgspec.Raw = msgspec.Raw(b"null")


_lines = msgspec.json.Decoder(_Line)
_messages = msgspec.json.Decoder(_Message)


def used(line: bytes) -> Used | None:
    """What a line says was used; None for one that says nothing of it. Raises msgspec.MsgspecError."""
    if b'"usage"' not in line or b'"assistant"' not in line:
        return None
    record = _lines.decode(line)
    if record.type != "assistant":
        return None
    message = _messages.decode(record.message)
    if message.usage is None or message.model == _SYNTHETIC:
        return None
    blocks = message.content if isinstance(message.content, list) else ()
    calls = tuple(block.id for block in blocks if block.type == "tool_use" and block.id)
    text = "".join(block.text for block in blocks if block.type == "text")
    return Used(message.id or "", message.model or "", _tokens(message.usage), record.timestamp, calls, text)


def _tokens(usage: _Usage) -> LoggedTokens:
    details = usage.output_tokens_details
    return LoggedTokens(
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        usage.cache_read_input_tokens or 0,
        usage.cache_creation_input_tokens or 0,
        (details.thinking_tokens if details else None) or 0,
    )
