"""The facts a condition may use besides its document, and the values that tools returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from ..events.calls import UNREADABLE, fingerprint
from ..events.run_context import PORTABLE, RunContext, Tool, needed, optional, root_of
from ..values.globs import Matcher
from ..values.json_values import is_number, is_unserializable, number_of
from ..values.model_base import UNCLEAR, aliased
from ..values.paths import PathFn, compile_path
from .conditions import OutputRef
from .operators import flat

BOUND = 10_000
"""The most keys, ids or values that one rule remembers; beyond it the rule denies, as a model can make them up."""


class SeenValues(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The values that earlier successful calls returned for one reference."""

    texts: set[str] = set()
    numbers: set[int | float] = set()
    numeric_texts: set[int | float] = set()
    others: set[str] = set()
    full: bool = False

    @property
    def empty(self) -> bool:
        return not (self.texts or self.numbers or self.others)

    def add(self, values: Iterable[Any]) -> None:
        """Keep values, and each element of lists; beyond the bound, only that some were dropped."""
        for value in flat(list(values)):
            if len(self.texts) + len(self.numbers) + len(self.others) >= BOUND:
                self.full = True
                return
            if type(value) is str:
                self.texts.add(value)
                number = number_of(value, loose=True)
                if number is not None and not is_unserializable(number):
                    self.numeric_texts.add(number)
            elif is_number(value) and not is_unserializable(value):
                self.numbers.add(value)
            else:
                try:
                    self.others.add(fingerprint(value).decode())
                except UNREADABLE:
                    self.full = True  # past what can be kept, as past the bound

    def has(self, value: Any, loose: bool) -> bool:
        """Whether a value is among them; with `loose`, a number equals its text."""
        if type(value) is str:
            return value in self.texts or (loose and number_of(value, loose=True) in self.numbers)
        if is_number(value):
            return value in self.numbers or (loose and value in self.numeric_texts)
        return fingerprint(value).decode() in self.others

    def values(self) -> list[Any]:
        """All values, in no order."""
        return [*self.texts, *self.numbers, *(msgspec.json.decode(other) for other in self.others)]


class Directories(NamedTuple):
    """The absolute directories that relative paths and `~` start from, and the shell that reads command lines; None
    where they are not known.
    """

    workspace: str | None = None
    home: str | None = None
    shell: str | None = None


class Facts(Protocol):
    """What a predicate may use besides its document: the call's input, outputs before, the run's directory."""

    input: Any

    @property
    def directories(self) -> Directories: ...

    def outputs(self, ref: OutputRef) -> SeenValues:
        """The outputs of earlier successful calls."""
        ...


def directories_of(context: RunContext) -> Directories:
    """Where a run works, as far as its context says."""
    return Directories(context.workspace or None, context.home or None, context.shell or None)


class NoCall:
    """The facts behind a `when`, which refers to no call and to nothing that one returned."""

    input: Any = None

    def __init__(self, context: RunContext) -> None:
        self.directories = directories_of(context)

    def outputs(self, ref: OutputRef) -> SeenValues:
        raise NotImplementedError  # such a `when` is an error at load


NamingKind: TypeAlias = str | tuple[str, ...]
"""The source of a call's names: the tool's name, or that and its effect where the effect depends on the input."""

_IN_PART = "?"
"""One of a call's acts: some of what it does is unknown."""

_NOT_GIVEN: tuple[Any, ...] = (None, "", [], {})
KINDS_REMEMBERED = 4_096
"""How many tool names are remembered; a model may invent any number."""


class CallNames(NamedTuple):
    """The names of a call: `own` are the client's names of its tool, `acts` the portable names of its effects.

    `in_part`: not all of its input is understood, so nothing is allowed to it by its portable names.
    """

    own: tuple[str, ...]
    acts: tuple[str, ...] = ()
    in_part: bool = False

    def any(self, matches: Matcher) -> bool:
        return any(map(matches, self.own)) or any(map(matches, self.acts))


class ToolTable:
    """A client's tools, by the names that it gives them; false where no tool is known."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        given = list(tools)
        plain = [each for each in given if not each.is_family]
        self.tools = {name.casefold(): each for each in plain for name in each.synonyms}
        self.tools |= {each.name.casefold(): each for each in plain}
        self._families = [each for each in given if each.is_family]
        self._acts_where = {
            name: [(act, compile_path(path)) for act, paths in each.acts_where.items() for path in paths]
            for name, each in self.tools.items()
            if each.acts_where
        }
        self._in_part = {name: test for name, each in self.tools.items() if (test := _understood_in_part(each))}
        self._inputs = {name: reader for name, each in self.tools.items() if (reader := _reader(each))}
        self._folded: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.tools or self._families)

    def kind(self, name: str, input: Any) -> NamingKind:
        """The kind of a call; one whose input does not tell what it does may do everything."""
        folded = self._fold(name)
        where, in_part = self._acts_where.get(folded), self._in_part.get(folded)
        if where is None and in_part is None:
            return self._read(name, folded)
        acts = dict.fromkeys(act for act, values_at in where or () if values_at(input))
        acts = acts or dict.fromkeys(act for act, _ in where or ())
        marks = (_IN_PART,) if in_part is not None and in_part(input) else ()
        return (name, *acts, *marks) if acts or marks else name

    def kinds(self, name: str) -> tuple[NamingKind, ...]:
        """The kinds of which each call of a tool is one, or several at once."""
        folded = self._fold(name)
        where, tool = self._acts_where.get(folded), self.tools.get(folded)
        marks = (_IN_PART,) if tool is not None and tool.unclear else ()
        if where is None:
            return ((name, *marks) if marks else self._read(name, folded),)
        return tuple((name, act, *marks) for act in dict.fromkeys(act for act, _ in where))

    def _read(self, name: str, folded: str) -> NamingKind:
        """The kind of a call that the name alone determines."""
        if not self._families or folded in self.tools:
            return name
        readings = dict.fromkeys(reading for each in self._families for reading in each.readings(folded))
        return (name, *readings) if readings else name

    def names(self, kind: NamingKind) -> CallNames:
        own, *acts = (kind,) if isinstance(kind, str) else kind
        if not self:
            return CallNames((own,))
        in_part = _IN_PART in acts
        if in_part:
            acts.remove(_IN_PART)
        tool = self.tools.get(self._fold(own))
        if tool is None:
            return CallNames((own,), tuple(acts), in_part)
        owns = tuple(dict.fromkeys((own, tool.name, *tool.synonyms)))
        folded = {self._fold(name) for name in owns}
        found = tuple(act for act in dict.fromkeys((*tool.acts, *acts)) if act not in folded)
        return CallNames(owns, found, in_part)

    def input(self, name: str, input: Any) -> Any:
        """A call's input, its portable inputs found by their names too."""
        reader = self._inputs.get(self._fold(name))
        return input if reader is None else reader(input)

    def _fold(self, name: str) -> str:
        folded = self._folded.get(name)
        if folded is None:
            if len(self._folded) >= KINDS_REMEMBERED:
                self._folded.clear()
            folded = self._folded[name] = name.casefold()
        return folded


