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


class Roles(NamedTuple):
    """The selectors of a clause, by role.

    `restricts`: calls it may deny; `evidence`: calls that satisfy something; `others`: the rest. `admits`: the calls
    it allows, by their own names; it denies all others.
    """

    restricts: tuple[Selector, ...] = ()
    evidence: tuple[Selector, ...] = ()
    others: tuple[Selector, ...] = ()
    admits: tuple[Selector, ...] = ()

    def all(self) -> tuple[Selector, ...]:
        return (*self.admits, *self.others, *self.evidence, *self.restricts)


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


Drawing: TypeAlias = Sequence[Link | Note]
"""A rule's part of a picture; a rule without one is listed in words."""


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
    """A clause's description of itself: a rule, a tool rule, a net."""

    @abstractmethod
    def roles(self) -> Roles:
        """Its selectors, by role."""

    @abstractmethod
    def words(self) -> str:
        """The clause in a few words."""

    @property
    def own_action(self) -> OwnAction | None:
        """The strictest action that its findings have whatever its policy says; None if there is none."""
        return None

    def obligation(self) -> Obligation | None:
        """The calls that must have happened by the end, whatever the values of its `key`; None if there are none."""
        return None

    @property
    def requires_attempts(self) -> bool:
        """Whether calls that were denied may be what it requires by the end."""
        return False

    def inputs(self) -> Iterator[tuple[Selector, str]]:
        """The input paths that it reads, each with its tools, without those of selectors."""
        return iter(())

    def caps(self) -> Iterator[Cap]:
        """The bounds on the number of calls, if it has any."""
        return iter(())


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

    machine: ClassVar[Callable[..., Machine]]
    """The machine that evaluates it: the one that `evaluates` this family."""
    keyless: ClassVar[str] = ""
    """Why it can have no `key`."""
    person: ClassVar[str] = ""
    """The field that accepts a person's approval in place of a call."""
    refuses_later: ClassVar[bool] = False
    """Whether what it finds once refuses every later call."""

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
        yield from self._argument_problems()
        for name in _selectors(type(self)):
            selector = getattr(self, name)
            if selector or not self.roles().admits:  # an empty allow list is preflight's to refuse
                yield from selector_problems(selector, (name,), person=name == self.person)

    def _argument_problems(self) -> Iterator[Issue]:
        """Problems of operands that refer to the judged call where there is none."""
        for item in (item for selector in self.of_other_calls() for item in items_of(selector)):
            if not isinstance(item, str) and has_arguments(item.where):
                yield (), f"`arg` in what `{self.type}` says of {names(item.tool)}: no call is being evaluated there"

    def of_other_calls(self) -> tuple[Selector, ...]:
        """The selectors of other calls than the evaluated one, in which no operand can refer to its input."""
        roles = self.roles()
        return (*roles.evidence, *roles.others)

    def inputs(self) -> Iterator[tuple[Selector, str]]:
        if self.key is not None:
            yield from ((selector, self.key) for selector in self.roles().restricts)

    def follows(self) -> Iterator[ComparedPath]:
        """The input paths whose values it compares with those of other calls."""
        if self.key is not None:
            yield ComparedPath(self.key)

    def evidence(self) -> Iterator[PriorOutput]:
        """The earlier calls whose outputs it looks at."""
        return iter(())

    def compile(self, scope: NameScope) -> Machine:
        """The machine that evaluates this rule."""
        return self.machine(self, scope)

    def abstraction(self) -> Sequence[Rule]:
        """For preflight, weaker rules that depend on the names of calls only; none if names decide nothing.

        They have no `key`, deny nothing that this rule allows, and have no figure above LARGEST.
        """
        return ()

    def drawing(self) -> Drawing:
        """The rule's part of the policy's picture; a rule without one is listed in words."""
        return ()


@cache
def _selectors(family: type[Rule]) -> tuple[str, ...]:
    """The fields of a family that name tools."""
    return tuple(field.name for field in msgspec.structs.fields(family) if field.type in (Selector, ListedTools))


def restricts_tool(rule: Any) -> Roles:
    """For `roles`: it may deny the calls of its `tool`."""
    return Roles(restricts=(rule.tool,))


def itself(rule: Rule) -> tuple[Rule, ...]:
    """For `abstraction`: the rule itself, which depends on names only."""
    return (rule,)


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


def refusal(answer: Any, *, expected: str, otherwise: str, details: dict[str, Any] | None = None) -> Finding | None:
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
