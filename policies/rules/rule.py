"""What every rule has: its record, its possible actions, and the description that others read.

Preflight, pictures and explanations take everything from these methods, so that a new family needs one file only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from ..language.conditions import Condition, has_arguments, when_problems
from ..language.selectors import ListedTools, Selector, selector_problems
from ..values import paths
from ..values.model_base import Name, Record
from .machine import Finding, Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TypeAlias

    from ..language.selectors import NameScope, ToolWhere
    from ..values.model_base import Issue


def items_of(selector: Any) -> tuple[str | ToolWhere, ...]:
    """The items of a selector."""
    return tuple(selector) if isinstance(selector, tuple | list) else (selector,)


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
    """So many calls, without the figure where it is one."""
    return "call" if n == 1 else f"{n} calls"


def _item(item: str | ToolWhere) -> str:
    if isinstance(item, str):
        return f"`{item}`"
    shown = item.tool if isinstance(item.tool, str) else "|".join(item.tool)
    return f"`{shown}` (some inputs)" if item.where else f"`{shown}`"


RuleAction: TypeAlias = Literal["cancel", "deny", "request_approval", "warn", "halt"]
"""An action that a rule may ask for; `halt` is another spelling of `cancel`."""

Of: TypeAlias = Literal["started", "completed", "attempted"]
"""The calls that a figure counts."""

LARGEST = 20
"""The largest figure an outline keeps: a rule that allows more allows all, one that wants more wants so many."""


class Roles(NamedTuple):
    """The selectors of a clause, by what their calls are to it.

    `restricts`: calls it may refuse; `evidence`: calls that prove something to it; `others`: the rest. `admits`: the
    calls it lets through, by their own names; it refuses all others.
    """

    restricts: tuple[Selector, ...] = ()
    evidence: tuple[Selector, ...] = ()
    others: tuple[Selector, ...] = ()
    admits: tuple[Selector, ...] = ()

    def all(self) -> tuple[Selector, ...]:
        """Every selector."""
        return (*self.admits, *self.others, *self.evidence, *self.restricts)


class Obligation(NamedTuple):
    """Calls that must have come by the end: `least` of them; `after`: only if such a call came."""

    tool: Selector
    least: int = 1
    of: Of = "started"
    after: Selector | None = None


class Cap(NamedTuple):
    """No more than `most` calls that meet all of the selectors, counted over the last `within` responses.

    `each`: so many of every tool by itself.
    """

    tools: tuple[Selector, ...]
    most: int
    of: Of = "started"
    within: int | None = None
    each: bool = False


class Fact(msgspec.Struct, frozen=True):
    """Something that is no call and stands before one."""

    text: str


class Link(msgspec.Struct, frozen=True):
    """A rule drawn between calls: what comes first, the rule's word, and what follows or must not."""

    word: str
    sources: tuple[Selector | Fact, ...]
    target: Selector
    forbidden: bool = False


class Note(msgspec.Struct, frozen=True):
    """A rule's note on one tool, drawn in the tool's node."""

    tool: Selector
    text: str


Drawing: TypeAlias = Sequence[Link | Note]
"""A rule as a picture shows it; one that draws nothing is said in words."""


class ClauseRecord(Record, frozen=True, kw_only=True):
    """The fields that a clause of a policy may have besides its own.

    Attributes:
        action: The action on a violation; the policy's `on_violation` if not given.
        reason: For telemetry; never shown to the model.
        tell_model: The text that the model gets when a call is refused.
        description: For people.
        when: Conditions on the run's context; it holds only where all of them do.
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
        """Its selectors, by what their calls are to it."""

    @abstractmethod
    def words(self) -> str:
        """The clause in a few words."""

    def obligation(self) -> Obligation | None:
        """The calls that must have happened by the end, whatever the values of its `key`; None if there are none."""
        return None

    def inputs(self) -> Iterator[tuple[Selector, str]]:
        """The paths into calls' inputs that it looks at, each with the tools; those of selectors aside."""
        return iter(())

    def caps(self) -> Iterator[Cap]:
        """How many calls it lets through at most, where that is a figure."""
        return iter(())


