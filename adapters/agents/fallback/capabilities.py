"""What several adapters can do, whichever of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from proctor.policies.stream.calls import Capabilities
from proctor.policies.stream.tools import Tool
from proctor.supervisor.errors import UsageError

T = TypeVar("T")
_GATES: tuple[Any, ...] = ("none", "some", "all")
_USAGES: tuple[Any, ...] = ("none", "at_end", "per_turn")


def weakest(each: Sequence[Capabilities]) -> Capabilities:
    """What all of them can do: the least of each capability. Raises UsageError if one tool name means two things."""
    tables = [one.tools for one in each]
    names = {tuple(sorted(tool.name for tool in one.table)) for one in each}
    return Capabilities(
        gate=min((one.gate for one in each), key=_GATES.index),
        rewrite=all(one.rewrite for one in each),
        deny_ends_turn=any(one.deny_ends_turn for one in each),
        usage=min((one.usage for one in each), key=_USAGES.index),
        reports_cost=all(one.reports_cost for one in each),
        cancel_kills_children=all(one.cancel_kills_children for one in each),
        narrow=all(one.narrow for one in each),
        compiles=tuple(part for part in each[0].compiles if all(part in one.compiles for one in each)),
        tools=None if None in tables else _tools(each),
        other_tools=len(names) > 1 or any(one.other_tools for one in each),
        elsewhere=frozenset.intersection(*(one.elsewhere for one in each)),
        model=_same([one.model for one in each]),
        workspace=_same([one.workspace for one in each]),
        home=_same([one.home for one in each]),
        shell=_same([one.shell for one in each]),
    )


def _same(values: Sequence[T]) -> T | None:
    return values[0] if all(value == values[0] for value in values) else None


def _tools(each: Sequence[Capabilities]) -> tuple[Tool, ...]:
    """The tools of all; one that two clients have has the inputs of both."""
    found: dict[str, Tool] = {}
    for tool in (tool for one in each for tool in one.table):
        name = tool.name.casefold()
        other = found.get(name)
        if other is None or other == tool:
            found[name] = tool
        elif (other.acts, other.acts_where) != (tool.acts, tool.acts_where):
            raise UsageError(f"two of these agents have a tool `{tool.name}` and mean different things by it")
        else:
            found[name] = _both(other, tool)
    return tuple(found.values())


def _both(one: Tool, other: Tool) -> Tool:
    inputs = {
        key: tuple(dict.fromkeys((*one.inputs.get(key, (f"$.{key}",)), *other.inputs.get(key, (f"$.{key}",)))))
        for key in {**one.inputs, **other.inputs}
    }
    return msgspec.structs.replace(
        one,
        inputs=inputs,
        synonyms=tuple(dict.fromkeys((*one.synonyms, *other.synonyms))),
        takes=tuple(dict.fromkeys((*one.takes, *other.takes))),
        unclear=tuple(dict.fromkeys((*one.unclear, *other.unclear))),
        inferred=one.inferred or other.inferred,
    )
