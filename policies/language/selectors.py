"""Selectors: the calls a rule covers, by tool names, aliases, virtual names, and conditions on the input.

A selector is bound to a tool's name once. For each call, either nothing is left (the name decides), or one predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeAlias

import msgspec

from ..values import paths, regexes
from ..values.globs import Matcher, glob_problems, matcher
from ..values.json_values import texts_in
from ..values.model_base import Issue, Name, Record, Where, circle, has_unclear
from .conditions import Condition, OutputRef
from .facts import CallNames, Facts
from .operators import Evidence
from .predicates import compile_conditions, condition_words, explained, met, unlisted


class ToolWhere(Record, frozen=True):
    """A tool, or several, whose input meets the conditions.

    Attributes:
        tool: The tool's name or pattern, or several.
        where: Conditions on the input; all of them must hold.
    """

    tool: Name | Sequence[Name]
    where: Annotated[Sequence[Condition], msgspec.Meta(min_length=1)] = ()

    def problems(self) -> Iterator[Issue]:
        return selector_problems(self.tool, ("tool",))


Selector: TypeAlias = Name | ToolWhere | Sequence[Name | ToolWhere]
"""Wherever a rule names a tool: `Tool`, `[ToolA, "mcp__*"]` or `{tool: ..., where: [...]}`."""

ListedTools: TypeAlias = Sequence[Name | ToolWhere]
"""Where it lists them."""


def items_of(selector: Any) -> tuple[str | ToolWhere, ...]:
    return tuple(selector) if isinstance(selector, tuple | list) else (selector,)


HUMAN = "human-approval"
"""The name that stands for a person's approval of the evaluated call where a rule lists earlier calls."""


def is_person(item: Any) -> bool:
    """Whether an item of a selector is a person's approval, not a tool."""
    return isinstance(item, str) and item.strip().casefold() == HUMAN


def person_problems(name: str, where: Where) -> Iterator[Issue]:
    """The problem of a person's approval where a tool is expected, if there is one."""
    if is_person(name):
        message = f"`{HUMAN}` is a person's approval, not a tool: use it in `first` of `before` and "
        yield where, f"{message}`immediately_before`, in `prior`, and in `require {HUMAN} before TOOL`"


def selector_problems(selector: Any, where: Where, *, person: bool = False) -> Iterator[Issue]:
    """The problems in a selector's names; its records check themselves. `person`: an approval is allowed."""
    if isinstance(selector, str):
        yield from glob_problems(selector, where)
        yield from person_problems(selector, where) if not person else ()
    elif isinstance(selector, tuple | list):
        if not selector:
            yield where, "names no tool"
        for n, item in enumerate(selector):
            if isinstance(item, str):
                yield from selector_problems(item, (*where, n), person=person)


class VirtualTool(Record, frozen=True):
    """One more name for a tool's call whose input matches.

    Attributes:
        tool: The tool whose calls it names.
        path: Where the text is in the input.
        match: A regular expression that it contains.
        as_: The name.
    """

    tool: Name
    path: str
    match: str
    as_: Name = msgspec.field(name="as")

    def problems(self) -> Iterator[Issue]:
        yield from selector_problems(self.tool, ("tool",))
        yield from person_problems(self.as_, ("as",))
        yield from paths.problems(self.path, ("path",))
        yield from regexes.problems(self.match, ("match",))


class VirtualName:
    """A virtual tool compiled: a name that a call of one of `tools` also goes by if its input matches."""

    __slots__ = ("_match", "_values_at", "name", "of_tool", "written")

    def __init__(self, virtual: VirtualTool, tools: Sequence[str]) -> None:
        self.written = virtual
        self.name = virtual.as_
        self.of_tool: Matcher = matcher(tools)
        self._values_at = paths.compile_path(virtual.path, loose=True)
        self._match = regexes.Regex(virtual.match).found_in

    def fits(self, input: Any) -> bool | None:
        """Whether a call with this input has the name; None if not all of the text is known."""
        values = self._values_at(input)
        if has_unclear(values):
            return None
        return any(self._match(text) for value in values for text in texts_in(value))


class Subject(Facts, Protocol):
    """The call that a bound selector evaluates."""

    def goes_by(self, virtual: VirtualName) -> bool | None:
        """Whether the call's input gives it this name; None if that is unknown."""
        ...


Bound: TypeAlias = Callable[[Subject], bool] | bool
"""A selector bound to a tool's name: True and False are decided by the name alone."""


