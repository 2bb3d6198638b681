"""Sessions generated for a policy: mostly of its tools, with the values that its conditions and bindings read."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal

from .generating import TOOLS
from .selecting import globbed
from .twins import Outcome, Step

VALUES = [1, 1, 2, "1", 1.0, [1, 2], [2], None, {"in": 1}]
TEXTS = ["p", "q", "pq", "x", "P"]
PLAIN = ["plain", "[1]", "id: 2", "id: 1", "1", None]
DOES: list[Literal["ask", "saw", "end", "say", "run"]] = ["ask", "saw", "end", "say", "run"]
OUTCOMES: list[Outcome] = ["completed", "failed", "in flight", "refused by the provider"]
WORDS = ["pay 1", "x P", "no", "12", "2.", "1.5", "q 2,1"]


ASKS = {"name": "asks", "rules": [], "tool_rules": [{"deny": ["b"], "action": "request_approval"}]}
"""A policy that asks for approval."""


def supervised(random: Random, stack: Sequence[Any]) -> list[Step]:
    """Steps with reused ids, late approvals, and rewritten inputs."""
    steps = [replace(step, approval=_answer(random)) if step.do == "ask" else step for step in session(random, stack)]
    steps = [_supervised(random, step, steps) for step in steps]
    for _ in range(random.randrange(4)):
        answer = Step(do="answer", n=random.randrange(4), approval=_answer(random), reuse=random.random() < 0.3)
        steps.insert(random.randrange(len(steps) + 1), replace(answer, begins=random.random() < 0.3))
    return steps


def _answer(random: Random) -> Any:
    return random.choice(["granted", "granted", "denied", "expired", "left", "left"])


def _supervised(random: Random, step: Step, steps: list[Step]) -> Step:
    """A step with a reused id, often by the same call; a reported turn; another input that runs."""
    reuse = random.random() < 0.4
    again = random.choice(steps) if reuse and random.random() < 0.6 else step
    input = {**again.input, "o": 1.0} if again.input.get("o") == 1 and random.random() < 0.2 else again.input
    return replace(
        step,
        reuse=reuse,
        tool=again.tool or step.tool,
        input=input,
        begins=random.random() < 0.5,
        ran=_input(random) if random.random() < 0.15 else None,
    )


def session(random: Random, stack: Sequence[Any]) -> list[Step]:
    """Up to 14 steps."""
    tools = [*named(stack) * 3, *TOOLS]
    [subs] = random.choices([0.1, 0.6], [3, 1])
    return [_step(random, tools, subs) for _ in range(random.randint(2, 14))]


def named(stack: Sequence[Any]) -> list[str]:
    """The tools that a text in the policies matches."""
    rules = json.dumps([[p.get(part) for part in ("rules", "tool_rules", "nets")] for p in stack])
    texts = [text for text in rules.split('"')[1::2] if text not in ("*", "?")]
    return [tool for tool in TOOLS if any(globbed(text, tool) for text in texts)]


def _step(random: Random, tools: list[str], subs: float) -> Step:
    [do] = random.choices(DOES, [50, 25, 12, 7, 6])
    input = _input(random)
    [outcome] = random.choices(OUTCOMES, [50, 15, 30, 5])
    if do == "end" and outcome not in ("completed", "failed"):
        outcome = "completed"
    return Step(
        do=do,
        tool=random.choice(tools),
        input=input,
        next_turn=random.random() < 0.5,
        outcome=outcome,
        output=_output(random, input),
        approval=random.choice(["granted", "granted", "granted", "denied", "left"]),
        n=random.randrange(4),
        words=random.choice(WORDS),
        sub=random.random() < subs,
        over=random.choice(["completed", "failed", "cancelled", ""]),
        anew=random.random() < 0.5,
    )


def _input(random: Random) -> dict[str, Any]:
    input: dict[str, Any] = {}
    if random.random() < 0.8:
        input["o"] = random.choice(VALUES)
    if random.random() < 0.3:
        input["t"] = random.choice(TEXTS)
    return input


def _output(random: Random, input: dict[str, Any]) -> Any:
    """Usually the call's subject and whether it succeeded; sometimes as text."""
    if random.random() < 0.3:
        return random.choice(PLAIN)
    output = {**input, "ok": random.choice([True, True, False, 1, None])}
    return json.dumps(output) if random.random() < 0.3 else output


def smallest(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """The steps without those that a failure does not need."""
    for n in range(len(steps) - 1, -1, -1):
        without = [*steps[:n], *steps[n + 1 :]]
        if fails(without):
            steps = without
    return steps
