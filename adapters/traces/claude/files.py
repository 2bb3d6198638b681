"""Which files make up one Claude Code session: its log, and the logs of the sub-agents it started."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec


class _Owner(msgspec.Struct, rename="camel"):
    session_id: str = ""


_owner = msgspec.json.Decoder(_Owner)


def subagent_logs(session_log: Path) -> list[Path]:
    """The logs of the sub-agents of this session, kept in its own folder or, by older clients, beside it."""
    own_folder = sorted((session_log.parent / session_log.stem / "subagents").glob("*.jsonl"))
    beside = [
        path
        for path in sorted(session_log.parent.glob("agent-*.jsonl"))
        if path != session_log and _owner_of(path) == session_log.stem
    ]
    return own_folder + beside


def without_subagents(paths: Iterable[Path]) -> list[Path]:
    """These files less those that are read as part of another one of them."""
    given = list(paths)
    present = set(given)
    return [path for path in given if _session_log_of(path) not in present]


def _session_log_of(path: Path) -> Path | None:
    if path.suffix != ".jsonl":
        return None
    if path.parent.name == "subagents":
        return path.parent.parent.with_suffix(".jsonl")
    if path.name.startswith("agent-") and (owner := _owner_of(path)) and owner != path.stem:
        return path.parent / f"{owner}.jsonl"
    return None


def _owner_of(path: Path) -> str:
    """The session a sub-agent's log names in its first line, "" if it names none."""
    try:
        with path.open("rb") as file:
            return _owner.decode(file.readline()).session_id
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