class NameScope:
    """The names one policy gives: aliases that stand for several tools, and virtual tools."""

    def __init__(
        self, aliases: Mapping[str, Sequence[str]] | None = None, virtual_tools: Iterable[VirtualTool] = ()
    ) -> None:
        self._aliases = {name.casefold(): tuple(tools) for name, tools in (aliases or {}).items()}
        self.virtual_names = tuple(VirtualName(virtual, self.expand(virtual.tool)) for virtual in virtual_tools)

    def expand(self, names: str | Sequence[str]) -> tuple[str, ...]:
        """Names, with aliases replaced by their tools."""
        given = [names] if isinstance(names, str) else names
        found: dict[str, None] = {}
        opened: set[str] = set()
        waiting = [("", name) for name in reversed(given)]
        while waiting:
            parent, name = waiting.pop()
            folded = name.casefold()
            if folded not in self._aliases or folded == parent:
                found[name] = None
            elif folded not in opened:
                opened.add(folded)
                waiting += [(folded, tool) for tool in reversed(self._aliases[folded])]
        return tuple(found)

    def patterns(self, *selectors: Selector) -> tuple[str, ...]:
        """The names in selectors, aliases replaced."""
        items = [item for selector in selectors for item in items_of(selector)]
        return tuple(name for item in items for name in self.expand(item if isinstance(item, str) else item.tool))

    def same_names(self, other: NameScope) -> bool:
        """Whether aliases and virtual tools mean the same in both."""
        mine, others = ([each.written for each in scope.virtual_names] for scope in (self, other))
        return self._aliases == other._aliases and mine == others

    def circle(self) -> tuple[str, ...]:
        """Aliases that name one another, in a circle; empty if there is none. An alias may name itself."""
        folded = {alias: map(str.casefold, tools) for alias, tools in self._aliases.items()}
        return circle({a: [t for t in tools if t in self._aliases and t != a] for a, tools in folded.items()})


def any_of(bounds: Sequence[Bound]) -> Bound:
    if True in bounds:
        return True
    tests = [bound for bound in bounds if not isinstance(bound, bool)]
    if len(tests) > 1:
        return lambda call: any(test(call) for test in tests)
    return tests[0] if tests else False


def all_of(bounds: Sequence[Bound]) -> Bound:
    if False in bounds:
        return False
    tests = [bound for bound in bounds if not isinstance(bound, bool)]
    return (lambda call: all(test(call) for test in tests)) if tests else True


def _meets(bound: Bound, call: Subject) -> bool:
    return bound if isinstance(bound, bool) else bound(call)


