"""The floor: the rules of `workload.ordinary` written by hand as closures behind a dict by tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from .workload import MANY

_canonical = msgspec.json.Encoder(order="deterministic").encode


class Closures(NamedTuple):
    """What to ask, to spend and to note, by tool."""

    allowed: dict[str, list[Callable[[], bool]]]
    started: dict[str, list[Callable[[], None]]]
    completed: dict[str, list[Callable[[], None]]]


def closures(rules: int) -> Closures:
    """Fresh state of so many rules."""
    read_before_edit, read_is_over = _before()
    allowed, completed = {"edit": [read_before_edit]}, {"read": [read_is_over]}
    started: dict[str, list[Callable[[], None]]] = {}
    counts = [["read", "edit"], *([f"tool_{n}"] for n in range(rules - 2))]
    for tools in counts:
        within, one_more = _at_most(MANY)
        for tool in tools:
            allowed.setdefault(tool, []).append(within)
            started.setdefault(tool, []).append(one_more)
    return Closures(allowed, started, completed)


def _before() -> tuple[Callable[[], bool], Callable[[], None]]:
    satisfied = False

    def allowed() -> bool:
        return satisfied

    def completed() -> None:
        nonlocal satisfied
        satisfied = True

    return allowed, completed


def _at_most(most: int) -> tuple[Callable[[], bool], Callable[[], None]]:
    used = 0

    def allowed() -> bool:
        return used < most

    def started() -> None:
        nonlocal used
        used += 1

    return allowed, started


class BareRules:
    """Rule state only: the caller promises that each call comes once, starts and completes."""

    def __init__(self, rules: int) -> None:
        self._allowed, self._started, self._completed = closures(rules)

    def started(self, name: str) -> bool:
        """Judge a call and spend it; False when a rule objects."""
        for allowed in self._allowed.get(name, ()):
            if not allowed():
                return False
        for spend in self._started.get(name, ()):
            spend()
        return True

    def completed(self, name: str) -> None:
        """Note that a call succeeded."""
        for note in self._completed.get(name, ()):
            note()


class KnownCalls:
    """The same with a monitor's duties: an id counts once, is refused with another input, and is known
    after its call has ended.
    """

    def __init__(self, rules: int) -> None:
        self._rules = BareRules(rules)
        self._open: dict[str, tuple[str, dict[str, Any]]] = {}
        self._finished: dict[str, bytes] = {}

    def started(self, id: str, name: str, input: dict[str, Any]) -> bool:
        """Judge a call and spend it once."""
        call = self._open.get(id)
        if call is not None:
            return call == (name, input)
        mark = self._finished.get(id)
        if mark is not None:
            return mark == _mark(name, input)
        if not self._rules.started(name):
            return False
        self._open[id] = name, input
        return True

    def completed(self, id: str) -> None:
        """Note that a call succeeded; an id that is not open changes nothing."""
        call = self._open.pop(id, None)
        if call is not None:
            self._rules.completed(call[0])
            self._finished[id] = _mark(*call)


def _mark(name: str, input: dict[str, Any]) -> bytes:
    return name.encode() + _canonical(input)
