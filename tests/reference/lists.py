"""`allowlist`, `blocklist`, and `allow` and `deny` of tool rules."""

from .selecting import meets
from .trace import Call, Rule, World

EVERY_CALL = frozenset({"allowlist", "blocklist"})
"""They restrict every call."""


def allowlist(rule: Rule, world: World, call: Call) -> bool:
    """Violated by a call that matches no entry by its own name."""
    return not any(meets(tool, call, world, permits=True, of=[call.tool]) for tool in rule["tools"])


def blocklist(rule: Rule, world: World, call: Call) -> bool:
    """Violated by a call that matches one entry by any of its names."""
    return meets(rule["tools"], call, world, permits=False)
