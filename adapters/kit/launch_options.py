"""A policy as a client's launch options, and the parts of it that they express."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from proctor.policies.language.selectors import ToolWhere
from proctor.policies.limits import LIMITS
from proctor.policies.policy import Allow, Deny, Policy, members_of
from proctor.policies.stack.clauses import Clause, clauses_of, net_name
from proctor.policies.stack.merge import effective_limits
from proctor.supervisor.ports.adapter import LaunchOptions


def denied(policy: Policy) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The tools that a stack denies in every run, whatever the input: each entry as written, with its names."""
    for clause in _binding(policy):
        virtual = {name.name.casefold() for name in clause.scope.virtual_names}
        for entry in clause.record.tools if isinstance(clause.record, Deny) else ():
            names = clause.patterns(entry) if isinstance(entry, str) else ()
            if isinstance(entry, str) and not any(name.casefold() in virtual for name in names):
                yield entry, names


def allow_lists(policy: Policy) -> Iterator[tuple[Allow, tuple[str, ...]]]:
    """The allow lists of a stack that hold in every run, each with the names of its tools."""
    for clause in _binding(policy):
        if isinstance(clause.record, Allow):
            yield clause.record, clause.patterns(*clause.record.tools)


def run_limits(policy: Policy) -> tuple[dict[str, float], frozenset[str]]:
    """The limits that cancel a run, the lowest of each, and those for which the stack says nothing else."""
    entries = effective_limits(policy)
    exact = [entry for entry in entries if entry.action == "cancel" and entry.limit.scope == "run"]
    lowest: dict[str, float] = {}
    for entry in exact:
        lowest[entry.name] = min(entry.limit.max, lowest.get(entry.name, entry.limit.max))
    return lowest, frozenset(lowest) - {entry.name for entry in entries if entry not in exact}


def options_for(policy: Policy, options: Mapping[str, Any], held: Collection[str]) -> LaunchOptions:
    """`options`, which enforce the parts of `policy` named in `held` as the gate would; case does not matter."""
    folded = {part.casefold() for part in held}
    parts = policy_parts(policy)
    return LaunchOptions(
        options=dict(options),
        expressed=tuple(part for part in parts if part.casefold() in folded),
        unexpressed=tuple(part for part in parts if part.casefold() not in folded),
    )


def limit_options(policy: Policy, names: Mapping[str, str]) -> LaunchOptions:
    """The lowest of each limit that cancels a run, by the client's name for it."""
    lowest, held = run_limits(policy)
    options = {theirs: int(lowest[ours]) for ours, theirs in names.items() if ours in lowest}
    return options_for(policy, options, held.intersection(names))


class NoLaunchOptions:
    """For an adapter without launch options, where the gate and the events enforce the whole policy."""

    async def prepare(self) -> None:
        """No effect."""

    def compile(self, policy: Policy) -> LaunchOptions:
        """No options, with every part of the policy unexpressed."""
        return LaunchOptions(unexpressed=policy_parts(policy))


def _binding(policy: Policy) -> Iterator[Clause]:
    return (each for each in clauses_of(policy) if isinstance(each.record, Allow | Deny) and each.binds)


def policy_parts(policy: Policy) -> tuple[str, ...]:
    """Every part a policy has: `deny bash`, `max_cost_usd`, `rule before-1`, `net deploy`, in its order."""
    parts = [name for name, _ in policy.limits.given()]
    for rule in policy.tool_rules:
        kind = "allow" if isinstance(rule, Allow) else "deny"
        parts.extend(f"{kind} {_tool_name(tool)}" for tool in rule.tools)
    parts.extend(f"rule {rule.id or rule.type}" for rule in policy.rules)
    parts.extend(f"net {net_name(net)}" for net in policy.nets)
    return tuple(dict.fromkeys(parts))


def _tool_name(tool: str | ToolWhere) -> str:
    """A tool's name, marked if it has conditions on its input."""
    if isinstance(tool, str):
        return tool
    names = tool.tool if isinstance(tool.tool, str) else " or ".join(tool.tool)
    return f"{names} where"


USAGE = frozenset(name for name, kind in LIMITS.items() if kind.of_usage)
"""Limits and budgets of what a model uses."""


def uncounted(policies: Collection[Policy], kinds: Collection[str], *, why: str) -> Iterator[str]:
    """A line, with `why`, for each of `policies` whose limits or budgets of `kinds` will not be enforced."""
    for policy in policies:
        for member in members_of(policy):
            names = [f"`{name}`" for name, _ in member.limits.given() if name in kinds]
            names += [f"budget `{budget.name}`" for budget in member.budgets if budget.limit in kinds]
            if names:
                yield f"policy `{member.name}`: {', '.join(names)} cannot be held here; {why}"
