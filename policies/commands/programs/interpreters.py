"""Interpreters: of a file they run what their name says; code among their words is not read."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ..words import Word
from .wrappers import UNKNOWN, Nested


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """Options that an interpreter of files may be given; all else is code, or asks for it on its input."""

    alone: str = ""
    taking: str = ""
    module: str = ""
    tells: tuple[str, ...] = ("--version", "-v", "--help", "-h")


INTERPRETERS = (
    (
        re.compile(r"(python|pypy)[\d.]*"),
        Interpreter(
            alone="-B -E -I -O -OO -P -S -b -d -q -s -u",
            taking="-W -X",
            module="-m",
            tells=("--version", "-V", "--help"),
        ),
    ),
    (
        re.compile(r"node(js)?|tsx|ts-node"),
        Interpreter(alone="--test --watch --check --no-warnings --trace-warnings"),
    ),
    (re.compile(r"perl[\d.]*"), Interpreter(alone="-w -t -T")),
    (re.compile(r"ruby[\d.]*"), Interpreter(alone="-w")),
    (re.compile(r"php[\d.]*"), Interpreter(alone="-l -n")),
)
_CODE_MODULES = ("timeit", "pdb", "cProfile", "profile", "trace", "runpy", "code", "IPython", "ptpython", "bpython")


def interpreted(interpreter: Interpreter, arguments: Sequence[Word]) -> list[Nested]:
    """What it runs besides itself."""
    if len(arguments) == 1 and arguments[0].text in interpreter.tells:
        return []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.text is None:
            return UNKNOWN if word.could_be_option() or not word.single else []
        if interpreter.module and word.text == interpreter.module:
            return _module(rest)
        if word.text in interpreter.taking.split():
            if not rest or not rest.pop(0).single:
                return UNKNOWN
        elif word.text.startswith("-"):
            if word.text not in interpreter.alone.split():
                return UNKNOWN
        else:
            return [] if word.text else UNKNOWN
    return UNKNOWN


def _module(rest: Sequence[Word]) -> list[Nested]:
    if not rest or rest[0].text is None or rest[0].text in _CODE_MODULES:
        return UNKNOWN
    return [Nested(words=tuple(rest))]