def _understood_in_part(tool: Tool) -> Callable[[Any], bool] | None:
    """Whether an input has what nobody understands, or lacks what its act needs; None if that is never so."""
    if tool.unclear:
        return lambda input: True
    always = [ways for act in tool.acts for ways in _needs(tool, act)]
    where = [([compile_path(path) for path in paths], _needs(tool, act)) for act, paths in tool.acts_where.items()]
    if not tool.every_act:
        return None

    def test(input: Any) -> bool:
        if not isinstance(input, dict):
            return True
        if tool.inferred and tool.unknown_among(key for key, value in input.items() if value not in _NOT_GIVEN):
            return True
        if not _has_each(always, input):
            return True
        acting = [needs for ways, needs in where if _has_each([ways], input)]
        return bool(where) and not (acting and all(_has_each(needs, input) for needs in acting))

    return test


def _has_each(needs: Iterable[Iterable[PathFn]], input: Any) -> bool:
    """Whether an input has a value on one of the ways to each of these."""
    for ways in needs:
        for values_at in ways:
            if values_at(input):
                break
        else:
            return False
    return True


def _needs(tool: Tool, act: str) -> list[list[PathFn]]:
    """The ways to each input that a call is evaluated by as this act; a tool that names its inputs has no other."""
    keys = [key for key in needed(act) if tool.inferred or not tool.inputs or key in tool.inputs]
    return [[compile_path(path) for path in (f"$.{key}", *tool.inputs.get(key, ()))] for key in keys]


def _reader(tool: Tool) -> Callable[[Any], Any] | None:
    """A reader of a tool's portable inputs; None if all of them have their portable names and are understood."""
    found: dict[str, list[PathFn]] = {}
    for name, paths in tool.inputs.items():
        other = [compile_path(path) for path in paths if path not in (f"$.{name}", f"$['{name}']")]
        if other:
            found[name] = other
    in_part = _understood_in_part(tool)
    unknown = _perhaps_renamed(tool)
    if in_part is None:
        return (lambda input: _with_portable(input, found)) if found else None
    unclear = {name: [UNCLEAR] for act in tool.every_act for name in PORTABLE.get(act, ())}
    return lambda input: _with_portable(input, found, unclear if in_part(input) else unknown(input))


def _perhaps_renamed(tool: Tool) -> Callable[[Any], dict[str, list[Any]]]:
    """The optional inputs that a call may have under a name which nobody knows: it lacks them, and has such a one."""
    optional_inputs = {
        name: [compile_path(path) for path in (f"$.{name}", *tool.inputs.get(name, ()))]
        for act in tool.acts
        for name in optional(act)
        if not tool.inputs or name in tool.inputs
    }
    roots = {name: {root_of(path) for path in tool.inputs.get(name, ())} for name in optional_inputs}
    own = {name for act in tool.acts for name in PORTABLE.get(act, ())}
    if not tool.inferred:  # a run's record does not have what it takes, and is evaluated alike
        tool = msgspec.structs.replace(tool, takes=())

    def unknown(input: Any) -> dict[str, list[Any]]:
        if not optional_inputs or not isinstance(input, dict):
            return {}
        lacking = [name for name, ways in optional_inputs.items() if not _has_each([ways], input)]
        if not lacking:
            return {}
        given = {key for key, value in input.items() if key not in own and value not in _NOT_GIVEN}
        elsewhere = tool.unknown_among(given)
        return {name: [UNCLEAR] for name in lacking if elsewhere or not given.isdisjoint(roots[name])}

    return unknown


def _with_portable(
    input: Any, found: Mapping[str, list[PathFn]], more: Mapping[str, list[Any]] = MappingProxyType({})
) -> Any:
    if not isinstance(input, dict):
        return input
    also = {name: [value for values_at in each for value in values_at(input)] for name, each in found.items()}
    for name, values in more.items():
        also[name] = [*also.get(name, ()), *values]
    return aliased(input, {name: values for name, values in also.items() if values})


NO_TOOLS = ToolTable()
