"""`net`: a Petri net as a rule, which allows a call if a transition that covers it is enabled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ..errors import RefusalCause, wrong_type
from ..events.calls import ToolCall
from ..language.facts import CallNames
from ..language.operators import Evidence
from ..language.selectors import Bound, NameScope, Slot, Subject, ToolWhere, VirtualName, selector_problems
from ..values.amounts import counted
from ..values.foreign_code import isolated
from ..values.model_base import Issue, Name, Natural, Positive, Record, Where, circle
from .machine import EVERY_SLOT, Evaluate, EvaluatedCall, Finding, Machine, RuleState, ToolReturn
from .rule import LARGEST, Cap, CheckAnswer, Profile, Statement, denial

MAX_SILENT = 10_000
"""How many transitions without tools may fire by themselves at once; beyond that the net denies calls."""

_SUGGESTIONS: dict[RefusalCause, str] = {
    "step": "call first what puts tokens where its transition takes them",
    "budget": "do without more calls of `{tool}`, or give the net more tokens",
    "tool": "do without `{tool}`, or change the net",
    "input": "change the input, or the net",
}


class Transition(Record, frozen=True):
    """`auto` fires at the call, `manual` asks a person first; `deferred` gives its outputs on completion.

    Attributes:
        name: Its name within the net.
        type: `auto` fires at the call, `manual` asks a person first.
        inputs: The places it takes a token from; a place named twice gives two.
        outputs: The places it gives a token to.
        tools: The calls it covers; without any it fires by itself as soon as it is enabled.
        deferred: Its outputs are given when the call succeeds, not when it starts.
    """

    name: Name
    type: Literal["auto", "manual"] = "auto"
    inputs: tuple[Name, ...] = ()
    outputs: tuple[Name, ...] = ()
    tools: tuple[Name | ToolWhere, ...] = ()
    deferred: bool = False

    def enabled(self, marking: Mapping[str, int]) -> bool:
        """Whether its input places hold enough tokens."""
        return all(marking.get(place, 0) >= tokens for place, tokens in Counter(self.inputs).items())

    def problems(self) -> Iterator[Issue]:
        if self.tools:
            yield from selector_problems(self.tools, ("tools",))
        else:
            if self.type == "manual":
                yield ("type",), "a manual transition names the tools it asks about"
            if self.deferred:
                yield ("deferred",), "a deferred transition names the tools it waits for"


class Net(Statement, frozen=True):
    """A Petri net over tools; tokens beyond a place's `capacity` are dropped.

    Attributes:
        name: The net's name, which is its rule id.
        places: The places.
        initial_marking: Tokens at the start, by place; 0 if not given.
        capacity: The most tokens a place may hold; more are dropped.
        transitions: The transitions.
        terminal_places: Places where a net ends: with a token in one, `ended_nets` in the metadata of the result has
            the net. They deny nothing, and nothing must reach them.
        free_tools: Tools that the net leaves alone.
    """

    name: Name
    places: tuple[Name, ...]
    initial_marking: dict[str, Natural] = {}
    capacity: dict[str, Positive] = {}
    transitions: tuple[Transition, ...] = ()
    terminal_places: tuple[Name, ...] = ()
    free_tools: tuple[Name | ToolWhere, ...] = ()

    type = "net"

    def problems(self) -> Iterator[Issue]:
        """Problems that the field types alone do not rule out: unknown places, names used twice, silent cycles."""
        yield from super().problems()
        yield from _repeated(self.places, "place", ("places",))
        yield from _repeated([t.name for t in self.transitions], "transition", ("transitions",))
        places = set(self.places)
        missing = ((where, place) for where, place in self._places_named() if place not in places)
        yield from ((where, f"net `{self.name}` has no place `{place}`") for where, place in missing)
        if self.free_tools:
            yield from selector_problems(self.free_tools, ("free_tools",))
        if any(not t.tools for t in self.transitions):
            large = (place for place, tokens in self.initial_marking.items() if tokens >= MAX_SILENT)
            yield from (
                (
                    ("initial_marking", place),
                    f"a net with transitions without tools starts with less than {MAX_SILENT:,} tokens",
                )
                for place in large
            )
        if cycle := silent_cycle(self.transitions):
            yield ("transitions",), f"transitions without tools go round in a circle: {' -> '.join(cycle)}"

    def profile(self) -> Profile:
        """Transitions restrict their tools, and take the calls as evidence if they have outputs."""
        named = [t for t in self.transitions if t.tools]
        # Then sequential calls, each ended before the next, come to every marking.
        followable = len(named) == len(self.transitions) or not any(t.deferred for t in self.transitions)
        return Profile(
            words=f"net `{self.name}`",
            restricts=tuple(t.tools for t in named),
            evidence=tuple(t.tools for t in named if t.outputs),
            others=(self.free_tools,) if self.free_tools else (),
            own_action="request_approval" if any(t.type == "manual" for t in self.transitions) else None,
            caps=tuple(self._caps(named[0])) if len(named) == 1 and not self.free_tools else (),
            abstraction=(self,) if followable else (),
        )

    def _caps(self, only: Transition) -> Iterator[Cap]:
        """Bounds on tools of only one transition, whose firing takes tokens that nothing gives back."""
        given = {place for t in self.transitions for place in t.outputs}
        for place in sorted(set(only.inputs) - given) if not only.deferred else ():
            yield Cap((only.tools,), self.initial_marking.get(place, 0) // only.inputs.count(place))

    def _places_named(self) -> Iterator[tuple[Where, str]]:
        """Every place that is named, and where."""
        for field in ("initial_marking", "capacity"):
            yield from (((field, place), place) for place in getattr(self, field))
        yield from ((("terminal_places", n), place) for n, place in enumerate(self.terminal_places))
        for n, transition in enumerate(self.transitions):
            for side in ("inputs", "outputs"):
                yield from ((("transitions", n, side, m), p) for m, p in enumerate(getattr(transition, side)))


def _repeated(names: tuple[str, ...] | list[str], what: str, where: tuple[str]) -> Iterator[Issue]:
    seen: set[str] = set()
    for n, name in enumerate(names):
        if name in seen:
            yield (*where, n), f"{what} `{name}` is named twice"
        seen.add(name)


def silent_cycle(transitions: tuple[Transition, ...]) -> tuple[str, ...]:
    """The names of a cycle of transitions without tools; empty if there is none."""
    silent = [t for t in transitions if not t.tools]
    takers: dict[str, list[str]] = {}
    for transition in silent:
        for place in transition.inputs:
            takers.setdefault(place, []).append(transition.name)
    feeds = {t.name: [name for place in t.outputs for name in takers.get(place, ())] for t in silent}
    feeds |= {t.name: [*feeds[t.name], t.name] for t in silent if not t.inputs}
    return circle(feeds)


Validator: TypeAlias = Callable[[ToolCall, Transition, "NetState"], CheckAnswer]
"""False, a text that says why, or a `Refuse` blocks the call; the validator may keep data in `state.meta`."""

OnResult: TypeAlias = Callable[[ToolCall, Transition, ToolReturn, "NetState"], None]
"""Called at each deferred transition's success; it may keep data in `state.meta`."""

