"""Where a net stands, in words that a prompt can carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...language.selectors import NameScope
from .written import Net, Transition


def net_status(net: Net, marking: Mapping[str, int]) -> str:
    """The marking of a net, and which tools it lets through now; tools it does not name are not its business."""
    tokens = ", ".join(f"{place}: {marking[place]}" for place in net.places if marking.get(place))
    now = [t for t in net.transitions if t.tools and t.enabled(marking)]
    names = {name for transition in now for name in _tools(transition)}
    later = [t for t in net.transitions if t.tools and not set(_tools(t)) <= names]
    parts = [f"{net.name}: {tokens or 'no token'}"]
    if now:
        parts.append(f"now: {_tool_names(now)}")
    if later:
        parts.append(f"not now: {_tool_names(later)}")
    if any(marking.get(place) for place in net.terminal_places):
        parts.append("it has run to its end")
    return "; ".join(parts)


def _tools(transition: Transition) -> tuple[str, ...]:
    return NameScope().patterns(*transition.tools)


def _tool_names(transitions: Iterable[Transition]) -> str:
    """Tools, each once, with who has to agree."""
    shown = (
        f"{tool} (a person is asked)" if transition.type == "manual" else tool
        for transition in transitions
        for tool in _tools(transition)
    )
    return ", ".join(dict.fromkeys(shown))
