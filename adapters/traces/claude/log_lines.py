"""The lines of a Claude Code session log as records."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from proctor.policies.stream.events import at_ms

from ..lines import TraceLines

_FILES: Final = {
    **dict.fromkeys(("Read", "Write", "Edit", "MultiEdit"), "file_path"),
    "NotebookEdit": "notebook_path",
}
"""The client's own tools for a file, and where they have its path."""


class _Envelope(msgspec.Struct, kw_only=True):
    """A line but for its message. The client's log and its stream spell some names differently."""

    type: str
    uuid: str | None = None
    cwd: str | None = None
    parent_uuid: str | None = msgspec.field(default=None, name="parentUuid")
    session: str | None = msgspec.field(default=None, name="sessionId")
    stream_session: str | None = msgspec.field(default=None, name="session_id")
    timestamp: datetime | None = None
    is_sidechain: bool = msgspec.field(default=False, name="isSidechain")
    is_meta: bool | None = msgspec.field(default=None, name="isMeta")
    is_summary: bool | None = msgspec.field(default=None, name="isCompactSummary")
    agent_id: str | None = msgspec.field(default=None, name="agentId")
    parent_call: str | None = msgspec.field(default=None, name="parent_tool_use_id")
    outcome: Any = msgspec.field(default=None, name="toolUseResult")
    message: msgspec.Raw = msgspec.Raw(b"null")
    prompt_source: str | None = msgspec.field(default=None, name="promptSource")
    permission: Any = msgspec.field(default=None, name="permissionDecision")


class LoggedUsage(msgspec.Struct, kw_only=True):
    """`input_tokens` here is without what was read from or written to the cache."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class Message(msgspec.Struct, kw_only=True):
    role: str = ""
    id: str | None = None
    model: str | None = None
    content: str | list[dict[str, Any]] = ""
    usage: LoggedUsage | None = None

    def blocks(self) -> list[dict[str, Any]]:
        """The content as blocks; plain text is one."""
        return [{"type": "text", "text": self.content}] if isinstance(self.content, str) else self.content


class LogRecord(msgspec.Struct, kw_only=True):
    """One line. `raw` is the line itself where its type is not one that is understood here."""

    envelope: _Envelope
    message: Message | None = None
    raw: dict[str, Any] | None = None

    @property
    def session_id(self) -> str:
        return self.envelope.session or self.envelope.stream_session or ""

    @property
    def is_subagent(self) -> bool:
        return self.envelope.is_sidechain or self.envelope.parent_call is not None

    @property
    def when(self) -> int:
        """Milliseconds since the epoch, 0 if the line bears no time."""
        return at_ms(self.envelope.timestamp) if self.envelope.timestamp else 0

    @property
    def at(self) -> datetime | None:
        return self.envelope.timestamp.astimezone(UTC) if self.envelope.timestamp else None


_envelopes = msgspec.json.Decoder(_Envelope)
_messages = msgspec.json.Decoder(Message)
_anything = msgspec.json.Decoder(dict[str, Any])


def records(lines: TraceLines) -> Iterator[LogRecord]:
    """The lines of one log, each uuid once. Raises TraceError."""
    seen: set[str] = set()
    for line in lines:
        envelope = lines.decode(_envelopes, line)
        if envelope.uuid is not None and envelope.uuid in seen:
            continue
        if envelope.uuid is not None:
            seen.add(envelope.uuid)
        if envelope.type in ("user", "assistant"):
            yield LogRecord(envelope=envelope, message=lines.decode(_messages, envelope.message))
        else:
            yield LogRecord(envelope=envelope, raw=lines.decode(_anything, line))


def as_proposed(name: str, tool_input: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """A call's input as the client asks about it: it makes the path of a file absolute first, and logs it as written.

    A path in the home directory stays as it is, as the log does not say which that is.
    """
    key = _FILES.get(name)
    path = tool_input.get(key) if key else None
    if not isinstance(path, str) or not folder or not posixpath.isabs(folder) or path.strip().startswith("~"):
        return tool_input
    return {**tool_input, str(key): posixpath.normpath(posixpath.join(folder, path.strip()))}
