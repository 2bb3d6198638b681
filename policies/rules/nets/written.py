"""A net as it is written, and what can be wrong with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from ...language.record import Name, Natural, Positive, Record
from ...language.selectors import ToolWhere, selector_problems
from ...values.circles import circle
from ...values.complaints import Complaint, Where
from ..record import Cap, Roles, Statement, owes_nothing

MAX_SILENT = 10_000
"""How many transitions without tools may fire by themselves at once; a net past it refuses."""


class Transition(Record, frozen=True):
    """`auto` fires at the call, `manual` asks a person first; `deferred` gives its outputs on completion.

    Attributes:
        name: Its name within the net.
        type: `auto` fires at the call, `manual` asks a person first.
        inputs: The places it takes a token from; named twice, two.
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
        """Whether the places that it takes from hold enough tokens."""
        return all(marking.get(place, 0) >= tokens for place, tokens in Counter(self.inputs).items())

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types."""
        if self.tools:
            yield from selector_problems(self.tools, ("tools",))
        else:
            if self.type == "manual":
                yield ("type",), "a manual transition names the tools it asks about"
            if self.deferred:
                yield ("deferred",), "a deferred transition names the tools it waits for"


class Net(Statement, frozen=True):
    """A Petri net over tools; a token that a place has no `capacity` for is dropped.

    Attributes:
        name: The net's name, which is its rule id.
        places: The places.
        initial_marking: Tokens at the start, by place; 0 if not given.
        capacity: The most tokens a place may hold; more are dropped.
        transitions: The transitions.
        terminal_places: Places that a token must have reached by the end.
        free_tools: Tools that are not the net's business.
    """

    name: Name
    places: tuple[Name, ...]
    initial_marking: dict[str, Natural] = {}
    capacity: dict[str, Positive] = {}
    transitions: tuple[Transition, ...] = ()
    terminal_places: tuple[Name, ...] = ()
    free_tools: tuple[Name | ToolWhere, ...] = ()

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types: places that do not exist, names used twice, silent cycles."""
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

    def roles(self) -> Roles:
        """Transitions restrict their tools; those that put tokens somewhere take them as evidence."""
        named = [t for t in self.transitions if t.tools]
        free = (self.free_tools,) if self.free_tools else ()
        return Roles(tuple(t.tools for t in named), tuple(t.tools for t in named if t.outputs), free)

    def words(self) -> str:
        """The rule in words."""
        return f"net `{self.name}`"

    owes = owes_nothing

    def caps(self) -> Iterator[Cap]:
        """Tools of one transition only, each firing of which takes tokens that nothing gives back."""
        named = [t for t in self.transitions if t.tools]
        given = {place for t in self.transitions for place in t.outputs}
        if len(named) != 1 or self.free_tools or named[0].deferred:
            return
        for place in sorted(set(named[0].inputs) - given):
            yield Cap((named[0].tools,), self.initial_marking.get(place, 0) // named[0].inputs.count(place))

    @property
    def followable(self) -> bool:
        """Whether nothing is lost by looking only at calls that end before the next one comes."""
        return all(t.tools for t in self.transitions) or not any(t.deferred for t in self.transitions)

    def _places_named(self) -> Iterator[tuple[Where, str]]:
        """Every place that is spoken of, and where."""
        for field in ("initial_marking", "capacity"):
            yield from (((field, place), place) for place in getattr(self, field))
        yield from ((("terminal_places", n), place) for n, place in enumerate(self.terminal_places))
        for n, transition in enumerate(self.transitions):
            for side in ("inputs", "outputs"):
                yield from ((("transitions", n, side, m), p) for m, p in enumerate(getattr(transition, side)))


def _repeated(names: tuple[str, ...] | list[str], what: str, where: tuple[str]) -> Iterator[Complaint]:
    seen: set[str] = set()
    for n, name in enumerate(names):
        if name in seen:
            yield (*where, n), f"{what} `{name}` is named twice"
        seen.add(name)


def silent_cycle(transitions: tuple[Transition, ...]) -> tuple[str, ...]:
    """A circle of transitions without tools, each feeding the next, by name; empty if there is none."""
    silent = [t for t in transitions if not t.tools]
    takers: dict[str, list[str]] = {}
    for transition in silent:
        for place in transition.inputs:
            takers.setdefault(place, []).append(transition.name)
    feeds = {t.name: [name for place in t.outputs for name in takers.get(place, ())] for t in silent}
    feeds |= {t.name: [*feeds[t.name], t.name] for t in silent if not t.inputs}
    return circle(feeds)