Mapper: TypeAlias = Callable[[ToolCall], str | Collection[str] | None]
"""Returns more names of a call for a net; None for none."""

Validators: TypeAlias = Mapping[str, Validator]
OnResults: TypeAlias = Mapping[str, OnResult]
Mappers: TypeAlias = Mapping[str, Mapper]
"""By the net's name."""

Stance: TypeAlias = Literal["free", "abstain", "gated", "blocked"]
"""A net's answer to a call."""

OnFinished: TypeAlias = Callable[[Transition], None]


class NetState(RuleState):
    """The state of a net in one session.

    Attributes:
        marking: Tokens by place.
        waiting: The deferred transitions that wait for a call's success, by the call's id.
        meta: The validators' own state; the net does not read it.
        overrun: Whether more than `MAX_SILENT` transitions had to fire by themselves; the net denies from then on.
    """

    marking: dict[str, int] = {}
    waiting: dict[str, list[int]] = {}
    meta: dict[str, Any] = {}
    overrun: bool = False


class _View(NamedTuple):
    """A net under one name of a call, as masks: is the name free, do transitions name it, which of them allow it."""

    free: int
    named: int
    allows: tuple[int, ...]


class _MappedSlot(Slot):
    """The calls to which the net's mapper gives a name that the net uses."""

    def __init__(self, scope: NameScope, meets: Callable[[Any], bool]) -> None:
        super().__init__((), scope, allows=False)
        self._meets = meets

    def bind(self, names: CallNames) -> Bound:
        return self._meets


