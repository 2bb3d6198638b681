"""What a clause of a stack does to a call that breaks it."""

from __future__ import annotations

from collections.abc import Iterable

from ..policy import OnViolation, Policy, members_of
from ..rules.record import RuleAction
from ..stream.calls import STRICTNESS


def effective_action(member: Policy, own: RuleAction | None, stack: Policy) -> OnViolation:
    """The action of one clause of a member: its own, else the strictest stated in the stack.

    A clause without its own action is never weaker than its own policy (`cancel` if that states none).
    """
    if own is not None:
        return "cancel" if own == "halt" else own
    stated = strictest_stated(members_of(stack))
    default = member.on_violation or "cancel"
    return default if stated is None or STRICTNESS[default] > STRICTNESS[stated] else stated


def limit_action(member: Policy, name: str, own: RuleAction | None, stack: Policy) -> OnViolation:
    """The action of one limit: a clause's, save that `deny` is not inherited by what a refusal cannot stop.

    Only calls can be kept within a limit by refusing them; tokens, cost, time and turns go on.
    """
    action = effective_action(member, own, stack)
    return "cancel" if action == "deny" and own is None and name != "max_tool_calls" else action


def strictest_stated(members: Iterable[Policy]) -> OnViolation | None:
    """The strictest `on_violation` that is written out."""
    stated: list[OnViolation] = [m.on_violation for m in members if m.on_violation is not None]
    return max(stated, key=STRICTNESS.__getitem__, default=None)
