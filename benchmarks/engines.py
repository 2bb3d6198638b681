"""One decision at 10 and at 100 rules, beside engines from PyPI (`pip install -r benchmarks/requirements.txt`).

`by name`: every rule forbids one tool, the call is of another; all engines can say that. `by input`: every rule
forbids a tool for paths under `/etc/`; the call is of a tool that two rules name, with another path. Each engine
is used in the fastest way it offers: parsed once, asked many times. proctor's first decision about a tool finds the
rules that name it, and is one of the many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from proctor.policies import ToolCall, compile_policy, merge_policies, parse_policies

from .figures import Row, Size
from .timing import Prepared, interleaved

RULES = (10, 100)
_PATH = "/home/ana/notes.txt"


class Task(NamedTuple):
    """What an engine is asked: which tools its rules name, and whether they look at the path."""

    tools: list[str]
    by_input: bool


Engine = Callable[[Task, int], Prepared]


def engines(size: Size) -> list[Row]:
    """Microseconds a decision, and how much faster proctor's is than the fastest other."""
    by_name: Mapping[str, Engine] = {"proctor": _proctor, "cedarpy": _cedarpy, "agent-governance-toolkit": _toolkit}
    by_input: Mapping[str, Engine] = {"proctor": _proctor, "cedarpy": _cedarpy}
    return [*_rows("by name", by_name, size), *_rows("by input", by_input, size)]


def _rows(how: str, engines: Mapping[str, Engine], size: Size) -> list[Row]:
    decisions = size.of(2_000, 5)
    works = {
        f"{name}, {rules} rules {how}": partial(engine, _task(rules, how), decisions)
        for name, engine in engines.items()
        for rules in RULES
    }
    least = interleaved(works, rounds=size.of(7, 1))
    us = {name: seconds / decisions * 1e6 for name, seconds in least.items()}
    fastest = min(us[f"{name}, 100 rules {how}"] for name in engines if name != "proctor")
    ratio = fastest / us[f"proctor, 100 rules {how}"]
    return [
        *(Row(f"{name}, a decision", figure, "us") for name, figure in us.items()),
        Row(f"fastest other / proctor, 100 rules {how}", ratio, "x", 20, at_least=True),
    ]


def _task(rules: int, how: str) -> Task:
    if how == "by name":
        return Task([f"tool_{n}" for n in range(1, rules + 1)], by_input=False)
    return Task(["tool_0", *(f"tool_{n}" for n in range(rules - 1))], by_input=True)


def _proctor(task: Task, decisions: int) -> Prepared:
    under_etc = [{"path": "$.path", "regex": "^/etc/"}]
    rules = [{"deny": [{"tool": tool, "where": under_etc} if task.by_input else tool]} for tool in task.tools]
    policy = compile_policy(merge_policies(parse_policies({"name": "benchmark", "tool_rules": rules})))
    monitor = policy.monitor()
    calls = [ToolCall(id=f"call-{n}", name="tool_0", input={"path": _PATH}, turn=n + 1) for n in range(decisions)]

    def work() -> None:
        for call in calls:
            _check(monitor.propose(call).action == "allow")

    return work


def _cedarpy(task: Task, decisions: int) -> Prepared:
    cedarpy: Any = import_module("cedarpy")
    when = ' when { context.path like "/etc/*" }' if task.by_input else ""
    forbids = [f'forbid(principal, action, resource == Tool::"{tool}"){when};' for tool in task.tools]
    policies = cedarpy.PolicySet.from_str("\n".join(["permit(principal, action, resource);", *forbids]))
    entities = cedarpy.Entities.from_json_str("[]")
    request = {
        "principal": {"type": "Agent", "id": "a"},
        "action": {"type": "Action", "id": "call"},
        "resource": {"type": "Tool", "id": "tool_0"},
        "context": {"path": _PATH},
    }

    def work() -> None:
        for _ in range(decisions):
            _check(cedarpy.is_authorized(request, policies, entities).allowed)

    return work


def _toolkit(task: Task, decisions: int) -> Prepared:
    toolkit: Any = import_module("agent_os.policies")
    named = [
        toolkit.PolicyRule(
            name=tool, condition=toolkit.PolicyCondition(field="tool_name", operator="eq", value=tool), action="deny"
        )
        for tool in task.tools
    ]
    document = toolkit.PolicyDocument(rules=named, defaults=toolkit.PolicyDefaults(action="allow"))
    evaluator = toolkit.PolicyEvaluator(policies=[document])
    context = {"tool_name": "tool_0", "path": _PATH}

    def work() -> None:
        for _ in range(decisions):
            _check(evaluator.evaluate(context).allowed)

    return work


def _check(allowed: bool) -> None:
    if not allowed:
        raise AssertionError("an engine refused a call that no rule forbids")
