"""Operands of conditions: plain values, `{arg: path}` and `{output_of: tools, path: path}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..values import paths, places, regexes
from ..values.complaints import Complaint
from ..values.equality import is_number, scalars_in
from ..values.globs import glob_problems
from .operators import LENGTHS, MEMBERSHIPS, ORDERINGS

Expand: TypeAlias = Callable[[str | Sequence[str]], tuple[str, ...]]
"""Names with aliases replaced by the tools they stand for."""


def as_written(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names where there are no aliases."""
    return (names,) if isinstance(names, str) else tuple(names)


class OutputRef(NamedTuple):
    """What earlier successful calls of `tools` returned at `path`."""

    tools: tuple[str, ...]
    path: str


def is_argument(operand: Any) -> bool:
    """Whether an operand is `{arg: path}`."""
    return isinstance(operand, dict) and operand.keys() == {"arg"}


def is_output(operand: Any) -> bool:
    """Whether an operand is `{output_of: tools, path: path}`."""
    return isinstance(operand, dict) and "output_of" in operand


def output_ref(operand: dict[str, Any], expand: Expand = as_written) -> OutputRef:
    """The reference an `{output_of: ...}` operand makes, aliases replaced."""
    return OutputRef(expand(operand["output_of"]), operand.get("path", "$"))


def operand_problems(name: str, operand: Any) -> Iterator[Complaint]:
    if is_argument(operand):
        yield from _argument_problems(name, operand["arg"])
    elif is_output(operand):
        yield from _output_problems(name, operand)
    elif name == "regex":
        yield from regexes.problems(operand, ("regex",))
    elif name == "within":
        yield from _directory_problems(operand)
    elif name == "runs":
        yield from _command_problems(operand)
    elif name in MEMBERSHIPS and not isinstance(operand, list | tuple):
        yield (name,), f"`{name}` takes a list"
    elif name in ORDERINGS and not (is_number(operand) or isinstance(operand, str)):
        yield (name,), f"`{name}` compares with a number or a text"
    elif name in LENGTHS and not (type(operand) is int and operand >= 0):
        yield (name,), f"`{name}` takes a whole number, 0 or more"
    elif name == "type" and not operand:
        yield (name,), "`type` names no type"
    elif any(type(s) is float and not is_number(s) for s in scalars_in(operand)):
        yield (name,), f"`{name}`: not a number"


def _directory_problems(directory: str) -> Iterator[Complaint]:
    if places.place_of(directory) is None:
        yield ("within",), f"`within` takes a directory, as in `.`, `/srv/data` or `~/work`, not `{directory}`"


_SHELLS_OWN = frozenset("*?;&|<>()`$\n")
"""No command's name: what a line has between commands."""
_STANDARD = re.compile(r"\s*/(usr/)?(local/)?s?bin/")


def _command_problems(commands: str | Sequence[str]) -> Iterator[Complaint]:
    named = [commands] if isinstance(commands, str) else commands
    if not named:
        yield ("runs",), "`runs` names no command"
    for command in named:
        if not command.split() or set(command) & _SHELLS_OWN:
            yield ("runs",), f"`runs` takes commands by their first words, as in `git push`, not `{command}`"
        elif _STANDARD.match(command):
            name = command.split()[0].rpartition("/")[2]
            yield ("runs",), f"`runs` takes a command by its name, wherever it stands: `{name}`, not `{command}`"


def _argument_problems(name: str, path: Any) -> Iterator[Complaint]:
    if name in ("regex", "exists", "type", "within", "runs"):
        yield (name,), f"`{name}` takes no `{{arg: ...}}`"
    elif not isinstance(path, str):
        yield (name, "arg"), "`arg` takes a path, as in `{arg: $.order_id}`"
    else:
        yield from paths.problems(path, (name, "arg"))


def _output_problems(name: str, operand: dict[str, Any]) -> Iterator[Complaint]:
    if name not in MEMBERSHIPS:
        yield (name,), "`output_of` goes with `in`, `not_in` and `set_equals` only"
    for key in operand.keys() - {"output_of", "path"}:
        yield (name, str(key)), f"unknown key `{key}`: `output_of` goes with `path`"
    tools = operand["output_of"]
    if not isinstance(tools, str | list | tuple) or not tools:
        yield (name, "output_of"), "`output_of` takes the names of tools"
    else:
        for n, tool in enumerate([tools] if isinstance(tools, str) else tools):
            yield from glob_problems(tool, (name, "output_of", n))
    path = operand.get("path", "$")
    if not isinstance(path, str):
        yield (name, "path"), "`path` takes a path, as in `$.id`"
    else:
        yield from paths.problems(path, (name, "path"))
