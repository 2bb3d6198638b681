"""Interpreters of files: what they run by their options, their modules and their input.

A script is judged by its name, and what it is given are its words. Code in words, or on the input, nobody can see.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import msgspec

from .words import split
from .wrappers import UNKNOWN, Nested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .words import Word


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """Options that an interpreter of files may be given; all else is code, or asks for it on its input. Words of its
    own in place of a file are `reading` commands.
    """

    alone: str = ""
    taking: str = ""
    module: str = ""
    reading: tuple[str, ...] = ()
    tells: tuple[str, ...] = ("--version", "-v", "--help", "-h")


_INTERPRETERS = (
    (
        re.compile(r"(python|pypy)w?(-?\d[\w.-]*|-dbg)?"),
        Interpreter(
            alone="-B -E -I -O -OO -P -S -b -d -q -s -u",
            taking="-W -X",
            module="-m",
            tells=("--version", "-V", "--help"),
        ),
    ),
    (
        re.compile(r"node(js)?(-?\d[\w.]*)?|tsx|ts-node"),
        Interpreter(alone="--test --watch --check --no-warnings --trace-warnings", reading=("inspect", "debug")),
    ),
    (re.compile(r"perl(-?\d[\w.-]*)?"), Interpreter(alone="-w -t -T")),
    (re.compile(r"ruby(-?\d[\w.-]*)?"), Interpreter(alone="-w")),
    (re.compile(r"php(-?\d[\w.-]*|-cli)?"), Interpreter(alone="-l -n")),
)


_MODULES = split("""
    py_compile compileall json.tool unittest unittest.__main__ venv http.server zipfile tarfile gzip
    ensurepip tabnanny tokenize pydoc calendar base64 site sysconfig platform pip json
""")
"""Of Python's own modules, those that run nothing which their words or input name."""


_CODE_MODULES = split("IPython ptpython bpython xonsh ipykernel jupyter ipdb pudb debugpy kernprof hy")


ON_INPUT = re.compile(r"(.*/)?(stdin|[0-9]+)|/+(dev|proc)/.*|.*/(dev|proc|fd)/.*", re.DOTALL)
"""Files that may be what an interpreter is fed."""


def interpreter_of(name: str) -> Interpreter | None:
    """How the interpreter of this name is read; None where it is none."""
    return next((interpreter for pattern, interpreter in _INTERPRETERS if pattern.fullmatch(name)), None)


def interpreted(interpreter: Interpreter, arguments: Sequence[Word]) -> list[Nested]:
    """The commands it runs besides itself."""
    if len(arguments) == 1 and arguments[0].text in interpreter.tells:
        return []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.text is None:
            return UNKNOWN
        if interpreter.module and word.text == interpreter.module:
            return _module(rest)
        if word.text in interpreter.taking.split():
            if not rest or not rest.pop(0).single:
                return UNKNOWN
        elif word.text.startswith("-"):
            if word.text not in interpreter.alone.split():
                return UNKNOWN
        else:
            return _script(interpreter, word.text, rest)
    return UNKNOWN


_CONSOLES = {
    "manage.py": "shell|shell_plus|dbshell|runscript",
    "artisan": "tinker|db",
    "rails": "runner|r|console|c|dbconsole|db",
    "console": "dbal:run-sql|doctrine:query:.*",
}
"""Scripts that frameworks bring, with the words by which they are given code."""


def _script(interpreter: Interpreter, file: str, rest: Sequence[Word]) -> list[Nested]:
    if not file or file in interpreter.reading or ON_INPUT.fullmatch(file):
        return UNKNOWN
    console = _CONSOLES.get(os.path.basename(file))
    verb = next((word for word in rest if not (word.text or "").startswith("-")), None)
    if console is None or verb is None:
        return []
    return UNKNOWN if verb.text is None or re.fullmatch(console, verb.text) else []


def _module(rest: Sequence[Word]) -> list[Nested]:
    if not rest or rest[0].text is None:
        return UNKNOWN
    module = rest[0].text
    if module.partition(".")[0] in sys.stdlib_module_names:
        return [Nested(words=tuple(rest))] if module in _MODULES else UNKNOWN
    return UNKNOWN if module.partition(".")[0] in _CODE_MODULES else [Nested(words=tuple(rest))]