class Slot:
    """One selector of a rule, compiled in its policy's scope.

    `allows`: an undecided condition doesn't match, instead of matching. A call is matched by its `own` name, the
    portable names of its `acts`, and `virtual_names` (by default all of the scope). `every_act`: a call that does
    several things matches by its own name, or if each of them matches. `evidence`: which of its calls are evidence.
    """

    def __init__(
        self,
        selector: Selector,
        scope: NameScope,
        *,
        allows: bool,
        own: bool = True,
        acts: bool = True,
        virtual_names: Sequence[VirtualName] | None = None,
        every_act: bool = False,
        evidence: Evidence = None,
    ) -> None:
        self.selector, self._expand = selector, scope.expand
        self._parts = [_Part(item, scope, allows, evidence) for item in items_of(selector)]
        self.own, self._acts, self._every_act, self.allows = own, acts, every_act, allows
        self.virtual_names = scope.virtual_names if virtual_names is None else virtual_names
        self.outputs: tuple[OutputRef, ...] = tuple(ref for part in self._parts for ref in part.outputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The patterns, aliases replaced."""
        return tuple(name for part in self._parts for name in part.names)

    @property
    def identity(self) -> Hashable:
        """Equal for slots of one policy that meet the same calls, whether they allow or deny."""
        selector = msgspec.json.encode(self.selector, order="deterministic")
        return selector, self.own, self._acts, self._every_act, tuple(each.name for each in self.virtual_names)

    def bind(self, names: CallNames) -> Bound:
        """The conditions still to check for a call with these names."""
        if self._every_act and len(names.acts) > 1:
            each = [self._any(names._replace(own=(), acts=(act,)), names) for act in names.acts]
            return any_of([self._any(names._replace(acts=()), names), all_of(each)])
        return self._any(names, names)

    def _any(self, looked_at: CallNames, names: CallNames) -> Bound:
        return any_of([self._bound(part, looked_at, names) for part in self._parts])

    def _bound(self, part: _Part, looked_at: CallNames, names: CallNames) -> Bound:
        return part.bind(self._seen(looked_at), [v for v in self.virtual_names if names.any(v.of_tool)])

    def _seen(self, names: CallNames) -> CallNames:
        acts = names.acts if self._acts and not (names.in_part and self.allows) else ()
        return names._replace(own=names.own if self.own else (), acts=acts)

    def conditions_on(self, names: CallNames) -> tuple[str, ...]:
        """The conditions on the input in the items that name a tool, in words."""
        return tuple(part.words for part in self._parts if part.words and names.any(part.matches))

    def unlisted(self, names: CallNames, call: Subject) -> list[str]:
        """The commands of a call that no item for its tool lists; an empty text for one that can't be named."""
        parts = [part for part in self._parts if part.words and names.any(part.matches)]
        each = [unlisted(part.conditions, call.input, call) for part in parts]
        return [one for one in each[0] if all(one in others for others in each)] if each else []

    def explained(self, names: CallNames, call: Subject) -> list[dict[str, Any]]:
        """Each condition of the items that name a call: whether it holds, and for which value."""
        conditions = [each for part in self._parts if self._bound(part, names, names) for each in part.conditions]
        return explained(conditions, call.input, call, allows=self.allows, loose=True, expand=self._expand)

    def items_met(self, names: CallNames, call: Subject) -> list[str | ToolWhere]:
        """The items that a call matches; none if it doesn't match the slot."""
        if not _meets(self.bind(names), call):
            return []
        return [part.item for part in self._parts if _meets(self._bound(part, names, names), call)]

    def met_by(self, names: CallNames, call: Subject) -> str:
        """How a call that matches the slot matches the first item, as the rest of a sentence; "" if by its name."""
        named = [(part, self._bound(part, names, names)) for part in self._parts]
        possible = [(part, bound) for part, bound in named if bound is not False]
        for part, bound in possible:
            if bound is True:
                return ""
            if len(possible) == 1 or bound(call):
                alias = "" if names.any(part.matches) else f" as {' or '.join(f'`{name}`' for name in part.names)}"
                found = met(part.conditions, call.input, call, self._expand)  # without what it does not meet
                return f"{alias}, and {condition_words(found)}" if found else alias
        return ""

    def forecast(self, names: CallNames, facts: Facts) -> tuple[bool, bool]:
        """Whether every call of these names matches now, and whether some call may."""
        found = [part.forecast(self._bound(part, names, names), self._seen(names), facts) for part in self._parts]
        return any(sure for sure, _ in found), any(maybe for _, maybe in found)


_ANY_INPUT = compile_conditions((), allows=True, loose=True)


class _Part:
    """One item of a selector: names, and conditions on the input."""

    def __init__(self, item: str | ToolWhere, scope: NameScope, allows: bool, evidence: Evidence) -> None:
        tools = item if isinstance(item, str) else item.tool
        self.item = item
        self.names = scope.expand(tools)
        self.matches = matcher(self.names)
        self._allows = allows
        self.conditions = where = () if isinstance(item, str) else item.where
        self.words = condition_words(where) if where else ""
        compiled = _ANY_INPUT
        if where:
            compiled = compile_conditions(where, allows=allows, loose=True, evidence=evidence, expand=scope.expand)
        self._compiled = compiled
        self._where = compiled.holds if where else None
        self.outputs = compiled.outputs

    def bind(self, names: CallNames, virtual_names: Sequence[VirtualName]) -> Bound:
        """Whether a call with these names matches: known from its name, or a predicate of the call."""
        where = self._where
        if names.any(self.matches):
            return True if where is None else lambda call: where(call.input, call)
        virtual = [v for v in virtual_names if self.matches(v.name)]
        if not virtual:
            return False

        def goes_by(call: Subject, name: VirtualName) -> bool:
            fits = call.goes_by(name)
            return not self._allows if fits is None else fits

        if where is None:
            return lambda call: any(goes_by(call, name) for name in virtual)
        return lambda call: any(goes_by(call, name) for name in virtual) and where(call.input, call)

    def forecast(self, bound: Bound, names: CallNames, facts: Facts) -> tuple[bool, bool]:
        if isinstance(bound, bool):
            return bound, bound
        return names.any(self.matches) and self._compiled.always(facts), not self._compiled.never(facts)
