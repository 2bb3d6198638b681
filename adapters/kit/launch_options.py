"""The parts of a policy by name, as launch options say which of them a client could take over."""

from __future__ import annotations

from proctor.policies.language.selectors import ToolWhere
from proctor.policies.policy import Allow, Policy
from proctor.policies.rules.nets.shorthand import NetLine
from proctor.policies.rules.nets.written import Net


def policy_parts(policy: Policy) -> tuple[str, ...]:
    """Every part a policy has: `deny bash`, `max_cost_usd`, `rule before-1`, `net deploy`, in its order."""
    parts = [name for name, _ in policy.limits.given()]
    for rule in policy.tool_rules:
        kind = "allow" if isinstance(rule, Allow) else "deny"
        parts.extend(f"{kind} {_tool_name(tool)}" for tool in rule.tools)
    parts.extend(f"rule {rule.id or rule.type}" for rule in policy.rules)
    parts.extend(f"net {_net_name(net)}" for net in policy.nets)
    return tuple(dict.fromkeys(parts))


def _net_name(net: str | NetLine | Net) -> str:
    if isinstance(net, str):
        return net
    return net.line if isinstance(net, NetLine) else net.name


def _tool_name(tool: str | ToolWhere) -> str:
    """A tool's name; one with conditions on its input says so."""
    if isinstance(tool, str):
        return tool
    names = tool.tool if isinstance(tool.tool, str) else " or ".join(tool.tool)
    return f"{names} where"
