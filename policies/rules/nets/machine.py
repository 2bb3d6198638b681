"""A Petri net as a rule: a call is let through where a transition that covers it is enabled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ...language.selectors import NameScope, Slot, VirtualName
from ...stream.calls import RefusalCause
from ..machine import EVERY_SLOT, Ahead, Finding, JudgeCall, JudgedCall, Machine, RuleState, ToolReturn
from ..record import LARGEST
from .written import Net, Transition

Validator: TypeAlias = Callable[[JudgedCall, Transition, "NetState"], bool | str | None]
"""False, or a text that says why, blocks the call; `state.meta` is the validator's to keep."""
OnResult: TypeAlias = Callable[[JudgedCall, Transition, ToolReturn, "NetState"], None]
"""Told of each deferred transition's success; it may keep something in `state.meta`."""
Validators: TypeAlias = Mapping[str, Validator]
OnResults: TypeAlias = Mapping[str, OnResult]
"""By the net's name."""
Tell: TypeAlias = Callable[[Transition], None]


class NetState(RuleState):
    """How a net stands in one session.

    Attributes:
        marking: Tokens by place.
        waiting: The deferred transitions that wait for a call's success, by the call's id.
        meta: What validators keep: theirs alone.
    """

    marking: dict[str, int] = {}
    waiting: dict[str, list[int]] = {}
    meta: dict[str, Any] = {}


class _View(NamedTuple):
    """A net under one name of a call: masks that say whether the name is free, whether transitions name it, and which
    of them admit it.
    """

    free: int
    named: int
    admits: tuple[int, ...]


