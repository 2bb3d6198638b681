"""Conditions on JSON, as they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, UnsetType, field

from ..values import paths, regexes
from ..values.globs import glob_problems
from ..values.json_values import is_number, number_of, order, scalars_in
from ..values.model_base import Issue, Positive, Record
from .operators import ALL_OPERATORS, LENGTHS, MEMBERSHIPS, ORDERINGS

Expand: TypeAlias = Callable[[str | Sequence[str]], tuple[str, ...]]
"""Names with aliases replaced by the tools they stand for."""


def as_written(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names where there are no aliases."""
    return (names,) if isinstance(names, str) else tuple(names)


class OutputRef(NamedTuple):
    """Outputs that earlier successful calls of `tools` returned at `path`."""

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


def operand_problems(name: str, operand: Any) -> Iterator[Issue]:
    """What is wrong with an operator's operand, each with its place."""
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
    elif problem := _value_problem(name, operand):
        yield (name,), problem


def _value_problem(name: str, operand: Any) -> str:
    if name in MEMBERSHIPS and not isinstance(operand, list | tuple):
        return f"`{name}` takes a list"
    if name in ORDERINGS and not (is_number(operand) or isinstance(operand, str)):
        return f"`{name}` compares with a number or a text"
    if name in ORDERINGS and AMOUNT.fullmatch(str(operand)) and number_of(operand, loose=True) is None:
        return f"`{name}` compares numbers with a number alone, as in 5000: `{operand}` is a text"
    if name in LENGTHS and not (type(operand) is int and operand >= 0):
        return f"`{name}` takes a whole number, 0 or more"
    if name == "type" and not operand:
        return "`type` names no type"
    if name == "contains" and operand == "":
        return "`contains` is empty: every text has that in it"
    if any(map(_refers, [operand, *(operand if isinstance(operand, list | tuple) else ())])):
        return f"`{name}` takes one reference alone, as in `{name}: {{arg: $.ids[*]}}`; list others in `any_of`"
    if any(type(s) is float and not is_number(s) for s in scalars_in(operand)):
        return f"`{name}`: not a number"
    return ""


AMOUNT = re.compile(r"[-+]*\s*[$€£¥]?\s*\d[\d,_' ]*(\.\d+)?\s*([a-z%€£¥$]{0,3})", re.IGNORECASE)
"""What looks like a number, with a unit or with marks between its digits."""


def _refers(value: Any) -> bool:
    """Whether an object looks meant as a reference."""
    return isinstance(value, dict) and ("output_of" in value or str(value.get("arg")).startswith("$"))


def _directory_problems(directory: str) -> Iterator[Issue]:
    if "*" in directory or "?" in directory:
        yield ("within",), f"`within` means all that is in a directory: leave out `*` and `?` in `{directory}`"
    elif paths.place_of(directory) is None:
        yield ("within",), f"`within` takes a directory, as in `.`, `/srv/data` or `~/work`, not `{directory}`"


SHELLS_OWN = frozenset("*?;&|<>()`$\n\"'\\")
"""No command's name: what a line has between commands, and what quotes a word."""

_SEVERAL = re.compile(r",(\s|$)|^\s*(\[\S|[^\s,]*,|\w+=)")
"""Several commands in one text, a list in quotes, a variable that is set for a command."""

_STANDARD = re.compile(r"\s*/(usr/)?(local/)?s?bin/")


def _command_problems(commands: str | Sequence[str]) -> Iterator[Issue]:
    named = [commands] if isinstance(commands, str) else commands
    if not named:
        yield ("runs",), "`runs` names no command"
    for command in named:
        if not command.split() or set(command) & SHELLS_OWN or command.lstrip().startswith("^"):
            yield ("runs",), f"`runs` takes commands by their first words, as in `git push`, not `{command}`"
        elif _SEVERAL.search(command):
            yield ("runs",), f"`runs` lists commands, as in `[rm, git push]`, without variables, not `{command}`"
        elif _STANDARD.match(command):
            name = command.split()[0].rpartition("/")[2]
            yield ("runs",), f"`runs` takes a command by its name, wherever it stands: `{name}`, not `{command}`"


def _argument_problems(name: str, path: Any) -> Iterator[Issue]:
    if name in ("regex", "exists", "type", "within", "runs"):
        yield (name,), f"`{name}` takes no `{{arg: ...}}`"
    elif not isinstance(path, str):
        yield (name, "arg"), "`arg` takes a path, as in `{arg: $.order_id}`"
    else:
        yield from paths.problems(path, (name, "arg"))


def _output_problems(name: str, operand: dict[str, Any]) -> Iterator[Issue]:
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


_BOUNDS = (("gt", "lt"), ("gt", "lte"), ("gte", "lt"), ("gte", "lte"), ("length_gte", "length_lte"))


def crossed_bounds(given: Mapping[str, Any]) -> Iterator[Issue]:
    """Bounds of one value between which there is none."""
    for low, high in _BOUNDS:
        if low in given and high in given:
            found = order(given[low], given[high], loose=True)
            if found == 1 or (found == 0 and not (low.endswith("e") and high.endswith("e"))):
                yield (high,), f"no value meets both `{low}: {given[low]}` and `{high}: {given[high]}`"


