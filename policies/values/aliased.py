"""Objects whose members are also found by other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Aliased(dict[str, Any]):
    """An object as it came; paths also find the values of `also`, by the names there.

    A name that the object has itself gives its own value and those.
    """

    __slots__ = ("also",)

    also: Mapping[str, list[Any]]


def aliased(members: Mapping[str, Any], also: Mapping[str, list[Any]]) -> Mapping[str, Any]:
    """An object whose values are also found by the names of `also`; itself where there are none."""
    if not also:
        return members
    made = Aliased(members)
    made.also = also
    return made


def also_of(value: Any) -> Mapping[str, list[Any]]:
    """What is also found in a value."""
    return value.also if type(value) is Aliased else {}


class _Unclear(str):
    __slots__ = ()


UNCLEAR = _Unclear("(not known: the tool takes more than is understood)")
"""Stands among values of which nobody knows all: no condition permits it, every other holds for it."""


def has_unclear(values: Iterable[Any]) -> bool:
    """Whether there may be more values than these."""
    return any(value is UNCLEAR for value in values)
