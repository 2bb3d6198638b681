"""Reads the usage of Claude Code's sessions from its logs.

A turn is written as several lines with one message id, each with the usage so far; the highest figures count.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from ...kit.usage_log import LoggedTokens, UsageLog, Used

NOT_A_MODEL = "<synthetic>"
"""The model's name in the log for messages that the client wrote itself."""


class ClaudeUsageLog(UsageLog):
    """The log of a session, and those in the folder of its subagents."""

    def below(self, main: Path) -> Iterable[Path]:
        return (main.with_suffix("") / "subagents").rglob("*.jsonl")

    def read_line(self, line: bytes) -> Used | None:
        return used(line)


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class LogUsage(msgspec.Struct, kw_only=True):
    """The usage of a response in a line of the log; `input_tokens` leaves out tokens from the cache."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None

    def tokens(self) -> LoggedTokens:
        """Its tokens by kind."""
        details = self.output_tokens_details
        return LoggedTokens(
            self.input_tokens or 0,
            self.output_tokens or 0,
            self.cache_read_input_tokens or 0,
            self.cache_creation_input_tokens or 0,
            (details.thinking_tokens if details else None) or 0,
        )


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    text: str = ""


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: LogUsage | None = None
    content: list[_Block] | str | None = None


class _Line(msgspec.Struct):
    type: str = ""
    timestamp: datetime | None = None
    message: msgspec.Raw = msgspec.Raw(b"null")


_lines = msgspec.json.Decoder(_Line)
_messages = msgspec.json.Decoder(_Message)


def used(line: bytes) -> Used | None:
    """The usage in a line; None if the line has none. Raises msgspec.MsgspecError."""
    if b'"usage"' not in line or b'"assistant"' not in line:
        return None
    record = _lines.decode(line)
    if record.type != "assistant":
        return None
    message = _messages.decode(record.message)
    if message.usage is None or message.model == NOT_A_MODEL:
        return None
    blocks = message.content if isinstance(message.content, list) else ()
    calls = tuple(block.id for block in blocks if block.type == "tool_use" and block.id)
    text = "".join(block.text for block in blocks if block.type == "text")
    return Used(message.id or "", message.model or "", message.usage.tokens(), record.timestamp, calls, text)
