"""The limits that cannot be counted from tool calls alone, reported before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from proctor.policies.policy import Policy, members_of

USAGE = frozenset({"max_total_tokens", "max_input_tokens", "max_output_tokens", "max_cost_usd"})
"""Limits and budgets of what a model uses."""


def uncounted(policies: Collection[Policy], kinds: Collection[str], *, why: str) -> Iterator[str]:
    """One line for each of `policies` that has limits or budgets of `kinds`, which will not hold, with `why`."""
    for policy in policies:
        for member in members_of(policy):
            names = [f"`{name}`" for name, _ in member.limits.given() if name in kinds]
            names += [f"budget `{budget.name}`" for budget in member.budgets if budget.limit in kinds]
            if names:
                yield f"policy `{member.name}`: {', '.join(names)} cannot be held here; {why}"
