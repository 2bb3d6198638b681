"""A command line taken apart: every simple command it can run, however deep, before any of it runs."""

from __future__ import annotations

import msgspec

from ..errors import UnjudgeableLineError
from .cursor import Shell, check_characters, check_depth
from .grammar import Grammar
from .sink import DYNAMIC, LinePart, Sink


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """What a line would run: `parts`, and more that nobody can see, where `dynamic` says why."""

    parts: tuple[LinePart, ...] = ()
    dynamic: str | None = None


def read_commands(line: str, shell: Shell = "bash") -> Commands:
    """What a command line would run, found without running it.

    Args:
        line: the text.
        shell: what reads it: `bash`, or `sh`, which may be dash or bash; where those differ, it is dynamic.
    """
    try:
        parts = parse_line(line, shell)
    except UnjudgeableLineError as error:
        return Commands(dynamic=str(error))
    return Commands(parts=tuple(parts), dynamic=next((part.reason for part in parts if part.name == DYNAMIC), None))


def parse_line(line: str, shell: Shell = "bash") -> list[LinePart]:
    """Every part of a command line, in the order of the text, those of nested lines included.

    Raises:
        UnjudgeableLineError: the line cannot be taken apart with certainty, so it must not run.
    """
    parts: list[LinePart] = []
    try:
        _read(line, shell, parts, depth=0)
    except RecursionError:
        raise UnjudgeableLineError("the command line is nested too deep") from None
    if not parts:
        raise UnjudgeableLineError("the command line holds no command")
    return parts


def _read(line: str, shell: Shell, parts: list[LinePart], depth: int) -> None:
    """Read one line; those that its commands are given are read one deeper."""
    check_depth(depth)
    check_characters(line)
    sink = Sink(parts, shell, lambda nested, its: _read(nested, its, parts, depth + 1))
    Grammar(line, shell, sink, depth).read()
