"""Judging one event, beside rules written by hand: with 10 rules and with 1,000, early in a session and late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from proctor.policies import CompiledPolicy, Monitor

from .figures import Row, Size
from .timing import Prepared, interleaved
from .workload import MANY, RULES, Step, keyed, limited, ordinary, steps, timed

FEW, MANY_RULES = 10, 1_000


def judging(size: Size) -> list[Row]:
    """Microseconds an event, and the ratios that are bounded."""
    session = steps(0, size.of(5_000, 200))
    few, many = ordinary(FEW), ordinary(MANY_RULES)
    least = interleaved(
        {
            "floor": partial(bare, session, FEW),
            "duties": partial(floor_with_duties, session, FEW),
            "observe": partial(observing, session, few),
            "propose": partial(proposing, session, few),
            "observe_many": partial(observing, session, many),
            "propose_many": partial(proposing, session, many),
            "observe_limited": partial(observing, timed(session), limited(FEW)),
        },
        rounds=size.of(15, 2),
    )
    us = {name: seconds / len(session) / 2 * 1e6 for name, seconds in least.items()}
    return [
        Row("floor: closures, rule state only, an event", us["floor"], "us"),
        Row("floor: closures with a monitor's duties, an event", us["duties"], "us"),
        Row("observe an event, 10 rules", us["observe"], "us"),
        Row("propose a call and observe its end, 10 rules, each", us["propose"], "us"),
        Row("observe an event with its time, 10 rules and all eight limits", us["observe_limited"], "us"),
        Row("observe / closures, rule state only", us["observe"] / us["floor"], "x", 2.5),
        Row("observe / closures with the same duties", us["observe"] / us["duties"], "x", 2.5),
        Row("propose / closures with the same duties", us["propose"] / us["duties"], "x", 2.5),
        Row("observe, 1,000 rules / 10 rules", us["observe_many"] / us["observe"], "x", 1.2),
        Row("propose, 1,000 rules / 10 rules", us["propose_many"] / us["propose"], "x", 1.2),
    ]


def by_rules() -> dict[str, list[tuple[int, float]]]:
    """Microseconds an event against the number of rules, for the plot."""
    session = steps(0, 1_000)
    curves: dict[str, list[tuple[int, float]]] = {}
    for rules in (2, 10, 100, 1_000, 10_000):
        policy = ordinary(rules)
        works = {
            "proctor, observe": partial(observing, session, policy),
            "proctor, propose": partial(proposing, session, policy),
            "closures with the same duties": partial(floor_with_duties, session, rules),
            "closures, rule state only": partial(bare, session, rules),
        }
        for name, seconds in interleaved(works, rounds=10).items():
            curves.setdefault(name, []).append((rules, seconds / len(session) / 2 * 1e6))
    return curves


def bare(session: Sequence[Step], rules: int) -> Prepared:
    """The floor without duties over a session."""
    judge = BareRules(rules)

    def work() -> None:
        for step in session:
            judge.started(step.call.name)
            judge.completed(step.completed.tool_name)

    return work


def floor_with_duties(session: Sequence[Step], rules: int) -> Prepared:
    """The floor with duties over a session."""
    judge = KnownCalls(rules)

    def work() -> None:
        for step in session:
            event = step.started
            judge.started(event.tool_call_id, event.tool_name, event.tool_input)
            judge.completed(step.completed.tool_call_id)

    return work


def observing(session: Sequence[Step], policy: CompiledPolicy) -> Prepared:
    """A monitor that observes both events of each call."""
    observe = policy.monitor().observe

    def work() -> None:
        for step in session:
            observe(step.started)
            observe(step.completed)

    return work


def proposing(session: Sequence[Step], policy: CompiledPolicy) -> Prepared:
    """A monitor that is asked about each call and observes its end."""
    monitor = policy.monitor()
    propose: Callable[..., object] = monitor.propose
    observe = monitor.observe

    def work() -> None:
        for step in session:
            propose(step.call)
            observe(step.completed)

    return work


LENGTHS = (10, 1_000, 100_000)
AT_ONCE = 10_000
"""Calls that are made ready at once."""


def history(size: Size) -> list[Row]:
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
    policies = {"ordinary": ordinary(), "resource-keyed": keyed(RULES)}
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
