"""The base of every rule: its record, its possible actions, and its description of itself.

Preflight, pictures and explanations use these methods only, so that a new family needs one file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from ..language.conditions import Condition, has_arguments, when_problems
from ..language.selectors import ListedTools, NameScope, Selector, ToolWhere, items_of, selector_problems
from ..values import paths
from ..values.model_base import Issue, Name, Record
from .machine import Finding, Machine


def names(selector: Selector) -> str:
    """A selector in words."""
    return " or ".join(_item(item) for item in items_of(selector))


def plain_names(selector: Selector) -> str:
    """A selector in words, without code marks."""
    return names(selector).replace("`", "")


def chain(tools: Sequence[Selector]) -> str:
    """Selectors in words, one after the other."""
    return " -> ".join(map(names, tools))


def times(n: int) -> str:
    """How often, in words."""
    return "once" if n == 1 else f"{n} times"


def calls(n: int) -> str:
    """A number of calls in words; one without the figure."""
    return "call" if n == 1 else f"{n} calls"


def _item(item: str | ToolWhere) -> str:
    if isinstance(item, str):
        return f"`{item}`"
    shown = item.tool if isinstance(item.tool, str) else "|".join(item.tool)
    return f"`{shown}` (some inputs)" if item.where else f"`{shown}`"


RuleAction: TypeAlias = Literal["cancel", "deny", "request_approval", "warn", "halt"]
"""An action that a rule may ask for; `halt` is another spelling of `cancel`."""
OwnAction: TypeAlias = Literal["cancel", "request_approval"]

Of: TypeAlias = Literal["started", "completed", "attempted"]
"""The calls that a figure counts."""

LARGEST = 20
"""The largest figure in an abstraction: a rule that allows more allows any number; one that requires more is taken to
require this many.
"""


class Obligation(NamedTuple):
    """`least` calls that must have come by the end; with `after`, only if such a call came."""

    tool: Selector
    least: int = 1
    of: Of = "started"
    after: Selector | None = None


class Cap(NamedTuple):
    """At most `most` calls that match all of the selectors, over the last `within` turns; with `each`, per tool."""

    tools: tuple[Selector, ...]
    most: int
    of: Of = "started"
    within: int | None = None
    each: bool = False


class ComparedPath(NamedTuple):
    """An input path whose values a rule compares with those of other calls: the pattern that reads them there, if it
    has one, and values that it compares with nothing.
    """

    path: str
    extract: str | None = None
    exempt: tuple[Any, ...] = ()


class PriorOutput(NamedTuple):
    """Earlier calls that a rule looks at: what it asks of their output, and where the compared values are there."""

    tool: Selector
    output: Sequence[Condition] = ()
    paths: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class Fact(msgspec.Struct, frozen=True):
    """A condition other than a call, drawn before a call."""

    text: str


class Link(msgspec.Struct, frozen=True):
    """A rule drawn between calls: the first, the rule's word, and the call that must, or must not, follow."""

    word: str
    sources: tuple[Selector | Fact, ...]
    target: Selector
    forbidden: bool = False


