"""`verify` against random walks: long sessions of pairs of policies, on the public monitor alone.

A walk has values, outputs and messages that no rule names, calls that overlap, approvals that are given late or not,
turns and runs. `PROCTOR_LONG=N` plays N pairs.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from proctor.policies import (
    Monitor,
    Policy,
    Proved,
    Refuted,
    ToolCall,
    Violation,
    compile_policy,
    parse_policies,
    verify,
)
from proctor.policies import events as ev

LONG = int(os.environ.get("PROCTOR_LONG", "0"))
PAIRS, WALKS = (LONG, 300) if LONG else (40, 40)
STEPS = 14
TOOLS = ("a", "b", "c")
STRICTNESS = {"allow": 0, "warn": 1, "request_approval": 2, "deny": 3, "cancel": 3}
ASK, DENY = 2, 3
WHERES: list[list[dict[str, Any]]] = [
    [{"path": "$.n", "gt": 5}],
    [{"path": "$.n", "equals": 5}, {"path": "$.n", "type": "integer"}],
    [{"path": "$.line", "regex": r"\bgit\s+push\b"}],
    [{"path": "$.line", "regex": "^git"}],
    [{"path": "$.line", "runs": ["rm", "git push"]}],
    [{"path": "$.file", "within": "/srv"}],
    [{"not": [{"path": "$.file", "within": "/srv/data"}]}],
    [{"path": "$.to[*]", "not_in": ["x@a.com"]}],
    [{"any_of": [{"path": "$.n", "lte": 4}, {"path": "$.to", "regex": "@a[.]com$"}]}],
]
VALUES: dict[str, list[Any]] = {
    "id": ["k1", "k2", 7, "7", None],
    "n": [4, 5, 6, 7.5, "5", "zz", True, None, [5]],
    "line": ["git push", "git status", "rm x", "echo git push", ["git", "push"], "ls && git push", ""],
    "file": ["/srv/data/x", "/srv/y", "/etc/p", "../x", "rel", ["/srv/data/x", "/etc/q"]],
    "to": [["x@a.com"], "x@a.com", ["x@a.com", "e@b.com"], [], "e@b.com"],
}
OUTPUTS: list[Any] = ["done", {"ok": True, "id": "k1"}, {"ok": False, "id": "k2"}, "id=k1 and id=k2", {"id": 7}]
MESSAGES = ["go", "no", "please stop", "use k1", "use k2 and 7"]


def selector(rng: random.Random) -> Any:
    """A tool, any tool, or a tool with some inputs."""
    if rng.random() < 0.3:
        return {"tool": rng.choice([*TOOLS, "*"]), "where": rng.choice(WHERES)}
    return rng.choice([*TOOLS, "*", "[ab]"])


def rule(rng: random.Random) -> dict[str, Any]:
    """A rule of one of the families."""
    one, other, most = selector(rng), selector(rng), rng.randint(0, 2)
    key = {"key": "$.id"} if rng.random() < 0.3 else {}
    of, adjacency = rng.choice(["started", "completed", "attempted"]), rng.choice(["strict", "any"])
    by_user = {"user_said": "go", "in": rng.choice(["any", "latest"])}
    source: dict[str, Any] = {"type": "provenance", "tool": one, "path": "$.id"}
    same: dict[str, Any] = rng.choice([{}, {"same": [{"path": "$.id"}]}])
    prior = {"prior": other, "pick": rng.choice(["latest", "any"]), **same}
    made: dict[str, Any] = rng.choice(
        [
            {"type": "count", "tool": one, "max": most, "of": of, **key},
            {"type": "count", "tool": one, "max": most, "within_turns": rng.randint(1, 2)},
            {"type": "count", "tool": one, "min": 1},
            {"type": "before", "first": other, "then": one, **key},
            {"type": "before", "first": "human-approval", "then": one},
            {"type": "immediately_before", "first": other, "then": one, **key},
            {"type": "after", "trigger": other, "then": one, "within": rng.randint(1, 2), **key},
            {"type": "never_after", "trigger": other, "forbidden": one, **key},
            {"type": "forbids_after", "tool": other, "tools": [one], **key},
            {"type": "sequence", "tools": [one, other], "strict": rng.random() < 0.5},
            {"type": "forbidden_sequence", "sequence": [one, other], "adjacency": adjacency, **key},
            {"type": "loop", "window": 3, "threshold": rng.randint(1, 2), "tool": one, **key},
            {"type": "max_parallel", "max": most, "tool": one, **key},
            {"type": "circuit_breaker", rng.choice(["consecutive", "total"]): rng.randint(1, 2)},
            {"type": "blocklist", "tools": [one]},
            {"type": "precondition", "tool": one, "requires": [prior]},
            {"type": "precondition", "tool": one, "requires": [by_user]},
            {**source, "from": ["user_message", {"tool": "a", "path": "$.id"}]},
            {**source, "from": ["user_message"], "extract": r"k\d"},
        ]
    )  # fmt: skip
    return made | ({"action": rng.choice(["warn", "request_approval"])} if rng.random() < 0.15 else {})


def policy(rng: random.Random, name: str, rules: list[dict[str, Any]]) -> Policy:
    """A policy of these rules, with a limit now and then."""
    limits = {rng.choice(["max_tool_calls", "max_turns"]): rng.randint(1, 3)} if rng.random() < 0.15 else {}
    [made] = parse_policies({"name": name, "on_violation": "deny", "rules": rules, "limits": limits})
    return made


class Walk:
    """One session on both monitors; `calls` is how many were made when the property was broken."""

    def __init__(self, stack: Monitor, other: Monitor, rng: random.Random, *, strict: bool) -> None:
        self.stack, self.other, self.rng, self.strict = stack, other, rng, strict
        self.calls, self.turn, self.run = 0, 1, 1
        self.open: list[ToolCall] = []
        self.held: list[tuple[ToolCall, str]] = []

    def broken(self) -> bool:
        """Whether some step breaks the property."""
        self.both(ev.RunStarted(run_id="run-1"))
        self.both(ev.TurnStarted(turn=1))
        return any(self.ends_broken() or self.step() for _ in range(STEPS))

    def breaks(self, found: list[Violation], level: int) -> bool:
        """Whether what the property finds counts, where the stack's answer is `level`."""
        levels = [STRICTNESS[violation.action] for violation in found]
        if self.strict:
            return any(each in (1, DENY) or (each == ASK and level < ASK) for each in levels)
        return any(each > max(level, 1) for each in levels)

    def both(self, event: ev.Event) -> bool:
        """Whether an event breaks the property; what the stack denies of it ends the run."""
        mine, theirs = self.stack.observe(event), self.other.observe(event)
        level = max((STRICTNESS[violation.action] for violation in mine), default=0)
        return self.again(ev.RunCancelled) if level >= DENY else self.breaks(theirs, level)

    def again(self, ended: type[ev.Event]) -> bool:
        """The run ends so, and another begins."""
        self.stack.observe(ended(run_id=f"run-{self.run}"))
        self.other.observe(ended(run_id=f"run-{self.run}"))
        self.run, self.turn, self.open, self.held = self.run + 1, 1, [], []
        started = self.both(ev.RunStarted(run_id=f"run-{self.run}"))
        return self.both(ev.TurnStarted(turn=1)) or started

    def ends_broken(self) -> bool:
        """Whether the property is broken, and the stack is not, were the session to end."""
        if any(STRICTNESS[violation.action] >= ASK for violation in self.stack.finish().violations):
            return False
        least = 0 if self.strict else 1
        return any(STRICTNESS[violation.action] > least for violation in self.other.finish().violations)

    def step(self) -> bool:
        """Something happens."""
        chance = self.rng.random()
        if self.open and (chance < 0.3 or len(self.open) > 1):
            return self.end(self.open.pop())
        if chance < 0.38:
            self.turn += 1
            return self.both(ev.TurnStarted(turn=self.turn))
        if chance < 0.45:
            return self.both(ev.MessageSent(content=self.rng.choice(MESSAGES)))
        if chance < 0.48:
            return self.again(ev.RunCompleted)
        if self.held and chance < 0.6:
            return self.answered(*self.held.pop())
        return self.called()

    def end(self, call: ToolCall) -> bool:
        """A call completes or fails."""
        if self.rng.random() < 0.3:
            return self.both(ev.ToolCallFailed(tool_call_id=call.id, tool_name=call.name))
        output = self.rng.choice(OUTPUTS)
        return self.both(ev.ToolCallCompleted(tool_call_id=call.id, tool_name=call.name, tool_output=output))

    def called(self) -> bool:
        """A call is proposed."""
        self.calls += 1
        input = {name: self.rng.choice(values) for name, values in VALUES.items() if self.rng.random() < 0.6}
        call = ToolCall(id=f"c{self.calls}", name=self.rng.choice(TOOLS), input=input)
        decision = self.stack.propose(call)
        level = STRICTNESS[decision.action]
        if level < ASK:
            return self.ran(call, level)
        self.other.observe(ev.ToolCallRequested(tool_call_id=call.id, tool_name=call.name, tool_input=input))
        if level == ASK and self.rng.random() < 0.8:
            self.held.append((call, decision.input_digest))
            return False
        self.stack.observe(denied := ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.name))
        self.other.observe(denied)
        return False

    def answered(self, call: ToolCall, digest: str) -> bool:
        """A person agrees to a call that was held."""
        granted = ev.ToolApprovalGranted(
            approval_id=call.id, tool_call_id=call.id, tool_name=call.name, input_digest=digest
        )
        self.stack.observe(granted)
        self.other.observe(granted)
        return STRICTNESS[self.stack.propose(call).action] < ASK and self.ran(call, ASK)

    def ran(self, call: ToolCall, level: int) -> bool:
        """A call that the stack let through runs."""
        judged = self.other.propose(call)
        if self.breaks(list(judged.violations), level):
            return True
        if STRICTNESS[judged.action] >= ASK:
            self.other.observe(ev.ToolCallStarted(tool_call_id=call.id, tool_name=call.name, tool_input=call.input))
        self.open.append(call)
        return False