class NetMachine(Machine, evaluates=Net):
    """Evaluates a call on the marking: an enabled transition that covers its name allows it.

    A call with several names must be allowed under each, and fires a transition once.
    """

    kind = "net"
    state_type = NetState

    def __init__(
        self,
        net: Net,
        scope: NameScope,
        validate: Validator | None = None,
        on_result: OnResult | None = None,
        mapper: Mapper | None = None,
    ) -> None:
        self.net, self._scope = net, scope
        self.validate = validate
        self.on_result = on_result
        self.mapper = mapper
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
        if mapper is not None:
            self._slots = []
            self._mapped = self._view(scope, own=True)
            self.restricts |= 1 << len(self.slots)
            self.slots = (*self.slots, _MappedSlot(scope, self._named_by_mapper))
        self.outcomes = EVERY_SLOT if any(t.deferred for t in net.transitions) else 0

    def with_hooks(self, hooks: Mapping[str, Any]) -> NetMachine:
        """The same net; these functions replace its own."""
        own = {"validate": self.validate, "on_result": self.on_result, "mapper": self.mapper}
        return NetMachine(self.net, self._scope, **{**own, **hooks})

    def _view(
        self, scope: NameScope, *, own: bool = False, acts: bool = False, virtual_names: tuple[VirtualName, ...] = ()
    ) -> _View:
        def slot(selector: Any, allows: bool, evidence: Evidence = None) -> int:
            if not selector:
                return 0
            seen: dict[str, Any] = {"own": own, "acts": acts, "virtual_names": virtual_names}
            made = Slot(selector, scope, allows=allows, evidence=evidence, **seen)
            self._slots.append(made)
            return 1 << (len(self._slots) - 1)

        free = slot(self.net.free_tools, allows=True)
        named = sum(slot(t.tools, allows=False) for t in self.net.transitions)
        allows = tuple(
            slot(t.tools, allows=True, evidence="success" if t.deferred else None) for t in self.net.transitions
        )
        return _View(free, named, allows)

    def _views_of(self, call: EvaluatedCall | None, mask: int) -> Iterator[tuple[_View, int]]:
        """The net under each name of a call, with the slots it matches there. Raises as the mapper does."""
        for view in self._views:
            yield view, mask
        if call is not None and self.mapper is not None:
            for name in self._mapped_names(call, self.mapper):
                bound = ((1 << n, slot.bind(CallNames((name,)))) for n, slot in enumerate(self._slots))
                yield self._mapped, sum(bit for bit, met in bound if met is True or (met and met(call)))

    def _mapped_names(self, call: EvaluatedCall, mapper: Mapper) -> Collection[str]:
        found: tuple[str, ...] | None = call.memo.get(self)
        if found is None:
            given = isolated(mapper, call.own)
            names = () if given is None else (given,) if isinstance(given, str) else given
            if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(n, str) for n in names):
                raise TypeError(
                    wrong_type(f"a name, or a list of names, from the mapper of `{self.net.name}`", given)
                )
            found = call.memo[self] = tuple(dict.fromkeys(names))
        return found

    def _named_by_mapper(self, call: Subject) -> bool:
        """Whether the net must evaluate a call because of its mapper's answer or error."""
        evaluated: Any = call
        try:
            return any(mask & view.named for view, mask in self._views_of(evaluated, 0))
        except Exception:
            return True

    def resolve(self, state: NetState, call: EvaluatedCall, mask: int) -> Stance:
        """The net's answer to a call in its current state; validators are not asked."""
        try:
            views = list(self._views_of(call, mask))
            firing = self.firing(state.marking, mask, call)
        except Exception:
            return "blocked"
        named = any(met & view.named for view, met in views)
        if firing is None or (named and state.overrun):
            return "blocked"
        if firing:
            return "gated"
        return "free" if any(met & view.free for view, met in views) else "abstain"

    def initial_state(self) -> NetState:
        return self.begin()[0]

    def begin(self) -> tuple[NetState, list[int]]:
        """The state of a new session, and the transitions that have fired by themselves."""
        state = NetState(marking={p: n for p, n in self.net.initial_marking.items() if n})
        return state, self._advance(state)

    def evaluate(self, state: NetState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """Deny a call that is blocked under a name; request approval of one that a manual transition covers."""
        if state.overrun:
            return Finding(
                expected=f"at most {MAX_SILENT:,} transitions that fire by themselves at once",
                actual=f"net `{self.net.name}` had more to fire, and denies every call from then on",
                details={"net": self.net.name},
                suggestion="give places a `capacity`",
                cause="step",
            )
        firing = self.firing(state.marking, mask, call)
        if firing is None:
            return self._blocked(state, call, mask)
        manual = [self.net.transitions[n].name for n in firing if self.net.transitions[n].type == "manual"]
        if manual:
            return Finding(
                expected=f"a person's approval before `{call.name}`",
                actual=f"`{call.name}` needs a person's approval",
                details={"net": self.net.name, "transition": manual[0]},
                action="request_approval",
            )
        return None

    def _cause(self, marking: Mapping[str, int], mask: int, call: EvaluatedCall) -> RefusalCause:
        """The cause of a denial: a token that another call can give, that is used up, or that never existed."""
        given = {place for transition in self.net.transitions for place in transition.outputs}
        views = self._views_of(call, mask)
        covering = [n for view, met in views for n, allows in enumerate(view.allows) if met & allows]
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

    def _blocked(self, state: NetState, call: EvaluatedCall, mask: int) -> Finding:
        marking = ", ".join(f"{place}: {n}" for place, n in state.marking.items()) or "no token"
        cause = self._cause(state.marking, mask, call)
        return Finding(
            expected=f"an enabled transition for `{call.name}`",
            actual=f"net `{self.net.name}` does not let `{call.name}` through as it stands ({marking})",
            details={"net": self.net.name, "marking": dict(state.marking)},
            suggestion=_SUGGESTIONS[cause].format(tool=call.name),
            cause=cause,
        )

    def validating(self) -> Evaluate | None:
        """The validator for each transition that the call fires, unless a person must approve it first."""
        return self._validated if self.validate is not None else None

    def _validated(self, state: NetState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        assert self.validate is not None
        transitions = [self.net.transitions[n] for n in self.firing(state.marking, mask, call) or ()]
        if any(t.type == "manual" for t in transitions) and not call.approved:
            return None
        for transition in transitions:
            answer = isolated(self.validate, call.own, transition, state)
            found = denial(
                answer,
                expected=f"transition `{transition.name}` to be valid",
                otherwise="the validator refused",
                details={"net": self.net.name},
            )
            if found is not None and isinstance(answer, str):  # why, for the model as well, unless the net says it
                return msgspec.structs.replace(found, tell_model=self.net.tell_model or answer)
            if found is not None:
                return found
        return None

    def firing(self, marking: Mapping[str, int], mask: int, call: EvaluatedCall | None = None) -> list[int] | None:
        """The transitions that a call fires, None if it is blocked under a name; no `call`: no mapper."""
        firing: list[int] = []
        left = dict(marking)
        for view, met in self._views_of(call, mask):
            if met & view.free or not met & view.named:
                continue
            allows = view.allows
            if firing and any(met & allows[n] for n in firing):
                continue
            for n in self._order:
                if met & allows[n] and self._enabled(left, n):
                    self._consume(left, n)
                    firing.append(n)
                    break
            else:
                return None
        return firing

    def _enabled(self, marking: Mapping[str, int], n: int) -> bool:
        return all(marking.get(place, 0) >= tokens for place, tokens in self._needs[n])

    def _consume(self, marking: dict[str, int], n: int) -> None:
        for place in self.net.transitions[n].inputs:
            marking[place] -= 1
            if not marking[place]:
                del marking[place]

    def _add_tokens(self, marking: dict[str, int], places: tuple[str, ...]) -> None:
        for place in places:
            tokens = marking.get(place, 0) + 1
            marking[place] = min(tokens, self.net.capacity.get(place, tokens))

    def _advance(self, state: NetState) -> list[int]:
        """Fire transitions without tools while exactly one is enabled; cycles were rejected when the net was read."""
        fired: list[int] = []
        while self._silent and not state.overrun:
            enabled = [n for n in self._silent if self._enabled(state.marking, n)]
            if len(enabled) != 1:
                break
            self._consume(state.marking, enabled[0])
            self._add_tokens(state.marking, self.net.transitions[enabled[0]].outputs)
            fired.append(enabled[0])
            state.overrun = len(fired) >= MAX_SILENT
        return fired

    def fire(self, state: NetState, id: str, firing: list[int]) -> list[int]:
        """Fire the transitions of a call that starts; deferred ones take their inputs now and give their outputs on
        completion. Returns all that fire, those by themselves too.
        """
        # A call of an earlier run may have had the same id: what waited for that waits for ever.
        state.waiting.pop(id, None)
        for n in firing:
            self._consume(state.marking, n)
            if self.net.transitions[n].deferred:
                state.waiting.setdefault(id, []).append(n)
            else:
                self._add_tokens(state.marking, self.net.transitions[n].outputs)
        return [*firing, *self._advance(state)]

    def finish(self, state: NetState, id: str, *, failed: bool, on_finished: OnFinished | None = None) -> list[int]:
        """End a call: its deferred transitions give their outputs or, if it `failed`, put their inputs back. Returns
        the transitions that then fire by themselves.
        """
        for n in state.waiting.pop(id, ()):
            transition = self.net.transitions[n]
            self._add_tokens(state.marking, transition.inputs if failed else transition.outputs)
            if on_finished is not None:
                on_finished(transition)
        return self._advance(state)

    def started(self, state: NetState, call: EvaluatedCall, mask: int, now: int) -> None:
        self.fire(state, call.id, self.firing(state.marking, mask, call) or [])

    def completed(self, state: NetState, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        """Give the outputs of deferred transitions."""
        on_result = self.on_result
        on_finished = (
            None if on_result is None else lambda transition: isolated(on_result, call.own, transition, output, state)
        )
        self.finish(state, call.id, failed=False, on_finished=on_finished)

    def failed(self, state: NetState, call: EvaluatedCall, mask: int) -> Finding | None:
        """Put back the inputs of deferred transitions."""
        self.finish(state, call.id, failed=True)
        return None

    def denies_all(self, state: NetState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        """The tool's own name, or its portable one, is blocked whatever the input."""
        if state.overrun and sure & self.restricts:
            return True
        return any(self._closed(state, sure, maybe, view) for view in self._by_name)

    def _closed(self, state: NetState, sure: int, maybe: int, view: _View) -> bool:
        if maybe & view.free or not sure & view.named:
            return False
        return not any(maybe & view.allows[n] and self._enabled(state.marking, n) for n in self._order)

    def equivalence_key(self, state: NetState, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """The tokens of each place, up to a bound, and the deferred transitions of each running call."""
        marking = tuple(min(state.marking.get(place, 0), LARGEST) for place in self.net.places)
        return (state.overrun, marking, tuple(sorted((id, tuple(waiting)) for id, waiting in state.waiting.items())))

    def ended(self, state: NetState) -> bool:
        """Whether a terminal place holds a token."""
        return any(state.marking.get(place) for place in self.net.terminal_places)

    def describe(self, state: NetState) -> str:
        tokens = ", ".join(f"{place}: {n}" for place, n in state.marking.items()) or "no token"
        return tokens + (f"; {counted(len(state.waiting), 'call')} in flight" if state.waiting else "")


def net_status(net: Net, marking: Mapping[str, int]) -> str:
    """The marking of a net, and which of the tools that it names it allows now."""
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
    """Tools, each once, with those that need a person's approval marked."""
    shown = (
        f"{tool} (a person is asked)" if transition.type == "manual" else tool
        for transition in transitions
        for tool in _tools(transition)
    )
    return ", ".join(dict.fromkeys(shown))
