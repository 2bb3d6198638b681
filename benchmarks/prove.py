"""What a proof over every session costs, beside a breadth-first search that plays sessions on the monitor."""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proctor.adapters.evaluate.proofs import Prover
from proctor.adapters.evaluate.rule_proofs import sanity
from proctor.policies import Policy, ToolCall, compile_policy, merge_policies, parse_policies, verify
from proctor.policies.events import ToolCallCompleted, ToolCallStarted

from .figures import Row, Size
from .timing import interleaved

TOOLS = 5
INPUTS = ({"n": 0}, {"n": 99})
"""Two inputs of each tool for the breadth-first search."""


def prove(size: Size) -> list[Row]:
    """Seconds of answers by rules, tools and counters; of every short session on the monitor; the memory."""
    timed = partial(_seconds, rounds=size.of(3, 1))
    most = size.of(100, 30)
    no_looser = {
        (30, TOOLS, 1): timed(partial(_no_looser, 30)),
        (most, TOOLS, 1): timed(partial(_no_looser, most)),
        (30, 10, 1): timed(partial(_no_looser, 30, tools=10)),
        (30, TOOLS, 5): timed(partial(_no_looser, 30, times=5)),
    }
    base = no_looser[30, TOOLS, 1]
    depth = size.of(6, 2)
    rows = [
        Row("30 rules: no looser than each rule one step looser", base, "s", 1),
        Row(f"{most} rules: no looser than each rule one step looser", no_looser[most, TOOLS, 1], "s", 10),
        Row("30 rules: a call that can be reached", timed(partial(_reach, 30)), "s", 1),
        Row(f"{most} rules: a call that can be reached", timed(partial(_reach, most)), "s", 10),
        Row("5 rules: a sum that five counts keep together", timed(partial(_sum, 5)), "s"),
        Row("30 rules: a sum that five counts keep together", timed(partial(_sum, 30)), "s", 1),
        Row("30 rules: every rule and tool, without a question", timed(partial(_sanity, 30)), "s"),
        Row(f"{most} rules / 30 rules", no_looser[most, TOOLS, 1] / base, "x"),
        Row("10 tools / 5 tools", no_looser[30, 10, 1] / base, "x"),
        Row("counts five times as high / as they are", no_looser[30, TOOLS, 5] / base, "x"),
        Row("30 rules in a stack of six policies / in one", timed(partial(_no_looser, 30, policies=6)) / base, "x"),
    ]
    for rules in (30, most):
        begun = time.thread_time()
        tried = breadth_first(stack_of(rules), depth)
        taken = time.thread_time() - begun
        rows.append(Row(f"breadth-first, {rules} rules: {tried:,} sessions of up to {depth} calls", taken, "s"))
    return [*rows, Row(f"{most} rules, peak memory of the process", _peak_mib(most), "MiB", 500)]


def stack_of(rules: int, *, tools: int = TOOLS, times: int = 1, looser: int = 0, policies: int = 1) -> Policy:
    """So many rules, each another one: of five families in turn, each of every tool, then with other conditions.

    `times`: counts are so many times as high. `looser`: and so much higher. `policies`: dealt out to so many.
    """
    made = [_rule(n, tools, times, looser) for n in range(rules)]
    members = [{"name": f"stack {n}", "on_violation": "deny", "rules": made[n::policies]} for n in range(policies)]
    return merge_policies(parse_policies({"policies": members}))


def _rule(n: int, tools: int, times: int, looser: int) -> dict[str, Any]:
    tool, following = f"tool_{n % tools}", f"tool_{(n + 1) % tools}"
    family, level = n // tools % 5, n // tools // 5
    above = {"tool": tool, "where": [{"path": "$.n", "gt": 10 * (level + looser)}]}
    if family == 0:
        return {"type": "count", "tool": above, "max": (2 + level) * times + looser}
    if family == 1 and following != "tool_0":
        return {"type": "before", "first": following, "then": above}
    if family in (1, 2):
        return {"type": "never_after", "trigger": above, "forbidden": following}
    if family == 3:
        return {"type": "forbidden_sequence", "sequence": [tool, following, above], "adjacency": "any"}
    return {"type": "loop", "window": 6 + level, "threshold": 2 + level + looser, "tool": tool}


def _names(tools: int) -> list[str]:
    return [f"tool_{n}" for n in range(tools)]


def _expect(verdict: str, stack: Policy, tools: int, **question: Any) -> None:
    answer = verify(stack, tools=_names(tools), **question)
    if answer.verdict != verdict:
        raise AssertionError(f"expected {verdict}: {answer.verdict}, {answer.reason}")


def _no_looser(rules: int, *, tools: int = TOOLS, times: int = 1, policies: int = 1) -> None:
    base = stack_of(rules, tools=tools, times=times, looser=1)
    _expect("proved", stack_of(rules, tools=tools, times=times, policies=policies), tools, no_looser_than=base)


def _reach(rules: int) -> None:
    _expect("refuted", stack_of(rules), TOOLS, reach="tool_0")


def _total() -> Policy:
    """As many calls as the counts of five tools allow together."""
    rule = {"type": "count", "tool": {"tool": "*", "where": [{"path": "$.n", "gt": 0}]}, "max": 2 * TOOLS}
    return merge_policies(parse_policies({"name": "total", "on_violation": "deny", "rules": [rule]}))


def _sum(rules: int) -> None:
    _expect("proved", stack_of(rules), TOOLS, keeps=_total())


def _sanity(rules: int) -> None:
    records = sanity([stack_of(rules)], Prover())
    unknown = [record for record in records if record.verdict == "unknown"]
    if unknown:
        raise AssertionError(f"unknown: {unknown}")


def _seconds(work: Callable[[], object], *, rounds: int) -> float:
    return interleaved({"work": lambda: work}, rounds=rounds)["work"]


def breadth_first(stack: Policy, depth: int) -> int:
    """How many sessions of up to so many calls are allowed, each played on real monitors. Proves nothing beyond."""
    compiled = compile_policy(stack)
    allowed = [compiled.monitor().snapshot()]
    total = 0
    for level in range(depth):
        found = []
        for snapshot, name, input in itertools.product(allowed, _names(TOOLS), INPUTS):
            monitor = compiled.restore(snapshot)
            call = ToolCall(id=f"{level}", name=name, input=input, turn=level + 1)
            if monitor.propose(call).action == "allow":
                named: dict[str, Any] = {"tool_call_id": call.id, "tool_name": call.name}
                monitor.observe(ToolCallStarted(tool_input=input, turn=call.turn, **named))
                monitor.observe(ToolCallCompleted(tool_output="done", **named))
                found.append(monitor.snapshot())
        allowed, total = found, total + len(found)
    return total


def _peak_mib(rules: int) -> float:
    """The most that a fresh process holds while it answers these questions, the hardest among them."""
    command = [sys.executable, "-m", f"{__package__}.prove", str(rules)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return float(done.stdout)


def _main(arguments: Sequence[str]) -> None:
    rules = int(arguments[0])
    _no_looser(rules)
    _reach(rules)
    _sum(min(rules, 30))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    _main(sys.argv[1:])
