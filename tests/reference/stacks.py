"""Stacks: each clause's policy, its id, and its action."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from .trace import Rule

STRICTNESS = ["allow", "warn", "request_approval", "deny", "cancel"]


class Clause(NamedTuple):
    """One clause of a stack: a rule, tool rule or net of the policy at an index of the stack."""

    id: str
    kind: str
    rule: Rule
    policy: Rule
    action: str


def clauses(stack: list[Rule]) -> list[Clause]:
    """Every clause in order, with its final id and action."""
    found = [clause for policy in stack for clause in _of(policy, stack)]
    repeated = Counter(clause.id for clause in found)
    return [c._replace(id=f"{c.policy['name']}/{c.id}") if repeated[c.id] > 1 else c for c in found]


def _of(policy: Rule, stack: list[Rule]) -> Iterator[Clause]:
    numbers: Counter[str] = Counter()
    for entry in policy.get("tool_rules", ()):
        kind = "allow" if "allow" in entry else "deny"
        numbers[kind] += 1
        yield _clause(
            entry.get("id", f"{kind}-{numbers[kind]}"), kind, {**entry, "tools": entry[kind]}, policy, stack
        )
    for rule in policy.get("rules", ()):
        numbers[rule["type"]] += 1
        yield _clause(rule.get("id", f"{rule['type']}-{numbers[rule['type']]}"), rule["type"], rule, policy, stack)
    for net in policy.get("nets", ()):
        yield _clause(net["name"], "net", net, policy, stack)


def _clause(id: str, kind: str, rule: Rule, policy: Rule, stack: list[Rule]) -> Clause:
    return Clause(id, kind, rule, policy, _action(rule, policy, stack))


def _action(rule: Rule, policy: Rule, stack: list[Rule]) -> str:
    if "action" in rule:
        return "cancel" if rule["action"] == "halt" else str(rule["action"])
    stated = [each["on_violation"] for each in stack if "on_violation" in each]
    return strictest([*stated, policy.get("on_violation", "cancel")])


def strictest(actions: list[Any]) -> str:
    """The strictest of some actions; `allow` without any."""
    return str(max(["allow", *actions], key=STRICTNESS.index))
