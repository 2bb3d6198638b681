"""`loop`, `max_parallel` and `circuit_breaker`."""

from typing import Any

from .selecting import meets, text
from .trace import Call, Rule, World


def loop(rule: Rule, world: World, call: Call) -> bool:
    """Violated by the `threshold`-th call with the same tool and input among the last `window`, including
    this one.
    """
    selector = rule.get("tool", "*")
    if not meets(selector, call, world, permits=False):
        return False
    window = [*world.started(), call][-rule["window"] :]
    alike = [c for c in window if _alike(c, call) and meets(selector, c, world, permits=False)]
    return bool(len(alike) >= rule["threshold"])


def _alike(left: Call, right: Call) -> bool:
    return left.tool.lower() == right.tool.lower() and _plain(left.input) == _plain(right.input)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return text(value) if number else ("a boolean", value) if isinstance(value, bool) else value


def max_parallel(rule: Rule, world: World, call: Call) -> bool:
    """Violated by a call beyond `max` in one turn."""
    selector = rule.get("tool", "*")
    siblings = [c for c in world.started() if c.turn == call.turn and meets(selector, c, world, permits=False)]
    return meets(selector, call, world, permits=False) and len(siblings) >= rule["max"]


def tripped(rule: Rule, world: World) -> int | None:
    """When the breaker opened: at the denial or failure that reached the bound."""
    ends = [(c.completed, True) for c in world.calls if c.completed is not None]
    ends += [(at, False) for c in world.calls for at in (c.failed, c.denied) if at is not None]
    row = total = 0
    for at, good in sorted(ends):
        row, total = (0, total) if good else (row + 1, total + 1)
        if not good and (row == rule.get("consecutive") or total == rule.get("total")):
            return at
    return None


def circuit_breaker(rule: Rule, world: World, call: Call) -> bool:
    """Violated by every call once it is open."""
    return tripped(rule, world) is not None
