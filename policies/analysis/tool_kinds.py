"""The calls of an agent's tools by what they do: portable names, acts that an input decides, places of inputs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..events.run_context import needed
from ..language.facts import CallNames
from ..values.paths import compile_path, path_steps
from .values import placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..events.run_context import Tool
    from ..language.conditions import Condition
    from ..language.facts import NamingKind, ToolTable

MOST_ACTS = 5
"""How many acts of one tool may be done independently of each other."""
MOST_PLACES = 4
"""At how many places of one input it is tried."""


class ToolKinds:
    """The kinds of calls of each tool; of a tool that is not in the table there is one."""

    def __init__(self, table: ToolTable) -> None:
        self._table = table
        self._kinds: dict[str, dict[NamingKind, dict[str, Any]]] = {}

    def _tool(self, name: str) -> Tool | None:
        return self._table.tools.get(name.casefold()) if self._table else None

    def names(self, name: str, kind: NamingKind = "") -> CallNames:
        """The names of a tool's calls of a kind; if none is given, of those that do all that they may."""
        return self._table.names(kind or self._table.kind(name, {})) if self._table else CallNames((name,))

    def kinds(self, name: str) -> dict[NamingKind, dict[str, Any]]:
        """The kinds of a tool's calls, with an input of each."""
        if name not in self._kinds:
            found = self._kinds[name] = {}
            for each in self._inputs(self._tool(name)):
                found.setdefault(self._table.kind(name, each) if self._table else name, each)
        return self._kinds[name]

    def _inputs(self, tool: Tool | None) -> list[dict[str, Any]]:
        """Inputs that do each set of a tool's acts, each also with all that is needed to understand it."""
        inputs: list[dict[str, Any]] = [{}]
        if tool is None:
            return inputs
        marks = [paths[0] for paths in tool.acts_where.values()][:MOST_ACTS]
        marks.sort(key=_is_item)  # an item is added to a list
        for size in range(1, len(marks) + 1):
            for some in itertools.combinations(marks, size):
                document: Any = {}
                for path in some:
                    document = placed(document, f"{path}.zq" if _is_item(path) else path, "zq")
                inputs.append(document)
        for key in dict.fromkeys(key for act in tool.every_act for key in needed(act)):
            places = (*tool.inputs.get(key, ()), f"$.{key}")
            inputs += [placed(document, place, "zq") for document in inputs for place in places[:MOST_PLACES]]
        return inputs

    def missing(self, name: str) -> Iterator[NamingKind]:
        """The kinds that a tool's acts may make together of which there is no input."""
        tool = self._tool(name)
        acts = tuple(tool.acts_where) if tool is not None else ()
        for size in range(1, len(acts) + 1):
            for some in itertools.combinations(acts, size):
                if (kind := (name, *some)) not in self.kinds(name):
                    yield kind

    def plainest(self, name: str) -> dict[str, Any]:
        """The shortest input of a tool that is understood."""
        kinds = self.kinds(name)
        return kinds[min(kinds, key=lambda kind: (self.names(name, kind).in_part, len(str(kinds[kind]))))]

    def places(self, name: str, path: str) -> Iterator[str]:
        """Where else a tool's own input has the values of a portable one."""
        tool = self._tool(name)
        for key, paths in tool.inputs.items() if tool is not None else ():
            if path == f"$.{key}" or path.startswith((f"$.{key}.", f"$.{key}[")):
                yield from (f"{place}{path.removeprefix(f'$.{key}')}" for place in paths if place != f"$.{key}")

    def rules_out(self, name: str, where: Sequence[Condition], input: dict[str, Any]) -> bool:
        """Whether conditions want none of an act that an input does."""
        tool = self._tool(name)
        marks = {path for paths in tool.acts_where.values() for path in paths[:1]} if tool is not None else set()
        return any(c.path in marks and c.exists is False and bool(compile_path(c.path)(input)) for c in where)


def _is_item(path: str) -> bool:
    return path_steps(path)[-1][0] == "filter"
