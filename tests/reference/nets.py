"""Nets: the whole session is replayed from the initial marking for every query."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from .selecting import meets, names
from .trace import Call, World

VALIDATED = "m"
"""The net to which `valid` is attached as its validator."""


def valid(input: Any, transition: str, marking: Mapping[str, int], supplied: int) -> bool:
    """The validator's result; `supplied` counts the deferred transitions whose calls have completed."""
    return not (transition == "t0" and input.get("t") == "x") and marking.get("z", 0) < 3 and supplied < 2


def blocked_or_manual(net: Any, world: World, call: Call) -> str | None:
    """None if the call is free, unrelated or gated by automatic transitions; else `blocked` or `manual`, even if
    approved.
    """
    firing = _firing(net, _played(net, world)[0], world, call)
    if firing is None:
        return "blocked"
    return "manual" if any(t.get("type") == "manual" for t in firing) else None


def invalid(net: Any, world: World, call: Call) -> bool:
    """Whether the net's validator denies a call that fires a transition; a person is asked before it is called."""
    answer = blocked_or_manual(net, world, call)
    if net["name"] != VALIDATED or answer == "blocked" or (answer == "manual" and not call.approved):
        return False
    marking, supplied = _played(net, world)
    firing = _firing(net, marking, world, call) or ()
    return not all(valid(call.input, t["name"], marking, supplied) for t in firing)


def names_it(net: Any, world: World, call: Call) -> bool:
    """Whether a transition names the call."""
    return any(meets(t["tools"], call, world, permits=False) for t in net["transitions"] if t.get("tools"))


def _firing(net: Any, marking: Counter[str], world: World, call: Call) -> list[Any] | None:
    """The transitions that fire for a call, under each of its names; None if one of them is blocked."""
    left, firing = Counter(marking), []
    for name in names(call, world):
        if meets(net.get("free_tools", []), call, world, permits=True, of=[name]):
            continue
        mine = [
            t
            for t in net["transitions"]
            if t.get("tools") and meets(t["tools"], call, world, permits=False, of=[name])
        ]
        covering = [t for t in mine if meets(t["tools"], call, world, permits=True, of=[name])]
        if not mine or any(t in firing for t in covering):
            continue
        autos_first = sorted(covering, key=lambda t: t.get("type") == "manual")
        chosen = next((t for t in autos_first if _enabled(t, left)), None)
        if chosen is None:
            return None
        left -= Counter(chosen["inputs"])
        firing.append(chosen)
    return firing


def _enabled(transition: Any, marking: Counter[str]) -> bool:
    return all(marking[place] >= n for place, n in Counter(transition["inputs"]).items())


def _played(net: Any, world: World) -> tuple[Counter[str], int]:
    """The marking after all events, and how many deferred transitions produced their outputs."""
    marking, waiting, supplied = Counter(net["initial_marking"]), dict[int, list[Any]](), 0
    _silent(net, marking)
    moments = [(at, what, c) for c in world.calls for what, at in _life(c) if at is not None]
    for _, what, call in sorted(moments, key=lambda moment: moment[0]):
        if what == "started":
            for transition in _firing(net, marking, world, call) or ():
                marking.subtract(transition["inputs"])
                if transition.get("deferred"):
                    waiting.setdefault(call.requested, []).append(transition)
                else:
                    marking.update(transition["outputs"])
        else:
            for transition in waiting.pop(call.requested, ()):
                supplied += what == "completed"
                marking.update(transition["outputs" if what == "completed" else "inputs"])
        _silent(net, marking)
    return marking, supplied


def _life(call: Call) -> list[tuple[str, int | None]]:
    return [("started", call.started), ("completed", call.completed), ("failed", call.failed)]


def _silent(net: Any, marking: Counter[str]) -> None:
    while len(able := [t for t in net["transitions"] if not t.get("tools") and _enabled(t, marking)]) == 1:
        marking.subtract(able[0]["inputs"])
        marking.update(able[0]["outputs"])
