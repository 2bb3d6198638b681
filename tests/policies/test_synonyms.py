"""Spellings that mean the same are judged the same, over random sessions; two that look alike are not the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from proctor.policies import Monitor, ToolCall, compile_policy, parse_policies
from proctor.policies import events as ev

SESSIONS = 400
CALLS = 7
TOOLS = ("a", "b", "c")


def rule(kind: str, **fields: Any) -> dict[str, Any]:
    return {"rules": [{"type": kind, "id": "r", **fields}]}


PAIRS = {
    "max_calls": (rule("max_calls", tool="a", max=2), rule("count", tool="a", max=2)),
    "max_calls by key": (rule("max_calls", tool=["a", "b"], max=1, key="$.k"),
        rule("count", tool=["a", "b"], max=1, key="$.k")),
    "require": (rule("require", tool="a"), rule("count", tool="a", min=1)),
    "never_after": (rule("never_after", trigger="a", forbidden="b"),
        rule("forbidden_sequence", sequence=["a", "b"], adjacency="any")),
    "never_after by key": (rule("never_after", trigger="a", forbidden=["a", "b"], key="$.k"),
        rule("forbidden_sequence", sequence=["a", ["a", "b"]], adjacency="any", key="$.k")),
    "a limit line": ({"nets": ["limit a to 2 per session"]}, rule("count", tool="a", max=2)),
    "allowlist": (rule("allowlist", tools=["a", "b"]), {"tool_rules": [{"allow": ["a", "b"], "id": "r"}]}),
    "blocklist": (rule("blocklist", tools=["a"]), {"tool_rules": [{"deny": ["a"], "id": "r"}]}),
}  # fmt: skip
"""What is written, and what means the same."""

ALIKE = {
    "a require line takes a token for each use": ({"nets": ["require a before b"]},
        rule("before", first="a", then="b")),
    "max_parallel waits for sub-agents that lag": (rule("max_parallel", tool=["a"], max=1),
        rule("count", tool="a", max=1, within_turns=1)),
}  # fmt: skip
"""What looks the same and is not: neither may be rewritten as the other."""


class Played:
    """One session on two monitors; `differs` says what they answered differently."""

    def __init__(self, one: Monitor, other: Monitor) -> None:
        self.both = (one, other)
        self.differs: list[str] = []
        self.seen: Counter[str] = Counter()

    def compare(self, what: str, answers: list[Any]) -> Any:
        if answers[0] != answers[1]:
            self.differs.append(f"{what}: {answers[0]} and {answers[1]}")
        return answers[0]

    def observe(self, event: ev.Event) -> None:
        self.compare(event.type, [len(monitor.observe(event)) for monitor in self.both])

    def call(self, made: random.Random, id: str, turn: int, parent: str | None) -> bool:
        name, input = made.choice(TOOLS), {"k": made.choice("xy")}
        call = ToolCall(id=id, name=name, input=input, turn=turn, parent_tool_call_id=parent)
        about: dict[str, Any] = {"tool_call_id": id, "tool_name": name, "turn": turn, "parent_tool_call_id": parent}
        action = self.compare(f"propose {name}", [monitor.propose(call).action for monitor in self.both])
        self.seen[action] += 1
        if action != "allow" and made.random() < 0.8:
            self.observe(ev.ToolCallDenied(tool_call_id=id, tool_name=name))
            return False
        self.observe(ev.ToolCallStarted(tool_input=input, **about))
        return True

    def end(self, made: random.Random, id: str) -> None:
        if made.random() < 0.25:
            self.observe(ev.ToolCallFailed(tool_call_id=id))
        else:
            self.observe(ev.ToolCallCompleted(tool_call_id=id))

    def look(self) -> None:
        self.compare("narrow", [monitor.narrow(TOOLS) for monitor in self.both])
        for report in ("report", "finish"):
            found = [getattr(monitor, report)() for monitor in self.both]
            self.compare(report, [sorted(rule.status for rule in each.rules.values()) for each in found])
            self.compare(report, [len(each.violations) for each in found])
            self.seen.update(rule.status for rule in found[0].rules.values())


def play(made: random.Random, pair: tuple[Monitor, Monitor]) -> Played:
    """A session of calls that run beside each other, some of sub-agents, in one run or two."""
    played = Played(*pair)
    played.observe(ev.RunStarted())
    running: list[str] = []
    turn = 1
    for n in range(made.randint(1, CALLS)):
        turn += made.random() < 0.6
        lagging = max(1, turn - made.randint(0, 2))
        parent = made.choice(running) if running and made.random() < 0.3 else None
        if played.call(made, f"c{n}", lagging if parent else turn, parent):
            running.append(f"c{n}")
        while running and made.random() < 0.5:
            played.end(made, running.pop(made.randrange(len(running))))
        if made.random() < 0.1:
            played.observe(ev.RunCompleted())
            played.observe(ev.RunStarted())
            running, turn = [], 1
        played.look()
    return played


def sessions(pair: tuple[dict[str, Any], dict[str, Any]], number: int) -> Iterator[Played]:
    """Random sessions, the same ones for every pair of spellings."""
    compiled = [compile_policy(*parse_policies({"name": "p", "on_violation": "deny", **each})) for each in pair]
    for seed in range(number):
        yield play(random.Random(seed), (compiled[0].monitor(), compiled[1].monitor()))


@pytest.mark.parametrize("spelling", PAIRS)
def test_a_synonym_is_judged_as_what_it_means(spelling: str) -> None:
    """Decisions, violations, what is offered, and how each rule stands; texts are its own."""
    seen: Counter[str] = Counter()
    for seed, played in enumerate(sessions(PAIRS[spelling], SESSIONS)):
        assert played.differs == [], seed
        seen.update(played.seen)

    assert seen["allow"], seen
    assert seen["violated"] or seen["pending"], seen


@pytest.mark.parametrize("spelling", ALIKE)
def test_what_only_looks_alike_is_judged_differently(spelling: str) -> None:
    assert any(played.differs for played in sessions(ALIKE[spelling], SESSIONS))
