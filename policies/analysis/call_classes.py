"""Kinds of calls: a name, and what is known of the input. Every call a policy can tell apart is of some kind.

A virtual name and a list of conditions are *predicates* of an input. Conditions are taken to be met by some input,
so that what is denied is denied for certain.

`ToolKinds` has the kinds of calls of an agent's own tools: their portable names, acts that an input decides, and
places of inputs.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..events.run_context import PORTABLE, Tool, needed
from ..language.conditions import Condition, has_references
from ..language.facts import NO_TOOLS, CallNames, NamingKind, ToolTable
from ..language.selectors import NameScope, Selector, ToolWhere, VirtualName, items_of
from ..policy import Policy, members_of, virtual_tools_of
from ..stack.clauses import Clause
from ..values.globs import is_plain, matcher, overlaps
from ..values.paths import compile_path, path_steps
from ..values.work_budget import Work
from .values import placed

ANY_OTHER = "any other tool"
"""How a name is shown that no pattern but `*` matches."""


class NameUniverse:
    """The universe of names for some patterns; names are without regard to case.

    `complete` is False where there are too many overlaps to list: then a glob may match more than is known.
    """

    def __init__(self, patterns: Iterable[str], work: Work | None = None) -> None:
        self._work = work or Work()
        self._written: dict[str, str] = {}
        given = dict.fromkeys(patterns)
        for pattern in given:
            if is_plain(pattern):
                self._written.setdefault(pattern.casefold(), pattern)
        self.plain = frozenset(self._written)
        self.globs = tuple(dict.fromkeys(p.casefold() for p in given if not is_plain(p)))
        samples, self.complete = overlaps(self.globs, taken=self.plain, work=self._work)
        self.all = (*self._written, *samples)
        self._matching: dict[str, frozenset[str]] = {}

    def matching(self, patterns: Iterable[str]) -> frozenset[str]:
        """The names that any of the patterns matches."""
        found: frozenset[str] = frozenset()
        for pattern in patterns:
            if pattern not in self._matching:
                matches = matcher([pattern])
                plain = is_plain(pattern)
                self._work.spend(1 if plain else len(self.all))
                names = {pattern.casefold()} & self.plain if plain else filter(matches, self.all)
                self._matching[pattern] = frozenset(names)
            found |= self._matching[pattern]
        return found

    @property
    def written(self) -> list[str]:
        """All names, the plain ones as they were written."""
        return [self._written.get(name, name) for name in self.all]

    def label(self, name: str) -> str:
        """How a name is shown: as it was written; a sample by the globs that match it."""
        if name in self._written:
            return self._written[name]
        return " and ".join(self._globs_of(name)) or ANY_OTHER

    def _globs_of(self, name: str) -> Iterator[str]:
        narrow = [glob for glob in self.globs if glob.strip("*") and matcher([glob])(name)]
        return iter(sorted(narrow, key=len, reverse=True)[:2])


InputPredicate: TypeAlias = VirtualName | bytes
"""A virtual name, or the conditions an input meets."""


class CallClass(NamedTuple):
    """Calls of one name whose input has these predicates."""

    name: str
    predicates: frozenset[InputPredicate] = frozenset()


class NameReach(NamedTuple):
    """Some calls that a selector means: of these names, with these predicates."""

    names: frozenset[str]
    predicates: frozenset[InputPredicate]


class CallClasses:
    """The kinds of calls that the clauses of a stack tell apart."""

    def __init__(
        self, policy: Policy, clauses: tuple[Clause, ...], work: Work | None = None, table: ToolTable = NO_TOOLS
    ) -> None:
        self.work, self._table = work or Work(), table
        self.names = NameUniverse(_patterns(policy, clauses), self.work)
        self._reaches: dict[tuple[Any, ...], tuple[NameReach, ...]] = {}
        self._kept: list[Any] = []
        self.all = self._all(clauses)
        self._named: dict[str, list[CallClass]] = {}
        for kind in self.all:
            self._named.setdefault(kind.name, []).append(kind)
        self._met: dict[tuple[NameReach, ...], frozenset[CallClass]] = {}

    def _all(self, clauses: tuple[Clause, ...]) -> tuple[CallClass, ...]:
        found = dict.fromkeys(CallClass(name) for name in self.names.all)
        for clause in clauses:
            for selector in clause.profile.all():
                for reach in self.reaches(selector, clause.scope):
                    self.work.spend()
                    if reach.predicates:
                        self.work.spend(len(reach.names))
                        found.update(dict.fromkeys(CallClass(name, reach.predicates) for name in sorted(reach.names)))
        return tuple(found)

    def reaches(
        self,
        selector: Selector,
        scope: NameScope,
        *,
        own: bool = True,
        virtual_names: Sequence[VirtualName] | None = None,
    ) -> tuple[NameReach, ...]:
        """The calls a selector covers, by their own names and by virtual names; of all in the scope unless given."""
        virtual = scope.virtual_names if virtual_names is None else tuple(virtual_names)
        key = (id(selector), id(scope), own, virtual)
        if key not in self._reaches:
            self._kept += [selector, scope]  # an id is only good while its object lives
            found = [r for item in items_of(selector) for r in self._of_item(item, scope, own, virtual)]
            self._reaches[key] = tuple(found)
        return self._reaches[key]

    def _of_item(
        self, item: str | ToolWhere, scope: NameScope, own: bool, virtual_names: Sequence[VirtualName]
    ) -> Iterator[NameReach]:
        tools = item if isinstance(item, str) else item.tool
        where = _predicates(item.where) if isinstance(item, ToolWhere) else frozenset()
        matched = self.names.matching(scope.expand(tools))
        if own and matched:
            yield NameReach(matched, where)
        for virtual in virtual_names:
            self.work.spend()
            if virtual.name.casefold() in matched:
                self.work.spend(len(self.names.all))
                of = frozenset(name for name in self.names.all if virtual.of_tool(name))
                yield NameReach(of, where | {virtual})

    def listed(self, clause: Clause, entry: str | ToolWhere | None = None) -> frozenset[str]:
        """The names that an allow list, or one entry of it, has."""
        wanted = clause.profile.allows if entry is None else (entry,)
        reaches = (reach for selector in wanted for reach in self.reaches(selector, clause.scope, virtual_names=()))
        return frozenset(name for reach in reaches for name in reach.names)

    def goes_by(self, name: str) -> frozenset[str]:
        """The names by which calls of a tool may go: its own, and any portable one where no tool is known."""
        if not self._table:
            return frozenset((name,) if name in PORTABLE else (name, *PORTABLE))
        found = map(self._table.names, self._table.kinds(name))
        return frozenset(each.casefold() for names in found for each in (*names.own, *names.acts))

    @cached_property
    def _of_the_same_calls(self) -> dict[str, set[str]]:
        found = {name: {name} for name in self.names.all}
        for name in found:
            for other in self.goes_by(name) & found.keys():
                self.work.spend()
                found[name].add(other)
                if self._table:
                    found[other].add(name)
        return found

    def allowed(self, names: Iterable[str]) -> frozenset[str]:
        """The names of calls that an allow list with these names may allow: by any of its own names a call goes by
        all. Where no tool is known, none but a name in the list stands for a portable one.
        """
        return frozenset().union(*(self._of_the_same_calls[name] for name in names))

    def meeting(self, reaches: tuple[NameReach, ...]) -> frozenset[CallClass]:
        """The kinds of which every call is meant."""
        if reaches not in self._met:
            self.work.spend(sum(len(self._named[name]) for reach in reaches for name in reach.names))
            self._met[reaches] = frozenset(
                kind
                for reach in reaches
                for name in reach.names
                for kind in self._named[name]
                if reach.predicates <= kind.predicates
            )
        return self._met[reaches]

    def of(self, selector: Selector, clause: Clause) -> frozenset[CallClass]:
        """The kinds of which a selector means every call."""
        return self.meeting(self.reaches(selector, clause.scope))

    def within(self, kind: CallClass) -> Sequence[CallClass]:
        """The kinds to which every call of a kind belongs, itself included."""
        named = self._named[kind.name]
        self.work.spend(len(named))
        return [other for other in named if other.predicates <= kind.predicates]

    def named(self, name: str) -> Sequence[CallClass]:
        return self._named.get(name, ())

    def label(self, kind: CallClass) -> str:
        """How a kind is shown: its virtual name, or its name; with conditions if it has some."""
        virtual = [predicate.name for predicate in kind.predicates if isinstance(predicate, VirtualName)]
        shown = virtual[0] if virtual else self.names.label(kind.name)
        conditions = [predicate.decode() for predicate in kind.predicates if isinstance(predicate, bytes)]
        return f"{shown} where {_shortened(conditions[0])}" if conditions else shown


def _patterns(policy: Policy, clauses: tuple[Clause, ...]) -> Iterator[str]:
    for clause in clauses:
        yield from clause.names
    for member in members_of(policy):
        for virtual in virtual_tools_of(member):
            yield from (virtual.tool, virtual.as_)


def _predicates(where: Iterable[Condition]) -> frozenset[InputPredicate]:
    conditions = tuple(where)
    if not conditions:
        return frozenset()
    if has_references(conditions):  # what it means depends on the call being evaluated: like no other
        return frozenset({msgspec.json.encode(conditions) + f" #{id(conditions)}".encode()})
    return frozenset({msgspec.json.encode(conditions, order="deterministic")})


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


MOST_ACTS = 5
"""How many acts of one tool may be done independently of each other."""
MOST_PLACES = 4
"""At how many places of one input it is tried."""


class ToolKinds:
    """The kinds of calls of each tool; of a tool that is not in the table there is one."""

    def __init__(self, table: ToolTable) -> None:
        self._table = table
        self._kinds: dict[str, dict[NamingKind, dict[str, Any]]] = {}

    def _tool(self, name: str) -> Tool | None:
        return self._table.tools.get(name.casefold()) if self._table else None

    def names(self, name: str, kind: NamingKind = "") -> CallNames:
        """The names of a tool's calls of a kind; if none is given, of those that do all that they may."""
        return self._table.names(kind or self._table.kind(name, {})) if self._table else CallNames((name,))

    def kinds(self, name: str) -> dict[NamingKind, dict[str, Any]]:
        """The kinds of a tool's calls, with an input of each."""
        if name not in self._kinds:
            found = self._kinds[name] = {}
            for each in self._inputs(self._tool(name)):
                found.setdefault(self._table.kind(name, each) if self._table else name, each)
        return self._kinds[name]

    def _inputs(self, tool: Tool | None) -> list[dict[str, Any]]:
        """Inputs that do each set of a tool's acts, each also with all that is needed to understand it."""
        inputs: list[dict[str, Any]] = [{}]
        if tool is None:
            return inputs
        marks = [paths[0] for paths in tool.acts_where.values()][:MOST_ACTS]
        marks.sort(key=_is_item)  # an item is added to a list
        for size in range(1, len(marks) + 1):
            for some in itertools.combinations(marks, size):
                document: Any = {}
                for path in some:
                    document = placed(document, f"{path}.zq" if _is_item(path) else path, "zq")
                inputs.append(document)
        for key in dict.fromkeys(key for act in tool.every_act for key in needed(act)):
            places = (*tool.inputs.get(key, ()), f"$.{key}")
            inputs += [placed(document, place, "zq") for document in inputs for place in places[:MOST_PLACES]]
        return inputs

    def missing(self, name: str) -> Iterator[NamingKind]:
        """The kinds that a tool's acts may make together of which there is no input."""
        tool = self._tool(name)
        acts = tuple(tool.acts_where) if tool is not None else ()
        for size in range(1, len(acts) + 1):
            for some in itertools.combinations(acts, size):
                if (kind := (name, *some)) not in self.kinds(name):
                    yield kind

    def plainest(self, name: str) -> dict[str, Any]:
        """The shortest input of a tool that is understood."""
        kinds = self.kinds(name)
        return kinds[min(kinds, key=lambda kind: (self.names(name, kind).in_part, len(str(kinds[kind]))))]

    def places(self, name: str, path: str) -> Iterator[str]:
        """Where else a tool's own input has the values of a portable one."""
        tool = self._tool(name)
        for key, paths in tool.inputs.items() if tool is not None else ():
            if path == f"$.{key}" or path.startswith((f"$.{key}.", f"$.{key}[")):
                yield from (f"{place}{path.removeprefix(f'$.{key}')}" for place in paths if place != f"$.{key}")

    def rules_out(self, name: str, where: Sequence[Condition], input: dict[str, Any] | None, *, allows: bool) -> bool:
        """Whether conditions exclude every call of a kind, of which `input` is one: they want no such act as it does,
        or a value at a place of an act that it does not. An input that tells of no act may do any. Without an input,
        nothing is ruled out.
        """
        tool = self._tool(name)
        if tool is None or input is None:
            return False
        acts = list(tool.acts_where.values())
        done = {paths[0] for paths in acts if compile_path(paths[0])(input)}
        unwanted = {c.path for c in where if c.exists is False} & {paths[0] for paths in acts}
        lacking = [path_steps(path) for paths in acts if paths[0] not in done for path in paths]
        wanting = (c.path for c in where if c.exists is True or (allows and c.exists is not False))
        wants = (path_steps(path) for path in wanting if isinstance(path, str))
        misses = any(steps[: len(place)] == place for steps in wants for place in lacking)
        if done:
            return misses or not unwanted.isdisjoint(done)
        return misses and bool(unwanted)


def _is_item(path: str) -> bool:
    return path_steps(path)[-1][0] == "filter"
