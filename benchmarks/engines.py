"""One decision at 10 and at 100 rules, beside engines from PyPI (`pip install -r benchmarks/requirements.txt`).

Every rule forbids one tool for paths under `/etc/`. The call is of a tool that two rules name, and its path is
another, so it is allowed. Each engine is used in the fastest way it offers: parsed once, asked many times.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from proctor.policies import CompiledPolicy, ToolCall, compile_policy, merge_policies, parse_policies

from .rows import Row, Size
from .timing import Prepared, interleaved

RULES = (10, 100)
_PATH = "/home/ana/notes.txt"


def run(size: Size) -> list[Row]:
    """Microseconds a decision, and how much faster proctor's is than the fastest other."""
    decisions = size.of(500, 5)
    engines: dict[str, Callable[[int, int], Prepared]] = {
        "proctor": _proctor,
        "cedarpy": _cedarpy,
        "agent-governance-toolkit": _toolkit,
    }
    works = {
        (name, rules): _maker(engine, rules, decisions) for name, engine in engines.items() for rules in RULES
    }
    least = interleaved(
        {f"{name}, {rules} rules, a decision": work for (name, rules), work in works.items()},
        rounds=size.of(7, 1),
    )
    us = {name: seconds / decisions * 1e6 for name, seconds in least.items()}
    ours = us["proctor, 100 rules, a decision"]
    fastest = min(us[f"{name}, 100 rules, a decision"] for name in engines if name != "proctor")
    return [
        *(Row(name, figure, "us") for name, figure in us.items()),
        Row("fastest other engine / proctor, 100 rules", fastest / ours, "x", 20, at_least=True),
    ]


def _maker(engine: Callable[[int, int], Prepared], rules: int, decisions: int) -> Callable[[], Prepared]:
    return lambda: engine(rules, decisions)


def _tools(rules: int) -> list[str]:
    """The tool each rule names: one of them is named twice."""
    return ["tool_0", *(f"tool_{n}" for n in range(rules - 1))]


def _policy(rules: int) -> CompiledPolicy:
    under_etc = [{"path": "$.path", "regex": "^/etc/"}]
    denied = [{"deny": [{"tool": tool, "where": under_etc}]} for tool in _tools(rules)]
    return compile_policy(merge_policies(parse_policies({"name": "benchmark", "tool_rules": denied})))


def _proctor(rules: int, decisions: int) -> Prepared:
    monitor = _policy(rules).monitor()
    calls = [ToolCall(id=f"call-{n}", name="tool_0", input={"path": _PATH}, turn=n + 1) for n in range(decisions)]

    def work() -> None:
        for call in calls:
            if monitor.propose(call).action != "allow":
                raise AssertionError("proctor refused the call")

    return work


def _cedarpy(rules: int, decisions: int) -> Prepared:
    cedarpy = import_module("cedarpy")
    forbids = "\n".join(
        f'forbid(principal, action, resource == Tool::"{tool}") when {{ context.path like "/etc/*" }};'
        for tool in _tools(rules)
    )
    policies = cedarpy.PolicySet.from_str("permit(principal, action, resource);\n" + forbids)
    entities = cedarpy.Entities.from_json_str("[]")
    request = {
        "principal": {"type": "Agent", "id": "a"},
        "action": {"type": "Action", "id": "call"},
        "resource": {"type": "Tool", "id": "tool_0"},
        "context": {"path": _PATH},
    }

    def work() -> None:
        for _ in range(decisions):
            if not cedarpy.is_authorized(request, policies, entities).allowed:
                raise AssertionError("cedarpy refused the call")

    return work


def _toolkit(rules: int, decisions: int) -> Prepared:
    """A rule of the toolkit has one condition, so each only names its tool; none of them is the call's."""
    toolkit = import_module("agent_os.policies")
    named = [
        toolkit.PolicyRule(
            name=f"rule-{n}",
            condition=toolkit.PolicyCondition(field="tool_name", operator="eq", value=f"{tool}_of_etc"),
            action="deny",
        )
        for n, tool in enumerate(_tools(rules))
    ]
    document = toolkit.PolicyDocument(rules=named, defaults=toolkit.PolicyDefaults(action="allow"))
    evaluator = toolkit.PolicyEvaluator(policies=[document])
    context = {"tool_name": "tool_0", "path": _PATH}

    def work() -> None:
        for _ in range(decisions):
            if not evaluator.evaluate(context).allowed:
                raise AssertionError("the toolkit refused the call")

    return work
