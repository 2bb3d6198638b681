"""Judging one event: 10 rules and 1,000 rules, two of which name the tool, beside rules written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from proctor.policies import CompiledPolicy

from .floor import BareRules, KnownCalls
from .rows import Row, Size
from .timing import Prepared, interleaved
from .workload import Step, limited, ordinary, steps, timed

FEW, MANY_RULES = 10, 1_000


def run(size: Size) -> list[Row]:
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
    for rules in (2, 10, 100, 1_000, 2_000):
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
