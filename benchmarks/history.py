"""The cost of one event does not grow with the session; a rescan's does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.policies import CompiledPolicy, Monitor

from .rows import Row, Size
from .timing import Prepared, interleaved
from .workload import MANY, Step, keyed, ordinary, steps

LENGTHS = (10, 1_000, 100_000)
RULES = 10
AT_ONCE = 10_000
"""Calls that are made ready at once."""


def run(size: Size) -> list[Row]:
    """Microseconds an event after 10, 1,000 and 100,000 calls."""
    lengths = LENGTHS[: size.of(3, 2)]
    batch = size.of(200, 20)
    us = _measured(lengths, batch, size.of(25, 2))
    rows = [Row(f"{kind} rules, after {calls:,} calls, an event", us[kind, calls], "us") for kind, calls in us]
    for kind, bound in (("ordinary", 1.2), ("resource-keyed", 2.0)):
        ratio = us[kind, lengths[-1]] / us[kind, lengths[0]]
        rows.append(Row(f"{kind} rules, after {lengths[-1]:,} / {lengths[0]} calls", ratio, "x", bound))
    rescans = (Row(f"naive rescan after {calls:,} calls, a call", _rescan(calls), "us") for calls in lengths)
    return [*rows, *rescans]


def by_history() -> dict[str, list[tuple[int, float]]]:
    """Microseconds against the length of the session, for the plot; the rescan would take minutes for the longest."""
    lengths = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
    curves: dict[str, list[tuple[int, float]]] = {}
    for (kind, calls), us in _measured(lengths, 200, 10).items():
        curves.setdefault(f"{kind} rules, an event", []).append((calls, us))
    curves["naive rescan, a call"] = [(calls, _rescan(calls)) for calls in lengths[:-1]]
    return curves


def _measured(lengths: Sequence[int], batch: int, rounds: int) -> dict[tuple[str, int], float]:
    policies = {"ordinary": ordinary(RULES), "resource-keyed": keyed(RULES)}
    sessions = {
        f"{kind} {calls}": _Session(policy, calls, batch) for kind, policy in policies.items() for calls in lengths
    }
    least = interleaved({name: session.prepared for name, session in sessions.items()}, rounds=rounds)
    return {(kind, calls): least[f"{kind} {calls}"] / batch / 2 * 1e6 for kind in policies for calls in lengths}


class _Session:
    """Goes on with one long session; a short one begins anew each time, or it would not stay short."""

    def __init__(self, policy: CompiledPolicy, calls: int, batch: int) -> None:
        self._policy = policy
        self._batch = batch
        self._length = calls
        self._long = self._begun(calls) if calls > 10 * batch else None
        self._next = calls

    def _begun(self, calls: int) -> Monitor:
        monitor = self._policy.monitor()
        for first in range(0, calls, AT_ONCE):
            _observe(monitor, steps(first, min(AT_ONCE, calls - first)))
        return monitor

    def prepared(self) -> Prepared:
        """The next calls of the session."""
        monitor = self._long or self._begun(self._length)
        first = self._next
        if self._long:
            self._next += self._batch
        session = steps(first, self._batch)
        return lambda: _observe(monitor, session)


def _observe(monitor: Monitor, session: Sequence[Step]) -> None:
    observe = monitor.observe
    for step in session:
        observe(step.started)
        observe(step.completed)


def _rescan(calls: int) -> float:
    """Microseconds of the same two rules asked of the whole list of earlier calls."""
    past: list[tuple[str, str, Any]] = [(step.call.name, step.call.id, step.call.input) for step in steps(0, calls)]

    again = max(1, 10_000 // calls)

    def work() -> None:
        for _ in range(again):
            read = any(name == "read" for name, _, _ in reversed(past))
            count = sum(1 for name, _, _ in past if name in ("read", "edit"))
            if not read or count > MANY or any(id == "call-x" for _, id, _ in past):
                raise AssertionError("a rule objects")

    least = interleaved({"rescan": lambda: work}, rounds=5)
    return least["rescan"] / again * 1e6
