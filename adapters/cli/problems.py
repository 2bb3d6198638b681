"""Problems in a policy text: file, line, column, the line itself and a caret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unicodedata import east_asian_width

from proctor.adapters.kit.values.printable import printable
from proctor.policies.errors import Problem

_WIDEST = 100
"""A source line is shown up to so many characters around the place."""


def problem_text(problems: Sequence[Problem]) -> str:
    """All problems, in the order of the text, and how many there are."""
    blocks = ["\n".join(_lines(problem)) for problem in problems]
    if len(blocks) > 1:
        blocks.append(f"{len(blocks)} problems")
    return "\n".join(blocks)


def _lines(problem: Problem) -> Iterator[str]:
    place = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part)
    where = f" at `{problem.path}`" if problem.path else ""
    yield printable(f"{place + ': ' if place else ''}error: {problem.message}{where}")
    if problem.source.strip() and problem.column:
        yield from _marked(problem.source.rstrip("\r\n"), problem.line, problem.column - 1)
    if problem.suggestion:
        yield f"  {printable(problem.suggestion)}"


def _marked(source: str, number: int, at: int) -> Iterator[str]:
    start = max(0, at - _WIDEST // 2) if len(source) > _WIDEST else 0
    shown = "".join(c if c.isprintable() else " " for c in source[start : start + _WIDEST])  # one for one: the caret
    margin = f"{number:>5} | "
    yield margin + shown
    before = sum(2 if east_asian_width(c) in "WF" else 1 for c in shown[: at - start])
    yield " " * (len(margin) - 2) + "| " + " " * before + "^"
