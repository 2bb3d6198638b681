"""`require`, `count` and `max_calls`."""

from .selecting import meets
from .trace import Call, Rule, World


def counted(rule: Rule, world: World) -> list[Call]:
    """The calls that a `count` rule counts."""
    of = rule.get("of", "started")
    calls = world.calls if of == "attempted" else world.started()
    if of == "completed":  # a call in flight counts until it fails
        calls = [c for c in calls if c.failed is None]
    return [c for c in calls if meets(rule["tool"], c, world, permits=False)]


def exceeds(rule: Rule, world: World, call: Call) -> bool:
    """Violated by the call that exceeds `exact`, or `max`."""
    most = rule.get("exact", rule.get("max"))
    if most is None or not meets(rule["tool"], call, world, permits=False):
        return False
    others = [c for c in counted(rule, world) if c is not call]
    if "within_turns" in rule:
        others = [c for c in others if c.turn > call.turn - rule["within_turns"]]
    return bool(len(others) + 1 > most)


def owes(rule: Rule, world: World) -> bool:
    """Fewer than `exact`, or `min`, at the end."""
    least = rule.get("exact", rule.get("min", 0))
    return bool(len(counted(rule, world)) < least)


def required(rule: Rule, world: World) -> bool:
    """`require`: never called."""
    return not any(meets(rule["tool"], c, world, permits=True) for c in world.started())
