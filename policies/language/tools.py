"""The tools that a rule speaks of, as they are written: names, conditions on the input, more names for calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from ..values import paths, regexes
from ..values.complaints import Complaint, Where
from ..values.globs import glob_problems
from .conditions import Condition
from .record import Name, Record


class ToolWhere(Record, frozen=True):
    """A tool, or several, whose input meets the conditions.

    Attributes:
        tool: The tool's name or pattern, or several.
        where: Conditions on the input; all of them must hold.
    """

    tool: Name | Sequence[Name]
    where: Sequence[Condition] = ()

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        return selector_problems(self.tool, ("tool",))


Selector: TypeAlias = Name | ToolWhere | Sequence[Name | ToolWhere]
"""Wherever a rule names a tool: `Tool`, `[ToolA, "mcp__*"]` or `{tool: ..., where: [...]}`."""
ListedTools: TypeAlias = Sequence[Name | ToolWhere]
"""Where it lists them."""


HUMAN = "human-approval"
"""What stands for a person's approval of the judged call where a rule says what must come first."""


def is_person(item: Any) -> bool:
    """Whether an item of a selector is a person's approval and no tool."""
    return isinstance(item, str) and item.strip().casefold() == HUMAN


def person_problems(name: str, where: Where) -> Iterator[Complaint]:
    """That a person's approval stands where a tool is named, if it does."""
    if is_person(name):
        message = f"`{HUMAN}` is a person's approval, not a tool: it stands in `first` of `before` and "
        yield where, f"{message}`immediately_before`, in `prior`, and in `require {HUMAN} before TOOL`"


def selector_problems(selector: Any, where: Where, *, person: bool = False) -> Iterator[Complaint]:
    """What is wrong with the names of a selector; its records check themselves. `person`: an approval may be one."""
    if isinstance(selector, str):
        yield from glob_problems(selector, where)
        yield from person_problems(selector, where) if not person else ()
    elif isinstance(selector, tuple | list):
        if not selector:
            yield where, "names no tool"
        for n, item in enumerate(selector):
            if isinstance(item, str):
                yield from selector_problems(item, (*where, n), person=person)


class VirtualTool(Record, frozen=True):
    """One more name for a tool's call whose input matches.

    Attributes:
        tool: The tool whose calls it names.
        path: Where the text is in the input.
        match: A regular expression that it contains.
        as_: The name.
    """

    tool: Name
    path: str
    match: str
    as_: Name = msgspec.field(name="as")

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        yield from selector_problems(self.tool, ("tool",))
        yield from person_problems(self.as_, ("as",))
        yield from paths.problems(self.path, ("path",))
        yield from regexes.problems(self.match, ("match",))
