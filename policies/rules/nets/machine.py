"""A Petri net as a rule: a call is let through where a transition that covers it is enabled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeAlias

from ...language.selectors import Scope, Slot, VirtualName
from ..machine import EVERY_SLOT, Ahead, Call, Finding, Judge, Machine, Output, State
from .written import Net, Transition

Validator: TypeAlias = Callable[[Call, Transition, "NetState"], bool | str | None]
"""False, or a text that says why, blocks the call; `state.meta` is the validator's to keep."""
OnResult: TypeAlias = Callable[[Call, Transition, Output, "NetState"], None]


class NetState(State):
    """Tokens by place, deferred transitions by the call they wait for, and what validators keep."""

    marking: dict[str, int] = {}
    waiting: dict[str, list[int]] = {}
    meta: dict[str, Any] = {}


class _View(NamedTuple):
    """A net under one name of a call: masks that say whether the name is free, which transitions name it,
    and which of them admit it.
    """

    free: int
    names: tuple[int, ...]
    admits: tuple[int, ...]
    named: int


class NetMachine(Machine):
    """Judges on the marking; every transition that covers a name of the call and is enabled lets it through.

    A call with several names must be acceptable under each, and fires a transition once.
    """

    kind = "net"
    state_type = NetState
    outcomes = EVERY_SLOT

    def __init__(
        self, net: Net, scope: Scope, validate: Validator | None = None, on_result: OnResult | None = None
    ) -> None:
        self.net = net
        self.validate = validate
        self.on_result = on_result
        self._slots: list[Slot] = []
        # The first declared fires, autos before manuals.
        self._order = sorted(range(len(net.transitions)), key=lambda n: net.transitions[n].type == "manual")
        self._by_name = [self._view(scope, own=True), self._view(scope, acts=True)]
        virtual = [self._view(scope, virtual_names=(name,)) for name in scope.virtual_names]
        self._views = [*self._by_name, *virtual]
        self.slots = tuple(self._slots)
        self.restricts = reduce(or_, (view.named for view in self._views))

    def _view(
        self, scope: Scope, *, own: bool = False, acts: bool = False, virtual_names: tuple[VirtualName, ...] = ()
    ) -> _View:
        def slot(selector: Any, permits: bool) -> int:
            if not selector:
                return 0
            made = Slot(selector, scope, permits=permits, own=own, acts=acts, virtual_names=virtual_names)
            self._slots.append(made)
            return 1 << (len(self._slots) - 1)

        free = slot(self.net.free_tools, permits=True)
        names = tuple(slot(t.tools, permits=False) for t in self.net.transitions)
        admits = tuple(slot(t.tools, permits=True) for t in self.net.transitions)
        return _View(free, names, admits, reduce(or_, names, 0))

    def fresh(self) -> NetState:
        """The initial marking, with what fires by itself fired."""
        state = NetState(marking={p: n for p, n in self.net.initial_marking.items() if n})
        self._advance(state.marking)
        return state

    def judge(self, state: NetState, call: Call, mask: int, now: int) -> Finding | None:
        """Refuse the call that a name blocks; ask for the one that a manual transition covers."""
        firing = self._firing(state.marking, mask)
        if firing is None:
            return self._blocked(state, call)
        manual = [self.net.transitions[n].name for n in firing if self.net.transitions[n].type == "manual"]
        if manual and not call.approved:
            return Finding(
                expected=f"a person's approval, which transition `{manual[0]}` takes",
                actual=f"nobody has approved `{call.name}`",
                details={"net": self.net.name, "transition": manual[0]},
                action="request_approval",
            )
        return None

    def _blocked(self, state: NetState, call: Call) -> Finding:
        marking = ", ".join(f"{place}: {n}" for place, n in state.marking.items()) or "no token"
        return Finding(
            expected=f"an enabled transition for `{call.name}`",
            actual=f"net `{self.net.name}` does not let `{call.name}` through as it stands ({marking})",
            details={"net": self.net.name, "marking": dict(state.marking)},
            suggestion="call first what puts tokens where its transition takes them",
        )

    def validating(self) -> Judge | None:
        """What asks the validator about each transition that the call fires, unless a person is asked first."""
        return self._validated if self.validate is not None else None

    def _validated(self, state: NetState, call: Call, mask: int, now: int) -> Finding | None:
        assert self.validate is not None
        transitions = [self.net.transitions[n] for n in self._firing(state.marking, mask) or ()]
        if any(t.type == "manual" for t in transitions) and not call.approved:
            return None
        for transition in transitions:
            answer = self.validate(call, transition, state)
            if answer is not None and answer is not True:
                why = answer if isinstance(answer, str) else "the validator refused"
                return Finding(f"transition `{transition.name}` to be valid", why, {"net": self.net.name})
        return None

    def _firing(self, marking: Mapping[str, int], mask: int) -> list[int] | None:
        """The transitions a call fires, or None if a name of it is blocked."""
        firing: list[int] = []
        left = dict(marking)
        for view in self._views:
            if mask & view.free or not mask & view.named:
                continue
            if any(mask & view.admits[n] for n in firing):
                continue
            enabled = (n for n in self._order if mask & view.admits[n] and self._enabled(left, n))
            chosen = next(enabled, None)
            if chosen is None:
                return None
            self._take(left, chosen)
            firing.append(chosen)
        return firing

    def _enabled(self, marking: Mapping[str, int], n: int) -> bool:
        inputs = self.net.transitions[n].inputs
        return all(marking.get(place, 0) >= inputs.count(place) for place in inputs)

    def _take(self, marking: dict[str, int], n: int) -> None:
        for place in self.net.transitions[n].inputs:
            marking[place] -= 1
            if not marking[place]:
                del marking[place]

    def _give(self, marking: dict[str, int], places: tuple[str, ...]) -> None:
        for place in places:
            tokens = marking.get(place, 0) + 1
            marking[place] = min(tokens, self.net.capacity.get(place, tokens))

    def _advance(self, marking: dict[str, int]) -> None:
        """Fire what names no tool while exactly one such transition is enabled; the reader refuses circles."""
        silent = [n for n, t in enumerate(self.net.transitions) if not t.tools]
        while silent:
            enabled = [n for n in silent if self._enabled(marking, n)]
            if len(enabled) != 1:
                return
            self._take(marking, enabled[0])
            self._give(marking, self.net.transitions[enabled[0]].outputs)

    def started(self, state: NetState, call: Call, mask: int, now: int) -> None:
        """Fire; deferred transitions take their inputs now and give their outputs on completion."""
        # A call of an earlier run may have had the same id: what waited for that waits for ever.
        state.waiting.pop(call.id, None)
        for n in self._firing(state.marking, mask) or ():
            self._take(state.marking, n)
            if self.net.transitions[n].deferred:
                state.waiting.setdefault(call.id, []).append(n)
            else:
                self._give(state.marking, self.net.transitions[n].outputs)
        self._advance(state.marking)

    def completed(self, state: NetState, call: Call, mask: int, output: Output) -> None:
        """Give the outputs of what was deferred."""
        for n in state.waiting.pop(call.id, ()):
            transition = self.net.transitions[n]
            self._give(state.marking, transition.outputs)
            if self.on_result is not None:
                self.on_result(call, transition, output, state)
        self._advance(state.marking)

    def failed(self, state: NetState, call: Call, mask: int) -> Finding | None:
        """Put back the inputs of what was deferred."""
        for n in state.waiting.pop(call.id, ()):
            self._give(state.marking, self.net.transitions[n].inputs)
        self._advance(state.marking)
        return None

    def closed(self, state: NetState, sure: int, maybe: int, now: int, ahead: Ahead) -> bool:
        """The tool's own name, or its portable one, is blocked whatever the input."""
        return any(self._closed(state, sure, maybe, view) for view in self._by_name)

    def _closed(self, state: NetState, sure: int, maybe: int, view: _View) -> bool:
        if maybe & view.free or not sure & view.named:
            return False
        return not any(maybe & view.admits[n] and self._enabled(state.marking, n) for n in self._order)

    def ended(self, state: NetState) -> bool:
        """Whether a terminal place holds a token: the net has run to its end."""
        return any(state.marking.get(place) for place in self.net.terminal_places)

    def describe(self, state: NetState) -> str:
        """The marking in words."""
        tokens = ", ".join(f"{place}: {n}" for place, n in state.marking.items()) or "no token"
        return tokens + (f"; {len(state.waiting)} calls in flight" if state.waiting else "")
