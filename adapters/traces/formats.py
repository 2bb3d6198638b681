"""The formats by name, and which of them a file is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from proctor.policies.stream.events import EVENT_TYPES

from . import own_events, sessions
from .claude import log as claude
from .codex import rollout as codex
from .errors import TraceError
from .lines import TraceLines, is_whole
from .otel import genai as otel
from .otel.spans import is_span
from .session import TraceSession

Reader: TypeAlias = Callable[[TraceLines], Iterator[TraceSession]]

FORMATS: dict[str, Reader] = {
    "events": own_events.read,
    "sessions": sessions.read,
    "claude": claude.read,
    "codex": codex.read,
    "otel": otel.read,
}
"""Every format that can be read, by the name users give it."""

_DATABASE = b"SQLite format 3\0"
_LENIENT = ("claude", "codex")
_LOOKED_AT = 50
_ROLLOUT = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_CLAUDE = ("user", "assistant", "system", "summary", "result")
_CLAUDE_MARKS = ("parentUuid", "sessionId", "leafUuid", "messageId", "session_id")
_anything = msgspec.json.Decoder()


def detect(lines: TraceLines) -> str:
    """The name of the format, judged by the first lines that tell. Raises TraceError when none does."""
    for line in lines.peek(_LOOKED_AT):
        if line.startswith(_DATABASE):
            hint = f"`proctor export --store {lines.name} -o FILE` writes the sessions of a store as a trace"
            raise lines.fail(f"this is a database, not a trace; {hint}", whole_file=True)
        if not is_whole(line):
            break
        if name := _format_of(_anything.decode(line)):
            return name
    else:
        raise lines.fail(_unknown("no line tells the format"), whole_file=True)
    if line.lstrip()[:1] in (b"{", b"["):
        return "otel"
    raise TraceError(_unknown("not JSON"), place=f"{lines.name}:{lines.looked_at}")


def check_format(lines: TraceLines, format: str) -> None:
    """Raises TraceError when a reader that passes over what it does not know is given another format's file."""
    if format not in _LENIENT:
        return
    for line in lines.peek(_LOOKED_AT):
        found = _format_of(_anything.decode(line)) if is_whole(line) else None
        if found == format:
            return
        if found is not None:
            raise lines.fail(f"it is in the format `{found}`, not `{format}`", whole_file=True)


def _unknown(what: str) -> str:
    return f"{what}; name it with `--format {'|'.join(FORMATS)}`"


def _format_of(value: Any) -> str | None:
    if is_span(value):
        return "otel"
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if own_events.is_export(value):
        return "events"
    if kind is None:
        return "sessions" if "id" in value and isinstance(value.get("events"), list) else None
    if kind in _ROLLOUT and "payload" in value:
        return "codex"
    if isinstance(kind, str) and kind in EVENT_TYPES:
        return "events"
    if kind in _CLAUDE and any(mark in value for mark in _CLAUDE_MARKS):
        return "claude"
    return "events" if "seq" in value and "session_id" in value else None
