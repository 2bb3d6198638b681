"""`verify` against brute force: every short session of random pairs of policies, on the monitors themselves."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from proctor.policies import (
    Monitor,
    Policy,
    Proved,
    Refuted,
    ToolCall,
    compile_policy,
    parse_policies,
    verify,
)
from proctor.policies import events as ev
from proctor.policies.analysis.certificate import check

LONG = int(os.environ.get("PROCTOR_LONG", "0"))
PAIRS, DEPTH = (LONG, 3) if LONG else (16, 2)
TOOLS = ("a", "b", "c")
INPUTS: tuple[dict[str, Any], ...] = ({}, {"id": "id-1", "n": 5}, {"id": "u", "n": 50})
OUTPUTS: tuple[Any, ...] = ("done", {"ok": True, "id": "id-1"})
STRICTNESS = {"allow": 0, "warn": 1, "request_approval": 2, "deny": 3, "cancel": 3}


def tool(rng: random.Random) -> Any:
    """A selector."""
    name = rng.choice([*TOOLS, "*", "[ab]"])
    if rng.random() < 0.25:
        name = rng.choice(TOOLS)
        return {
            "tool": name,
            "where": [{"path": "$.n", rng.choice(["gt", "lte", "equals"]): rng.choice([5, 10, 50])}],
        }
    return name if rng.random() < 0.9 else rng.sample(TOOLS, 2)


def rule(rng: random.Random) -> dict[str, Any]:
    """A rule of any family that is decided by calls, turns and messages."""

    def t() -> Any:
        return tool(rng)

    key: dict[str, Any] = {"key": "$.id"} if rng.random() < 0.25 else {}
    most = rng.randint(0, 2)
    families: list[Any] = [
        lambda: {
            "type": "count",
            "tool": t(),
            "max": most,
            "of": rng.choice(["started", "completed", "attempted"]),
            **key,
        },
        lambda: {"type": "count", "tool": t(), "max": most, "within_turns": rng.randint(1, 2)},
        lambda: {"type": "count", "tool": t(), "min": 1},
        lambda: {"type": "max_calls", "tool": t(), "max": most, **key},
        lambda: {
            "type": "before",
            "first": t(),
            "then": t(),
            "first_must": rng.choice(["started", "completed"]),
            **key,
        },
        lambda: {"type": "before", "first": "human-approval", "then": t()},
        lambda: {"type": "immediately_before", "first": t(), "then": t(), **key},
        lambda: {"type": "after", "trigger": t(), "then": t(), "within": rng.randint(1, 2), **key},
        lambda: {"type": "eventually", "tool": t(), "within": rng.randint(1, 3)},
        lambda: {"type": "never_after", "trigger": t(), "forbidden": t(), **key},
        lambda: {"type": "forbids_after", "tool": t(), "tools": [rng.choice(TOOLS)], **key},
        lambda: {"type": "sequence", "tools": [t(), t()], "strict": rng.random() < 0.5},
        lambda: {
            "type": "forbidden_sequence",
            "sequence": [t(), t()],
            "adjacency": rng.choice(["strict", "any"]),
            **key,
        },
        lambda: {"type": "require", "tool": t()},
        lambda: {"type": "loop", "window": rng.randint(2, 3), "threshold": 2, "tool": t()},
        lambda: {"type": "max_parallel", "max": rng.randint(1, 2), "tool": t()},
        lambda: {"type": "circuit_breaker", rng.choice(["consecutive", "total"]): rng.randint(1, 2)},
        lambda: {"type": "blocklist", "tools": [t()] if not isinstance(x := t(), list) else x},
        lambda: {"type": "precondition", "tool": t(), "requires": [requirement(rng)]},
        lambda: {
            "type": "provenance",
            "tool": rng.choice(TOOLS),
            "path": "$.id",
            "from": rng.choice([["user_message"], [{"tool": rng.choice(TOOLS), "path": "$.id"}]]),
        },
    ]
    made: dict[str, Any] = rng.choice(families)()
    if rng.random() < 0.15:
        made["action"] = rng.choice(["warn", "request_approval"])
    return {name: flat(value) if name == "tools" else value for name, value in made.items()}


def flat(value: list[Any]) -> list[Any]:
    """A list of tools without lists in it."""
    return [item for each in value for item in (each if isinstance(each, list) else [each])]


def requirement(rng: random.Random) -> dict[str, Any]:
    """One requirement of a precondition."""
    prior = {"prior": rng.choice(TOOLS), "must": "completed"}
    return rng.choice(
        [
            {"turns_gte": 1},
            {"user_said": "go", "in": rng.choice(["any", "latest"])},
            prior,
            {**prior, "must": "started", "same": [{"path": "$.id"}]},
            {**prior, "same": [{"path": "$.id"}], "pick": rng.choice(["latest", "any"])},
            {**prior, "same": [{"path": "$.id", "prior_output_path": "$.id"}]},
            {**prior, "output": [{"path": "$.ok", "equals": True}]},
            {"any_of": [{"turns_gte": 1}, prior]},
        ]
    )


NETS = [
    "require a before b",
    "block c",
    "limit a to 2 per session",
    "limit b to 1 per a",
    "require human-approval before c",
]


def policy(rng: random.Random, name: str) -> Policy:
    """A small policy; its default action is `deny`."""
    written: dict[str, Any] = {
        "name": name,
        "on_violation": "deny",
        "rules": [rule(rng) for _ in range(rng.randint(1, 2))],
    }
    if rng.random() < 0.2:
        written["nets"] = [rng.choice(NETS)]
    if rng.random() < 0.15:
        written["limits"] = {"max_tool_calls": {"max": rng.randint(1, 2), "scope": rng.choice(["run", "session"])}}
    if rng.random() < 0.2:
        written["tool_rules"] = [{rng.choice(["deny", "allow"]): [rng.choice(TOOLS), "b"]}]
    [made] = parse_policies(written)
    return made


class Node(NamedTuple):
    """A session so far: both monitors written down, and what is open."""

    stack: bytes
    other: bytes
    turn: int = 1
    run: int = 1
    flying: tuple[tuple[str, str], ...] = ()


class Brute:
    """All sessions of up to so many calls, on real monitors."""

    def __init__(self, stack: Policy, other: Policy, *, strict: bool) -> None:
        self.mine, self.theirs, self.strict = compile_policy(stack), compile_policy(other), strict

    def breaks(self, action: str, level: int) -> bool:
        """Whether what the other policy finds is a difference."""
        found = STRICTNESS[action]
        if self.strict:
            return found in (1, 3) or (found == 2 and level < 2)
        return found > max(level, 1)

    def shortest(self, depth: int) -> int | None:
        """How many calls the shortest difference takes; None if there is none so short."""
        a, b = self.mine.monitor(), self.theirs.monitor()
        for monitor in (a, b):
            monitor.observe(ev.RunStarted(run_id="run-1"))
            monitor.observe(ev.TurnStarted(turn=1))
        layer = {Node(a.snapshot(), b.snapshot())}
        for calls in range(depth + 1):
            layer = set(self._events(layer))
            if any(map(self._ends, layer)):
                return calls
            if calls == depth:
                return None
            following: set[Node] = set()
            for n, node in enumerate(sorted(layer)):
                for name, input in itertools.product(TOOLS, INPUTS):
                    after = self._call(node, name, input, f"c{calls}-{n}")
                    if after is None:
                        return calls + 1
                    following.update(after)
            layer = following
        return None

    def _both(self, node: Node) -> tuple[Monitor, Monitor]:
        return self.mine.restore(node.stack), self.theirs.restore(node.other)

    def _ends(self, node: Node) -> bool:
        a, b = self._both(node)
        if any(STRICTNESS[v.action] >= 2 for v in a.finish().violations):
            return False
        return any(STRICTNESS[v.action] > (0 if self.strict else 1) for v in b.finish().violations)

    def _events(self, layer: set[Node]) -> Iterator[Node]:
        """What may happen between calls: at most one event of each kind."""
        for node in layer:
            yield node
            for id, name in node.flying:
                left = tuple(each for each in node.flying if each[0] != id)
                for event in self._endings(id, name):
                    yield self._moved(node, event)._replace(flying=left)
            yield self._moved(node, ev.TurnStarted(turn=node.turn + 1))._replace(turn=node.turn + 1)
            for text in ("go id-1", "stop"):
                yield self._moved(node, ev.MessageSent(content=text))

    @staticmethod
    def _endings(id: str, name: str) -> Iterator[ev.Event]:
        for output in OUTPUTS:
            yield ev.ToolCallCompleted(tool_call_id=id, tool_name=name, tool_output=output)
        yield ev.ToolCallFailed(tool_call_id=id, tool_name=name)

    def _moved(self, node: Node, event: ev.Event) -> Node:
        a, b = self._both(node)
        a.observe(event)
        b.observe(event)
        return node._replace(stack=a.snapshot(), other=b.snapshot())

    def _call(self, node: Node, name: str, input: dict[str, Any], id: str) -> list[Node] | None:
        a, b = self._both(node)
        call = ToolCall(id=id, name=name, input=input)
        decision = a.propose(call)
        level = STRICTNESS[decision.action]
        denied = []
        if level >= 2:
            c, d = self._both(node)
            c.propose(call)
            d.observe(ev.ToolCallRequested(tool_call_id=id, tool_name=name, tool_input=input))
            for monitor in (c, d):
                monitor.observe(ev.ToolCallDenied(tool_call_id=id, tool_name=name))
            denied = [node._replace(stack=c.snapshot(), other=d.snapshot())]
        if level == 3:
            return denied
        if level == 2:
            granted = ev.ToolApprovalGranted(
                approval_id=f"x{id}", tool_call_id=id, tool_name=name, input_digest=decision.input_digest
            )
            for monitor in (a, b):
                monitor.observe(granted)
            assert STRICTNESS[a.propose(call).action] < 2
        judged = b.propose(call)
        if any(self.breaks(violation.action, level) for violation in judged.violations):
            return None
        if STRICTNESS[judged.action] >= 2:
            b.observe(ev.ToolCallStarted(tool_call_id=id, tool_name=name, tool_input=input))
        ran = node._replace(stack=a.snapshot(), other=b.snapshot())
        ended = [self._moved(ran, event) for event in self._endings(id, name)]
        running = [ran._replace(flying=((id, name), *ran.flying))] if not ran.flying else []
        return [*denied, *ended, *running]


def compared(seed: int) -> str:
    """The verdict on a random pair, once brute force agrees."""
    rng = random.Random(seed)
    stack, other = policy(rng, "stack"), policy(rng, "other")
    if rng.random() < 0.5:
        nets = tuple(dict.fromkeys((*stack.nets, *other.nets)))
        stack = Policy(name="stack", on_violation="deny", rules=(*stack.rules, *other.rules), nets=nets)
    strict = rng.random() < 0.5
    answer = verify(stack, keeps=other) if strict else verify(stack, no_looser_than=other)
    shortest = Brute(stack, other, strict=strict).shortest(DEPTH)
    if isinstance(answer, Proved):
        assert shortest is None, f"seed {seed}: proved, and brute force finds a session of {shortest} calls"
        for certificate in answer.certificates:
            assert check(certificate) == [], f"seed {seed}"
    elif isinstance(answer, Refuted):
        length = len(answer.session)
        assert shortest is None or shortest >= length, f"seed {seed}: {length} calls, and {shortest} are enough"
    return answer.verdict


@pytest.mark.parametrize("seeds", [range(n, min(n + 8, PAIRS)) for n in range(0, PAIRS, 8)], ids=str)
def test_random_pairs_are_answered_as_brute_force_answers_them(seeds: range) -> None:
    """Nothing proved has a short session against it, nothing refuted a shorter one."""
    answers = [compared(seed) for seed in seeds]
    assert answers.count("unknown") <= max(2, len(answers) // 10)
