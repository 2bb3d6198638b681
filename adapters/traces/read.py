"""Paths to sessions: files, folders and standard input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from .claude.files import without_subagents
from .errors import TraceError
from .formats import FORMATS, check_format, detect
from .lines import open_lines
from .session import TraceSession

_ENDINGS = (".jsonl", ".ndjson", ".json")


def read_sessions(
    paths: Iterable[str], *, format: str | None = None, stdin: IO[bytes] | None = None
) -> Iterator[TraceSession]:
    """The recorded sessions in files and folders, one after another; `-` is standard input.

    A folder is searched for `.jsonl`, `.ndjson` and `.json` files, also with `.gz`, in order of their names.
    `format` is one of FORMATS; without it each file tells its own. Raises TraceError where it first meets
    something that cannot be read.
    """
    for path in paths:
        for file in _files(path):
            yield from _read(file, format, stdin)


def _read(path: str, format: str | None, stdin: IO[bytes] | None) -> Iterator[TraceSession]:
    with open_lines(path, stdin=stdin) as lines:
        if not any(True for _ in lines.peek(1)):
            raise lines.fail("no sessions in it: the file is empty", whole_file=True)
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
    return [str(file) for file in without_subagents(found)]


def _is_trace(file: Path) -> bool:
    """Whether a file found in a folder is meant to be read: an empty one, or one beside a log, is not."""
    name = file.name.removesuffix(".gz")
    meant = name.endswith(_ENDINGS) and not name.endswith(".meta.json")
    return meant and file.is_file() and file.stat().st_size > 0
