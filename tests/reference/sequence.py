"""`sequence` and `forbidden_sequence`."""

from .selecting import meets, names
from .trace import Call, Rule, World


def _reached(rule: Rule, world: World) -> int:
    """How many members were called, each after its predecessor."""
    reached = 0
    for call in world.started():
        if reached < len(rule["tools"]) and meets(rule["tools"][reached], call, world, permits=False):
            reached += 1
    return reached


def sequence(rule: Rule, world: World, call: Call) -> bool:
    """Violated by a member before its predecessor, under any name of the call; if strict, by other calls
    in between.
    """
    members, reached = rule["tools"], _reached(rule, world)
    if reached == len(members):
        return False
    if rule.get("strict") and reached and not meets(members[reached], call, world, permits=False):
        return True
    for name in names(call, world):
        met = [n for n, member in enumerate(members) if meets(member, call, world, permits=False, of=[name])]
        if met and min(met) > reached:
            return True
    return False


def sequence_owes(rule: Rule, world: World) -> bool:
    """Started and unfinished."""
    return 0 < _reached(rule, world) < len(rule["tools"])


def forbidden_sequence(rule: Rule, world: World, call: Call) -> bool:
    """Violated by the call that completes it: as a contiguous suffix, or with gaps."""
    members, calls = list(rule["sequence"]), [*world.started(), call]
    if rule.get("adjacency", "strict") == "strict":
        suffix = calls[-len(members) :]
        pairs = zip(members, suffix, strict=False)
        return len(suffix) == len(members) and all(meets(m, c, world, permits=False) for m, c in pairs)
    if not meets(members[-1], call, world, permits=False):
        return False
    awaited = members[:-1]
    for past in calls[:-1]:
        if awaited and meets(awaited[0], past, world, permits=False):
            awaited.pop(0)
    return not awaited
