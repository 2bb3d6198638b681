"""Where a session stands in what is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..monitor.monitor import Monitor
from ..monitor.program.index import CompiledRule
from ..rules.nets.machine import NetState
from ..stream.calls import STRICTNESS
from ..values.globs import is_plain
from .picture import NodeState


class Marking:
    """What a monitor says of tools, rules and nets; without one, nothing."""

    def __init__(self, monitor: Monitor | None) -> None:
        self._monitor = monitor
        self._rules: dict[str, CompiledRule] = {}
        self._violated: frozenset[str] = frozenset()
        if monitor is not None:
            self._rules = {rule.id: rule for rule in monitor.state.rules.values()}
            report = monitor.report()
            self._violated = frozenset(id for id, rule in report.rules.items() if rule.status == "violated")

    def __bool__(self) -> bool:
        return self._monitor is not None

    def of_tool(self, name: str) -> NodeState:
        """Whether a tool could be called now."""
        if self._monitor is None or not is_plain(name):
            return ""
        return "open" if self._monitor.narrow([name]) else "shut"

    def of_rule(self, id: str, restricted: Iterable[str]) -> NodeState:
        """Whether a rule was violated, would refuse one of these tools now, or is satisfied."""
        rule = self._rules.get(id)
        if self._monitor is None or rule is None:
            return ""
        if id in self._violated:
            return "violated"
        if STRICTNESS[rule.action] < STRICTNESS["deny"]:
            return ""  # it never keeps a call out
        refused = any(id in self._monitor.refusing(name) for name in restricted if is_plain(name))
        return "shut" if refused else "open"

    def marking(self, id: str) -> Mapping[str, int] | None:
        """The tokens of a net; None if that is not known."""
        rule = self._rules.get(id)
        if self._monitor is None or rule is None:
            return None
        state = self._monitor.state.states[rule.number]
        return state.marking if isinstance(state, NetState) else None
