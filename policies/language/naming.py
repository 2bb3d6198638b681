"""What a call goes by: its client's name of the tool, and the portable names of what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..stream.tools import Tool
from ..values.aliased import aliased
from ..values.globs import Matcher
from ..values.paths import PathFn, compile_path

NamingKind: TypeAlias = str | tuple[str, ...]
"""What decides the names a call goes by: the tool's, or that and what the call does where this differs by input."""
KINDS_REMEMBERED = 4_096
"""How many tool names are remembered; a model may invent any number."""


class CallNames(NamedTuple):
    """What a call goes by: `own` are the client's names of its tool, `acts` the portable names of what it does."""

    own: tuple[str, ...]
    acts: tuple[str, ...] = ()

    def any(self, matches: Matcher) -> bool:
        """Whether any of them matches."""
        return any(map(matches, self.own)) or any(map(matches, self.acts))


class ToolTable:
    """A client's tools, by the names that it gives them; false where no tool is known."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.tools = {each.name.casefold(): each for each in tools}
        self._acts_where = {
            name: [(act, compile_path(path)) for act, paths in each.acts_where.items() for path in paths]
            for name, each in self.tools.items()
            if each.acts_where
        }
        self._inputs = {name: reader for name, each in self.tools.items() if (reader := _reader(each))}
        self._folded: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.tools)

    def kind(self, name: str, input: Any) -> NamingKind:
        """The kind of a call; one whose input does not tell what it does may do everything."""
        where = self._acts_where.get(self._fold(name))
        if where is None:
            return name
        acts = dict.fromkeys(act for act, values_at in where if values_at(input))
        return (name, *(acts or dict.fromkeys(act for act, _ in where)))

    def kinds(self, name: str) -> tuple[NamingKind, ...]:
        """The kinds of which each call of a tool is one, or several at once."""
        where = self._acts_where.get(self._fold(name))
        return (name,) if where is None else tuple((name, act) for act in dict.fromkeys(act for act, _ in where))

    def names(self, kind: NamingKind) -> CallNames:
        """What calls of a kind go by."""
        own, *acts = (kind,) if isinstance(kind, str) else kind
        if not self.tools:
            return CallNames((own,))
        tool = self.tools.get(self._fold(own))
        if tool is None:
            return CallNames((own,), tuple(acts))
        owns = (own, *tool.synonyms)
        folded = {self._fold(name) for name in owns}
        return CallNames(owns, tuple(act for act in dict.fromkeys((*tool.acts, *acts)) if act not in folded))

    def input(self, name: str, input: Any) -> Any:
        """A call's input, its portable inputs found by their names too."""
        reader = self._inputs.get(self._fold(name))
        return input if reader is None else reader(input)

    def _fold(self, name: str) -> str:
        folded = self._folded.get(name)
        if folded is None:
            if len(self._folded) >= KINDS_REMEMBERED:
                self._folded.clear()
            folded = self._folded[name] = name.casefold()
        return folded


def _reader(tool: Tool) -> Callable[[Any], Any] | None:
    """What finds a tool's portable inputs; None where all of them have their portable names."""
    found: dict[str, list[PathFn]] = {}
    for name, paths in tool.inputs.items():
        other = [compile_path(path) for path in paths if path not in (f"$.{name}", f"$['{name}']")]
        if other:
            found[name] = other
    return (lambda input: _with_portable(input, found)) if found else None


def _with_portable(input: Any, found: Mapping[str, list[PathFn]]) -> Any:
    if not isinstance(input, dict):
        return input
    also = {name: [value for values_at in each for value in values_at(input)] for name, each in found.items()}
    return aliased(input, {name: values for name, values in also.items() if values})


NO_TOOLS = ToolTable()
