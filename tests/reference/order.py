"""`before`, `immediately_before`, `after`, `eventually`, `never_after`, `forbids_after`."""

from .selecting import meets
from .trace import Call, Rule, World


def before(rule: Rule, world: World, call: Call) -> bool:
    """Violated by `then` without an earlier `first`, started or completed as the rule says."""
    past = world.started() if rule.get("first_must") == "started" else world.completed()
    named = meets(rule["then"], call, world, permits=False)
    return named and not any(meets(rule["first"], c, world, permits=True) for c in past)


def immediately_before(rule: Rule, world: World, call: Call) -> bool:
    """Violated by `then` whose previous counted call is not `first`."""
    last = world.started()[-1:]
    named = meets(rule["then"], call, world, permits=False)
    return named and not any(meets(rule["first"], c, world, permits=True) for c in last)


def _open(rule: Rule, world: World) -> list[int]:
    """The positions, from 1, of triggers without a later answer."""
    past = world.started()
    return [
        n
        for n, call in enumerate(past, 1)
        if meets(rule["trigger"], call, world, permits=False)
        and not any(meets(rule["then"], later, world, permits=True) for later in past[n:])
    ]


def after(rule: Rule, world: World, call: Call) -> bool:
    """Violated by the last call that could have answered an open trigger, and does not."""
    if meets(rule["then"], call, world, permits=True):
        return False
    position = len(world.started()) + 1
    return any(n + rule.get("within", 1) == position for n in _open(rule, world))


def after_owes(rule: Rule, world: World) -> bool:
    """A trigger is open at the end and its time has not passed."""
    return any(n + rule.get("within", 1) > len(world.started()) for n in _open(rule, world))


def eventually(rule: Rule, world: World, call: Call) -> bool:
    """Violated by the `within`-th call if neither it nor an earlier one is `tool`."""
    calls = [*world.started(), call]
    return len(calls) == rule["within"] and not any(meets(rule["tool"], c, world, permits=True) for c in calls)


def eventually_owes(rule: Rule, world: World) -> bool:
    """Its time has not passed and it was not called."""
    calls = world.started()
    return len(calls) < rule["within"] and not any(meets(rule["tool"], c, world, permits=True) for c in calls)


def never_after(rule: Rule, world: World, call: Call) -> bool:
    """Violated by a forbidden call after a trigger started, whatever its outcome."""
    named = meets(rule["forbidden"], call, world, permits=False)
    return named and any(meets(rule["trigger"], c, world, permits=False) for c in world.started())


def forbids_after(rule: Rule, world: World, call: Call) -> bool:
    """Violated once `tool` started, unless every such call failed."""
    standing = [c for c in world.started() if c.failed is None and meets(rule["tool"], c, world, permits=False)]
    return bool(standing) and meets(rule["tools"], call, world, permits=False)
