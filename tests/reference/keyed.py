"""`key`: one independent instance of a rule for each value; calls without a value share one."""

from .selecting import ids
from .trace import Call, World


def keys(path: str, call: Call) -> list[str]:
    """The instances to which a call belongs."""
    return ids(path, call.input) or [""]


def instances(path: str, world: World) -> list[World]:
    """The session as each instance sees it."""
    values = dict.fromkeys(key for call in world.calls for key in keys(path, call))
    return [instance(path, value, world) for value in values]


def instance(path: str, value: str, world: World) -> World:
    """The session as the instance of one value sees it."""
    return world.only([call for call in world.calls if value in keys(path, call)])