JsonType: TypeAlias = Literal["string", "number", "integer", "boolean", "null", "array", "object"]


class Condition(Record, frozen=True):
    """`{path: $.amount, lte: 5000}`: all operators given must hold; or `{any_of: [...]}`, or `{not: [...]}`.

    An operand may be `{arg: path}` (of the same call) or `{output_of: [tools], path: path}` (what
    earlier calls returned; with `in`, `not_in` and `set_equals`).

    Attributes:
        path: Where the value is: `$.amount`, `$.to[*]`.
        any_of: One of these conditions is enough; stands alone.
        not_: Not all of these hold; stands alone.
        equals: The value is this one.
        not_equals: It is another.
        in_: It is one of these.
        not_in: It is none of these.
        exists: There is a value, or there is none.
        type: It is of this JSON type, or of one of these.
        gt: It is more.
        gte: It is as much or more.
        lt: It is less.
        lte: It is as much or less.
        regex: The text matches somewhere.
        contains: The text has this in it; the list has this element.
        length: The text, list or object has this length.
        length_gte: It has this length or more.
        length_lte: It has this length or less.
        set_equals: The list has these elements, in any order.
        within: The path is this directory, or inside it.
        runs: The command line would run one of these.
        at_least: How many values must meet it; by default all of them for an allow, one for a deny.
    """

    path: str | UnsetType = UNSET
    any_of: tuple[Condition, ...] | UnsetType = UNSET
    not_: tuple[Condition, ...] | UnsetType = field(default=UNSET, name="not")
    equals: Any = UNSET
    not_equals: Any = UNSET
    in_: Any = field(default=UNSET, name="in")
    not_in: Any = UNSET
    exists: bool | UnsetType = UNSET
    type: JsonType | tuple[JsonType, ...] | UnsetType = UNSET
    gt: Any = UNSET
    gte: Any = UNSET
    lt: Any = UNSET
    lte: Any = UNSET
    regex: str | UnsetType = UNSET
    contains: Any = UNSET
    length: Any = UNSET
    length_gte: Any = UNSET
    length_lte: Any = UNSET
    set_equals: Any = UNSET
    within: str | UnsetType = UNSET
    runs: str | tuple[str, ...] | UnsetType = UNSET
    at_least: Positive | UnsetType = UNSET

    def operators(self) -> Iterator[tuple[str, Any]]:
        """The operators given, as (written name, operand)."""
        for name in ALL_OPERATORS:
            operand = getattr(self, "in_" if name == "in" else name)
            if operand is not UNSET:
                yield name, operand

    def problems(self) -> Iterator[Issue]:
        given = list(self.operators())
        if self.any_of is not UNSET or self.not_ is not UNSET:
            yield from self._group_problems(given)
            return
        if self.path is UNSET:
            yield (), "a condition needs a `path`"
        else:
            yield from paths.problems(self.path, ("path",))
        if not given:
            yield (), f"a condition needs an operator: one of {', '.join(ALL_OPERATORS)}"
        for name, operand in given:
            yield from operand_problems(name, operand)
        yield from crossed_bounds(dict(given))

    def _group_problems(self, given: Sequence[tuple[str, Any]]) -> Iterator[Issue]:
        name, inner = ("any_of", self.any_of) if self.any_of is not UNSET else ("not", self.not_)
        if self.any_of is not UNSET and self.not_ is not UNSET:
            yield (), "`any_of` and `not` are two conditions: write one inside the other, or both in the list"
        if self.path is not UNSET or given or self.at_least is not UNSET:
            yield (), f"`{name}` must be alone: put path and operators inside its list"
        if not inner:
            yield (name,), f"`{name}` lists no condition"

    @property
    def inner(self) -> tuple[Condition, ...]:
        """The conditions inside `any_of` or `not`."""
        return tuple(c for group in (self.any_of, self.not_) if group is not UNSET for c in group)


def all_in(conditions: Sequence[Condition]) -> Iterator[Condition]:
    """The conditions, and those inside them."""
    for condition in conditions:
        yield condition
        yield from all_in(condition.inner)


def paths_in(conditions: Sequence[Condition]) -> Iterator[str]:
    return (condition.path for condition in all_in(conditions) if condition.path is not UNSET)


def has_references(conditions: Sequence[Condition]) -> bool:
    """Whether any operand refers to the call being evaluated or to outputs."""
    return any(is_argument(operand) or is_output(operand) for c in all_in(conditions) for _, operand in c.operators())


def has_arguments(conditions: Sequence[Condition]) -> bool:
    """Whether any operand is of the call being evaluated."""
    return any(is_argument(operand) for c in all_in(conditions) for _, operand in c.operators())


def when_problems(conditions: Sequence[Condition]) -> Iterator[Issue]:
    """The problems in a `when`: it is settled before there is a call, so it cannot refer to one."""
    if has_references(conditions):
        yield ("when",), "`when` is settled when the run starts: no `arg` and no `output_of` here"
