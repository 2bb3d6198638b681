"""Reads the usage of Codex's sessions from its rollouts.

Each turn's tokens are in a line of their own, after the lines of its calls and text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ...kit.usage_log import LoggedTokens, UsageLog, Used, reading


class CodexUsageLog(UsageLog):
    """The rollout of a session, and those of the threads that it started."""

    def below(self, main: Path) -> Iterable[Path]:
        session = main.stem[-_ID:]
        days = (day for day in main.parents[3].glob("*/*/*") if day >= main.parent)
        for log in (log for day in days for log in day.glob("rollout-*.jsonl")):
            with suppress(EOFError):
                if log.name > main.name and _session_of(log) == session:
                    yield log

    def read_line(self, line: bytes) -> Used | None:
        if not any(kind in line for kind in _KINDS):
            return None
        found, payload = _lines.decode(line), _Payload()
        if found.type in ("turn_context", "token_usage_record", "response_item"):
            payload = _payloads.decode(found.payload)
        if found.type == "turn_context":
            return Used(model=payload.model or "", at=found.timestamp)
        if found.type == "token_usage_record":
            tokens = payload.usage.tokens() if payload.usage is not None else LoggedTokens()
            below = payload.thread_id != payload.session_id
            return Used(payload.response_id or "", "", tokens, found.timestamp, below=below)
        if payload.type.endswith("_call") and payload.call_id:
            return Used(at=found.timestamp, calls=(payload.call_id,))
        if payload.type == "message" and payload.role == "assistant":
            return Used(at=found.timestamp, text="".join(_texts(payload.content)))
        return None


_ID = 36
"""The length of a thread's id, with which its rollout's name ends."""
_ROLLOUTS = 4096
"""For how many rollouts the session is cached, as every hook looks it up, repeatedly while it waits."""
_KINDS = (b'"turn_context"', b'"token_usage_record"', b'_call"', b'"assistant"')


@lru_cache(_ROLLOUTS)
def _session_of(log: Path) -> str | None:
    """The session that a thread belongs to, by the first line, which never changes.

    Raises EOFError while that line is being written, EventError if it cannot be read.
    """
    with reading(log), log.open("rb") as file:
        first = file.readline()
        if not first.endswith(b"\n"):
            raise EOFError
        return _payloads.decode(_lines.decode(first).payload).session_id


def _texts(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "output_text":
            yield str(block.get("text", ""))


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_output_tokens: int = 0

    def tokens(self) -> LoggedTokens:
        cached = self.cached_input_tokens + self.cache_write_input_tokens
        return LoggedTokens(
            max(0, self.input_tokens - cached),
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
            self.reasoning_output_tokens,
        )


class _Payload(msgspec.Struct):
    type: str = ""
    model: str | None = None
    response_id: str | None = None
    thread_id: str | None = None
    session_id: str | None = None
    usage: _Usage | None = None
    call_id: str | None = None
    role: str | None = None
    content: Any = None


class _Line(msgspec.Struct):
    type: str = ""
    timestamp: datetime | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")


_lines = msgspec.json.Decoder(_Line)
_payloads = msgspec.json.Decoder(_Payload)