def compared(seed: int) -> str:
    """The verdict on a random pair, once no walk refutes it."""
    rng = random.Random(seed)
    wanted = rule(rng)
    rules = [rule(rng) for _ in range(rng.randint(1, 2))]
    stack = policy(rng, "stack", [*rules, wanted] if rng.random() < 0.5 else rules)
    other = policy(rng, "other", [wanted])
    strict = rng.random() < 0.5
    question: dict[str, Any] = {"keeps" if strict else "no_looser_than": other}
    answer = verify(stack, **question, steps=1_000_000)
    if not isinstance(answer, Proved | Refuted):
        return answer.verdict
    least = sum(1 for call in answer.session if call["tool"]) if isinstance(answer, Refuted) else STEPS + 1
    mine, theirs = compile_policy(stack), compile_policy(other)
    for _ in range(WALKS):
        walk = Walk(mine.monitor(), theirs.monitor(), rng, strict=strict)
        if walk.broken():
            assert walk.calls >= least, f"seed {seed}: {answer.verdict} ({least} calls), and {walk.calls} are enough"
    return answer.verdict


@pytest.mark.parametrize("seeds", [range(n, min(n + 10, PAIRS)) for n in range(0, PAIRS, 10)], ids=str)
def test_no_walk_refutes_a_proof_or_is_shorter_than_a_session(seeds: range) -> None:
    """And few pairs are unknown."""
    answers = [compared(seed) for seed in seeds]
    assert answers.count("unknown") <= 2