class Rule(Statement, frozen=True, kw_only=True, tag_field="type"):
    """The fields that every rule may have; each family adds its own (one file each under `rules/`).

    Attributes:
        id: The name by which violations and reports call it; made from its type and place if not given.
        unpreventable: The action that replaces a `deny` where calls cannot be held: `cancel`, the default, or `warn`.
        key: A path in the input: one independent instance of the rule for each value there.
    """

    id: Name | None = None
    unpreventable: Literal["warn", "cancel"] | None = None
    key: str | None = None

    machine: ClassVar[Callable[..., Machine]]
    """The machine that judges it: the one that `judges` this family."""
    keyless: ClassVar[str] = ""
    """Why it can have no `key`."""
    person: ClassVar[str] = ""
    """The field in which a person's approval may stand for a call."""

    @property
    def type(self) -> str:
        """The family: the tag it is written with."""
        return str(self.__struct_config__.tag)

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        if self.key is not None and self.keyless:
            yield ("key",), f"a `{self.type}` rule has no `key`: {self.keyless}"
        elif self.key is not None:
            yield from paths.problems(self.key, ("key",))
        yield from self._argument_problems()
        for name in _selectors(type(self)):
            selector = getattr(self, name)
            if selector or not self.roles().admits:  # an empty allow list is preflight's to refuse
                yield from selector_problems(selector, (name,), person=name == self.person)

    def _argument_problems(self) -> Iterator[Issue]:
        """Operands that are of the call being judged, where none is."""
        for item in (item for selector in self.unjudged() for item in items_of(selector)):
            if not isinstance(item, str) and has_arguments(item.where):
                yield (), f"`arg` in what `{self.type}` says of {names(item.tool)}: no call is being judged there"

    def unjudged(self) -> tuple[Selector, ...]:
        """The selectors that are not asked about the call being judged, so that no operand can be of its input."""
        roles = self.roles()
        return (*roles.evidence, *roles.others)

    def inputs(self) -> Iterator[tuple[Selector, str]]:
        if self.key is not None:
            yield from ((selector, self.key) for selector in self.roles().restricts)

    def compile(self, scope: NameScope) -> Machine:
        """The machine that judges this rule."""
        return self.machine(self, scope)

    def abstraction(self) -> Sequence[Rule]:
        """This rule as far as the names of calls decide it, for preflight; none if they decide nothing.

        Rules without a `key` that refuse nothing which this one lets through, and keep no figure above LARGEST.
        """
        return ()

    def drawing(self) -> Drawing:
        """The rule's part of the policy's picture; a picture says a rule without any in words."""
        return ()


@cache
def _selectors(family: type[Rule]) -> tuple[str, ...]:
    """The fields of a family that name tools."""
    return tuple(field.name for field in msgspec.structs.fields(family) if field.type in (Selector, ListedTools))


def restricts_tool(rule: Any) -> Roles:
    """For `roles`: it may refuse the calls of its `tool`."""
    return Roles(restricts=(rule.tool,))


def itself(rule: Rule) -> tuple[Rule, ...]:
    """For `abstraction`: names decide all of the rule."""
    return (rule,)


KEYLESS = "it looks at each call alone or at the whole session"


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """A check's answer that denies the call, with an action, a reason and a text of its own.

    Raises:
        ValueError: no such action.

    Attributes:
        action: Stands in place of the rule's; None is the rule's.
        reason: For telemetry; None is the rule's.
        tell_model: The text for the model; None is the rule's.
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
    """The finding that an answer means for a call; None if the call may run.

    Args:
        answer: what the function returned.
        expected: what should have been, in words.
        otherwise: what happened, where the answer does not say why.
        details: figures of the finding.
    """
    if answer is None or answer is True:
        return None
    if isinstance(answer, Refuse):
        action = "cancel" if answer.action == "halt" else answer.action
        given = {"action": action, "reason": answer.reason, "tell_model": answer.tell_model}
        return Finding(expected, answer.reason or otherwise, details or {}, **given)  # type: ignore[arg-type]
    return Finding(expected, answer if isinstance(answer, str) else otherwise, details or {})
