"""How long `verify` takes, beside a breadth-first search on the monitor that tries every call of every tool.

python -m benchmarks.proofs
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from proctor.policies import Policy, ToolCall, compile_policy, merge_policies, parse_policies, verify
from proctor.policies.events import ToolCallCompleted, ToolCallStarted

TOOLS = 5
DEPTH = 5


def stack_of(rules: int) -> Policy:
    """So many rules over five tools: counts, orders and what is forbidden afterwards."""
    made = []
    for n in range(rules):
        tool, other = f"tool_{n % TOOLS}", f"tool_{(n + 1) % TOOLS}"
        kind = n % 3
        if kind == 0:
            made.append({"type": "count", "tool": tool, "max": 2 + n % 4})
        elif kind == 1:
            made.append({"type": "before", "first": "tool_0", "then": tool if tool != "tool_0" else other})
        else:
            made.append({"type": "never_after", "trigger": "tool_4", "forbidden": "tool_1"})
    return merge_policies(parse_policies({"name": "stack", "on_violation": "deny", "rules": made}))


def property_of() -> Policy:
    """No session uses `tool_1` after `tool_4`."""
    rule = {"type": "never_after", "trigger": "tool_4", "forbidden": "tool_1"}
    return merge_policies(parse_policies({"name": "property", "on_violation": "deny", "rules": [rule]}))


def breadth_first(stack: Policy, depth: int) -> int:
    """Every session of up to so many calls, on real monitors; how many are allowed. Proves nothing beyond."""
    compiled = compile_policy(stack)
    allowed = [compiled.monitor().snapshot()]
    total = 0
    for level in range(depth):
        found = []
        for snapshot, n in itertools.product(allowed, range(TOOLS)):
            monitor = compiled.restore(snapshot)
            call = ToolCall(id=f"{level}", name=f"tool_{n}", input={}, turn=level + 1)
            if monitor.propose(call).action == "allow":
                named: dict[str, Any] = {"tool_call_id": call.id, "tool_name": call.name}
                monitor.observe(ToolCallStarted(tool_input={}, turn=call.turn, **named))
                monitor.observe(ToolCallCompleted(tool_output="done", **named))
                found.append(monitor.snapshot())
        allowed, total = found, total + len(found)
    return total


def main() -> None:
    """Print the table."""
    print("| rules | verify | answer | states | breadth-first, 5 calls | sessions tried |")
    print("|---|---|---|---|---|---|")
    for rules in (3, 30, 100):
        stack, kept = stack_of(rules), property_of()
        start = time.perf_counter()
        answer = verify(stack, keeps=kept)
        took = time.perf_counter() - start
        start = time.perf_counter()
        tried = breadth_first(stack, DEPTH)
        naive = time.perf_counter() - start
        states = answer.explored.get("states", 0)
        print(f"| {rules} | {took:.2f} s | {answer.verdict} | {states:,} | {naive:.2f} s | {tried:,} |", flush=True)


if __name__ == "__main__":
    main()