class Note(msgspec.Struct, frozen=True):
    """A rule's note on one tool, drawn in the tool's node."""

    tool: Selector
    text: str


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a clause says of itself.

    Attributes:
        words: The clause in a few words.
        restricts: The calls that it may deny.
        evidence: The calls that satisfy something.
        others: Other calls that it looks at.
        allows: The calls that it allows, by their own names; it denies all others.
        of_other_calls: The selectors in which no operand can refer to the evaluated call's input; if not given, those
            of evidence and others.
        obligation: The calls that must have happened by the end, whatever the values of its `key`.
        requires_attempts: Whether calls that were denied may be what it requires by the end.
        caps: The bounds on the number of calls.
        own_action: The strictest action that its findings have whatever its policy says.
        inputs: The input paths that it reads, each with its tools, without those of selectors and its `key`.
        follows: The input paths whose values it compares with those of other calls, without its `key`.
        outputs: The earlier calls whose outputs it looks at.
        abstraction: For preflight, weaker clauses that depend on the names of calls only; none if names decide
            nothing. They have no `key`, deny nothing that this one allows, and have no figure above LARGEST.
        drawing: Its part of a picture; without one it is listed in words.
    """

    words: str
    restricts: tuple[Selector, ...] = ()
    evidence: tuple[Selector, ...] = ()
    others: tuple[Selector, ...] = ()
    allows: tuple[Selector, ...] = ()
    of_other_calls: tuple[Selector, ...] | None = None
    obligation: Obligation | None = None
    requires_attempts: bool = False
    caps: tuple[Cap, ...] = ()
    own_action: OwnAction | None = None
    inputs: tuple[tuple[Selector, str], ...] = ()
    follows: tuple[ComparedPath, ...] = ()
    outputs: tuple[PriorOutput, ...] = ()
    abstraction: tuple[Statement, ...] = ()
    drawing: Sequence[Link | Note] = ()

    def all(self) -> tuple[Selector, ...]:
        """Its selectors."""
        return (*self.allows, *self.others, *self.evidence, *self.restricts)

    @property
    def unevaluated(self) -> tuple[Selector, ...]:
        """The selectors of other calls than the evaluated one."""
        return (*self.evidence, *self.others) if self.of_other_calls is None else self.of_other_calls


class ClauseRecord(Record, frozen=True, kw_only=True):
    """The fields that a clause of a policy may have besides its own.

    Attributes:
        action: The action on a violation; the policy's `on_violation` if not given.
        reason: For telemetry; never shown to the model.
        tell_model: The text for the model when a call is denied.
        description: For people.
        when: Conditions on the run's context; the rule applies only if all of them hold.
    """

    action: RuleAction | None = None
    reason: str | None = None
    tell_model: str | None = None
    description: str | None = None
    when: tuple[Condition, ...] = ()

    def problems(self) -> Iterator[Issue]:
        """Problems that the field types alone do not rule out; a kind with more checks yields these too."""
        yield from when_problems(self.when)


class Statement(ClauseRecord, frozen=True):
    """A clause that denies calls: a rule, a tool rule, a net."""

    machine: ClassVar[Callable[..., Machine]]
    """The machine that evaluates it: the one that `evaluates` this family."""

    @property
    @abstractmethod
    def type(self) -> str:
        """The family of a rule, the key of a tool rule, or `net`."""

    @abstractmethod
    def profile(self) -> Profile:
        """What it says of itself."""

    def compile(self, scope: NameScope) -> Machine:
        """The machine that evaluates this clause."""
        machine = self.machine(self, scope)
        machine.kind = self.type
        return machine

    def words(self) -> str:
        return self.profile().words

    def inputs(self) -> Iterator[tuple[Selector, str]]:
        """The input paths that it reads, each with its tools, without those of selectors."""
        yield from self.profile().inputs

    def follows(self) -> Iterator[ComparedPath]:
        """The input paths whose values it compares with those of other calls."""
        yield from self.profile().follows


class Rule(Statement, frozen=True, kw_only=True, tag_field="type"):
    """The fields that every rule may have; each family adds its own (one file each under `rules/`).

    Attributes:
        id: The name in violations and reports; its type and a number, as `count-1`, if not given.
        unpreventable: The action instead of `deny` if calls can't be held: `cancel` (the default) or `warn`.
        key: A path in the input: the rule applies to each value there separately.
    """

    id: Name | None = None
    unpreventable: Literal["warn", "cancel"] | None = None
    key: str | None = None

    keyless: ClassVar[str] = ""
    """Why it can have no `key`."""
    person: ClassVar[str] = ""
    """The field that accepts a person's approval in place of a call."""
    denies_later: ClassVar[bool] = False
    """Whether what it finds once denies every later call."""

    @property
    def type(self) -> str:
        """The family: the tag it is written with."""
        return str(self.__struct_config__.tag)

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        if self.key is not None and self.keyless:
            yield ("key",), f"a rule of type `{self.type}` has no `key`: {self.keyless}"
        elif self.key is not None:
            yield from paths.problems(self.key, ("key",))
        profile = self.profile()
        for item in (item for selector in profile.unevaluated for item in items_of(selector)):
            if not isinstance(item, str) and has_arguments(item.where):
                yield (), f"`arg` in what `{self.type}` says of {names(item.tool)}: no call is being evaluated there"
        for name in _selectors(type(self)):
            selector = getattr(self, name)
            if selector or not profile.allows:  # an empty allow list is preflight's to reject
                yield from selector_problems(selector, (name,), person=name == self.person)

    def inputs(self) -> Iterator[tuple[Selector, str]]:
        """Those under its `key`, too."""
        profile = self.profile()
        if self.key is not None:
            yield from ((selector, self.key) for selector in profile.restricts)
        yield from profile.inputs

    def follows(self) -> Iterator[ComparedPath]:
        """Its `key`, too."""
        if self.key is not None:
            yield ComparedPath(self.key)
        yield from super().follows()


@cache
def _selectors(family: type[Rule]) -> tuple[str, ...]:
    """The fields of a family that name tools."""
    return tuple(field.name for field in msgspec.structs.fields(family) if field.type in (Selector, ListedTools))


KEYLESS = "it looks at each call alone or at the whole session"


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """A check's answer that denies the call, with an action, a reason and a text of its own.

    Raises:
        ValueError: no such action.

    Attributes:
        action: The action; None for the rule's.
        reason: For telemetry; None for the rule's.
        tell_model: The text for the model; None for the rule's.
    """

    action: RuleAction | None = None
    reason: str | None = None
    tell_model: str | None = None

    def __post_init__(self) -> None:
        if self.action is not None and self.action not in get_args(RuleAction):
            raise ValueError(f"`{self.action}` is not an action: {', '.join(get_args(RuleAction))}")


CheckAnswer: TypeAlias = bool | str | Refuse | None
"""None or True: the call may run. False, a text that says why, or `Refuse`: it may not."""


def denial(answer: Any, *, expected: str, otherwise: str, details: dict[str, Any] | None = None) -> Finding | None:
    """The finding for a check's answer; None if the call may run. `otherwise` says what happened, if the answer does
    not say why.
    """
    if answer is None or answer is True:
        return None
    if isinstance(answer, Refuse):
        action = "cancel" if answer.action == "halt" else answer.action
        given = {"action": action, "reason": answer.reason, "tell_model": answer.tell_model}
        return Finding(expected, answer.reason or otherwise, details or {}, **given)  # type: ignore[arg-type]
    return Finding(expected, answer if isinstance(answer, str) else otherwise, details or {})
