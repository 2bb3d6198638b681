"""Paths to sessions: files, folders and standard input."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec

from proctor.policies.events import EVENT_TYPES
from proctor.policies.reading.sources import RECORDINGS

from ..agents.claude import session_log as claude
from ..agents.codex import session_log as codex
from ..kit.trace_lines import TraceError, TraceLines, TraceSession, is_whole, open_lines
from . import otel, sessions
from .otel import is_span

Reader: TypeAlias = Callable[[TraceLines], Iterator[TraceSession]]
FORMATS: dict[str, Reader] = {
    "events": sessions.read_own_events,
    "sessions": sessions.read,
    "claude": claude.read,
    "codex": codex.read,
    "otel": otel.read,
}
"""Every format that can be read, by the name users give it."""
_DATABASE = b"SQLite format 3\0"
_LENIENT = ("claude", "codex", "events")
_LOOKED_AT = 50
_ROLLOUT = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_CLAUDE = ("user", "assistant", "system", "summary", "result")
_CLAUDE_MARKS = ("parentUuid", "sessionId", "leafUuid", "messageId", "session_id")
_anything = msgspec.json.Decoder()


def detect(lines: TraceLines) -> str:
    """The name of the format, by the first lines that show it. Raises TraceError if none does."""
    for line in lines.peek(_LOOKED_AT):
        if line.startswith(_DATABASE):
            hint = f"`proctor export --store {lines.name} -o FILE` writes the sessions of a store as a trace"
            raise lines.fail(f"this is a database, not a trace; {hint}", about_file=True)
        if not is_whole(line):
            break
        if name := _format_of(_anything.decode(line)):
            return name
    else:
        hint = f"name it with `--format {'|'.join(FORMATS)}`"
        raise lines.fail(f"no line tells the format; {hint}", about_file=True)
    if line.lstrip()[:1] in (b"{", b"["):
        return "otel"
    raise TraceError("not JSON; recorded sessions are lines of JSON", place=f"{lines.name}:{lines.looked_at}")


def check_format(lines: TraceLines, format: str) -> None:
    """Raises TraceError for a file of another format, which a reader that skips unknown lines would not notice."""
    if format not in _LENIENT:
        return
    for line in lines.peek(_LOOKED_AT):
        found = _format_of(_anything.decode(line)) if is_whole(line) else None
        if found == format:
            return
        if found is not None:
            raise lines.fail(f"it is in the format `{found}`, not `{format}`", about_file=True)


def _format_of(value: Any) -> str | None:
    """The format that a line's value is of; None if it could be of any or of none."""
    if is_span(value):
        return "otel"
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if sessions.is_export(value):
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


_ENDINGS = (*RECORDINGS, ".json")


def read_sessions(
    paths: Iterable[str], *, format: str | None = None, stdin: IO[bytes] | None = None
) -> Iterator[TraceSession]:
    """The recorded sessions in files and folders, one after another, each with its subagents; `-` is standard input.

    A folder is searched for `.jsonl`, `.ndjson` and `.json` files, also with `.gz`, in order of their names. `format`
    is one of FORMATS; without it each file's is detected. Raises TraceError at the first thing that cannot be read.
    """
    files = [file for path in paths for file in _files(path)]
    alone = set(codex.without_subagents(claude.without_subagents(map(Path, files))))
    for file in files:
        if Path(file) in alone:
            yield from _read(file, format, stdin)


def _read(path: str, format: str | None, stdin: IO[bytes] | None) -> Iterator[TraceSession]:
    with open_lines(path, stdin=stdin) as lines:
        if not any(True for _ in lines.peek(1)):
            raise lines.fail("no sessions in it: the file is empty", about_file=True)
        if format is not None:
            check_format(lines, format)
        yield from FORMATS[format or detect(lines)](lines)


def _files(path: str) -> list[str]:
    folder = Path(path)
    if path == "-" or not folder.is_dir():
        return [path]
    found = [file for file in sorted(folder.rglob("*")) if _is_trace(file)]
    if not found:
        raise TraceError(f"no traces in it: a folder is searched for {', '.join(_ENDINGS)} files", place=path)
    return list(map(str, found))


def _is_trace(file: Path) -> bool:
    """Whether a file found in a folder is meant to be read: an empty one, or one beside a log, is not."""
    name = file.name.removesuffix(".gz")
    meant = name.endswith(_ENDINGS) and not name.endswith(".meta.json")
    return meant and file.is_file() and file.stat().st_size > 0