class NetMachine(Machine):
    """Judges on the marking; every transition that covers a name of the call and is enabled lets it through.

    A call with several names must be acceptable under each, and fires a transition once.
    """

    kind = "net"
    state_type = NetState

    def __init__(
        self, net: Net, scope: NameScope, validate: Validator | None = None, on_result: OnResult | None = None
    ) -> None:
        self.net = net
        self.validate = validate
        self.on_result = on_result
        self._slots: list[Slot] = []
        self._needs = [tuple(Counter(t.inputs).items()) for t in net.transitions]
        self._silent = [n for n, t in enumerate(net.transitions) if not t.tools]
        # The first declared fires, autos before manuals.
        self._order = sorted(range(len(net.transitions)), key=lambda n: net.transitions[n].type == "manual")
        self._by_name = [self._view(scope, own=True), self._view(scope, acts=True)]
        virtual = [self._view(scope, virtual_names=(name,)) for name in scope.virtual_names]
        self._views = [*self._by_name, *virtual]
        self.slots = tuple(self._slots)
        self.restricts = sum(view.named for view in self._views)
        self.outcomes = EVERY_SLOT if any(t.deferred for t in net.transitions) else 0

    def _view(
        self, scope: NameScope, *, own: bool = False, acts: bool = False, virtual_names: tuple[VirtualName, ...] = ()
    ) -> _View:
        def slot(selector: Any, permits: bool) -> int:
            if not selector:
                return 0
            made = Slot(selector, scope, permits=permits, own=own, acts=acts, virtual_names=virtual_names)
            self._slots.append(made)
            return 1 << (len(self._slots) - 1)

        free = slot(self.net.free_tools, permits=True)
        named = sum(slot(t.tools, permits=False) for t in self.net.transitions)
        admits = tuple(slot(t.tools, permits=True) for t in self.net.transitions)
        return _View(free, named, admits)

    def fresh(self) -> NetState:
        """The initial marking, with what fires by itself fired."""
        return self.begin()[0]

    def begin(self) -> tuple[NetState, list[int]]:
        """The state of a session that has just begun, and the transitions that have fired by themselves."""
        state = NetState(marking={p: n for p, n in self.net.initial_marking.items() if n})
        return state, list(self._advance(state.marking))

    def judge(self, state: NetState, call: JudgedCall, mask: int, now: int) -> Finding | None:
        """Refuse the call that a name blocks; ask a person about the one that a manual transition covers."""
        firing = self.firing(state.marking, mask)
        if firing is None:
            return self._blocked(state, call, mask)
        manual = [self.net.transitions[n].name for n in firing if self.net.transitions[n].type == "manual"]
        if manual:
            return Finding(
                expected=f"a person's approval, which transition `{manual[0]}` takes",
                actual=f"nobody has approved `{call.name}`",
                details={"net": self.net.name, "transition": manual[0]},
                action="request_approval",
            )
        return None

    def _why(self, marking: Mapping[str, int], mask: int) -> RefusalCause:
        """What a blocked call lacks: a token that another call may give, that is used up, or that never was."""
        given = {place for transition in self.net.transitions for place in transition.outputs}
        covering = [n for view in self._views for n, admits in enumerate(view.admits) if mask & admits]
        lacking = [
            {place for place in self.net.transitions[n].inputs if not marking.get(place)} - given
            for n in covering
            if not self._enabled(marking, n)
        ]
        if not lacking:
            return "input"
        if not all(lacking):
            return "step"
        had = any(self.net.initial_marking.get(place) for places in lacking for place in places)
        return "budget" if had else "tool"

    def _blocked(self, state: NetState, call: JudgedCall, mask: int) -> Finding:
        marking = ", ".join(f"{place}: {n}" for place, n in state.marking.items()) or "no token"
        return Finding(
            expected=f"an enabled transition for `{call.name}`",
            actual=f"net `{self.net.name}` does not let `{call.name}` through as it stands ({marking})",
            details={"net": self.net.name, "marking": dict(state.marking)},
            suggestion="call first what puts tokens where its transition takes them",
            cause=self._why(state.marking, mask),
        )

    def validating(self) -> JudgeCall | None:
        """What asks the validator about each transition that the call fires, unless a person is asked first."""
        return self._validated if self.validate is not None else None

    def _validated(self, state: NetState, call: JudgedCall, mask: int, now: int) -> Finding | None:
        assert self.validate is not None
        transitions = [self.net.transitions[n] for n in self.firing(state.marking, mask) or ()]
        if any(t.type == "manual" for t in transitions) and not call.approved:
            return None
        for transition in transitions:
            answer = self.validate(call, transition, state)
            if answer is not None and answer is not True:
                why = answer if isinstance(answer, str) else "the validator refused"
                return Finding(f"transition `{transition.name}` to be valid", why, {"net": self.net.name})
        return None

    def firing(self, marking: Mapping[str, int], mask: int) -> list[int] | None:
        """The transitions a call fires, or None if a name of it is blocked."""
        firing: list[int] = []
        left = dict(marking)
        for view in self._views:
            if mask & view.free or not mask & view.named:
                continue
            admits = view.admits
            if firing and any(mask & admits[n] for n in firing):
                continue
            for n in self._order:
                if mask & admits[n] and self._enabled(left, n):
                    self._take(left, n)
                    firing.append(n)
                    break
            else:
                return None
        return firing

    def _enabled(self, marking: Mapping[str, int], n: int) -> bool:
        return all(marking.get(place, 0) >= tokens for place, tokens in self._needs[n])

    def _take(self, marking: dict[str, int], n: int) -> None:
        for place in self.net.transitions[n].inputs:
            marking[place] -= 1
            if not marking[place]:
                del marking[place]

    def _give(self, marking: dict[str, int], places: tuple[str, ...]) -> None:
        for place in places:
            tokens = marking.get(place, 0) + 1
            marking[place] = min(tokens, self.net.capacity.get(place, tokens))

    def _advance(self, marking: dict[str, int]) -> Iterator[int]:
        """Fire what names no tool while exactly one such transition is enabled; the reader refuses circles."""
        while self._silent:
            enabled = [n for n in self._silent if self._enabled(marking, n)]
            if len(enabled) != 1:
                return
            self._take(marking, enabled[0])
            self._give(marking, self.net.transitions[enabled[0]].outputs)
            yield enabled[0]

    def fire(self, state: NetState, id: str, firing: list[int]) -> list[int]:
        """A call starts and fires: deferred transitions take their inputs now and give their outputs on completion.

        Returns the transitions that fire, those by themselves too.
        """
        # A call of an earlier run may have had the same id: what waited for that waits for ever.
        state.waiting.pop(id, None)
        for n in firing:
            self._take(state.marking, n)
            if self.net.transitions[n].deferred:
                state.waiting.setdefault(id, []).append(n)
            else:
                self._give(state.marking, self.net.transitions[n].outputs)
        return [*firing, *self._advance(state.marking)]

    def finish(self, state: NetState, id: str, *, failed: bool, tell: Tell | None = None) -> list[int]:
        """A call ends: what it deferred gives its outputs, or puts its inputs back.

        Returns the transitions that fire by themselves then.
        """
        for n in state.waiting.pop(id, ()):
            transition = self.net.transitions[n]
            self._give(state.marking, transition.inputs if failed else transition.outputs)
            if tell is not None:
                tell(transition)
        return list(self._advance(state.marking))

    def started(self, state: NetState, call: JudgedCall, mask: int, now: int) -> None:
        """Fire."""
        self.fire(state, call.id, self.firing(state.marking, mask) or [])

    def completed(self, state: NetState, call: JudgedCall, mask: int, output: ToolReturn) -> None:
        """Give the outputs of what was deferred."""
        on_result = self.on_result
        tell = None if on_result is None else lambda transition: on_result(call, transition, output, state)
        self.finish(state, call.id, failed=False, tell=tell)

    def failed(self, state: NetState, call: JudgedCall, mask: int) -> Finding | None:
        """Put back the inputs of what was deferred."""
        self.finish(state, call.id, failed=True)
        return None

    def closed(self, state: NetState, sure: int, maybe: int, now: int, ahead: Ahead) -> bool:
        """The tool's own name, or its portable one, is blocked whatever the input."""
        return any(self._closed(state, sure, maybe, view) for view in self._by_name)

    def _closed(self, state: NetState, sure: int, maybe: int, view: _View) -> bool:
        if maybe & view.free or not sure & view.named:
            return False
        return not any(maybe & view.admits[n] and self._enabled(state.marking, n) for n in self._order)

    def seen_from(self, state: NetState, now: int) -> Hashable:
        """The tokens of each place as far as they are few, and the transitions that calls in flight hold back."""
        marking = tuple(min(state.marking.get(place, 0), LARGEST) for place in self.net.places)
        return (marking, tuple(sorted(n for waiting in state.waiting.values() for n in waiting)))

    def ended(self, state: NetState) -> bool:
        """Whether a terminal place holds a token: the net has run to its end."""
        return any(state.marking.get(place) for place in self.net.terminal_places)

    def describe(self, state: NetState) -> str:
        """The marking in words."""
        tokens = ", ".join(f"{place}: {n}" for place, n in state.marking.items()) or "no token"
        return tokens + (f"; {len(state.waiting)} calls in flight" if state.waiting else "")
