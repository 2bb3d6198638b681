"""`Machine`: what a compiled rule is to the monitor.

A rule's selectors are its *slots*. Those that a call matches are its *mask*: bit n is slot n. The monitor computes
the mask, so that a machine evaluates only calls that it names or that are due, or every call if it says so.

A machine is immutable and shared. What it remembers of one session is its state, a small struct of plain data that
can be stored, copied and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol, TypeAlias

import msgspec

from ..errors import Action, RefusalCause
from ..events.run_context import RunContext, Usage
from ..language.conditions import OutputRef
from ..language.facts import CallNames, Facts
from ..language.selectors import NameScope, Slot, Subject
from ..values.regexes import VIEW, Regex

BOUND = 10_000
"""The most keys, ids or values one rule remembers of what a model can make up; past it the rule refuses."""

_SHORT = 5


class Finding(msgspec.Struct, frozen=True):
    """A rule's reason to refuse: what it expected and what happened, in words and figures.

    `action`, `reason` and `tell_model` are set where the finding itself decides them: a net's manual transition, a
    check's answer. `cause` is what about the call is refused.
    """

    expected: str
    actual: str
    details: dict[str, Any] = {}
    suggestion: str = ""
    action: Action | None = None
    reason: str | None = None
    tell_model: str | None = None
    cause: RefusalCause = "tool"


class ToolReturn(Protocol):
    """A tool's output."""

    @property
    def value(self) -> Any:
        """As paths see it: text that holds JSON is parsed."""
        ...

    @property
    def text(self) -> str:
        """As it came; anything but text as its JSON."""
        ...


def captured(regex: Regex, output: ToolReturn) -> Iterator[str]:
    """The values that a pattern yields of an output, as many as a rule remembers.

    What comes after them, or after more work than is done for one text, supports nothing.
    """
    text = output.text
    with suppress(ValueError):
        yield from filter(None, islice(regex.values([text], VIEW), BOUND))


class JudgedCall(Subject, Protocol):
    """The call a machine is asked about.

    `turn` is the session's number of the model response; `answers` are those of asynchronous checks, by rule id.
    """

    id: str
    name: str
    turn: int
    answers: Mapping[str, Any]

    @property
    def memo(self) -> dict[Any, Any]:
        """Values already computed for the call: by a `key` its values, by a net the names from its mapper."""
        ...

    @property
    def names(self) -> CallNames:
        """The call's names."""
        ...

    @property
    def usage(self) -> Usage:
        """The run's usage so far."""
        ...

    @property
    def context(self) -> RunContext:
        """The run's context."""
        ...

    @property
    def approved(self) -> bool:
        """Whether a person agreed to this tool with this input."""
        ...

    @property
    def observed(self) -> bool:
        """Whether it happened already."""
        ...

    def normalized_digest(self) -> str:
        """The same text for calls of the same tool with the same input, whatever its JSON types."""
        ...

    @property
    def messages(self) -> Sequence[tuple[str, str]]:
        """The session's messages, with their roles, where a rule `reads_messages`."""
        ...

    @property
    def messages_forgotten(self) -> int:
        """How many messages were dropped."""
        ...

    def user_wrote(self, text: str) -> bool:
        """Whether a user message contains the text, not inside a longer word or number."""
        ...

    def user_said(self, pattern: str, latest: bool) -> bool:
        """Whether a pattern the rule declared in `phrases` was found in a user message, or in the last."""
        ...


class UpcomingCall(Facts, Protocol):
    """Facts about future calls of one tool: the next response's number, and the past."""

    name: str
    turn: int

    @property
    def names(self) -> CallNames:
        """The names of the tool's calls."""
        ...

    def user_said(self, pattern: str, latest: bool) -> bool:
        """As a call's."""
        ...


class RuleState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One session's state for one rule; a rule that needs none has this one."""


JudgeCall: TypeAlias = Callable[[Any, JudgedCall, int, int], Finding | None]
"""Of a state, a call, its mask and the number of calls before it."""
Spend: TypeAlias = Callable[[Any, JudgedCall, int, int], None]
"""Of the same."""

EVERY_SLOT = -1
"""The mask that has every bit."""


class Machine:
    """One compiled rule. The defaults are those of a rule that only looks at the call itself.

    `slots`, and masks over them: `restricts` for the calls the rule restricts (if none is asked for, the rule
    ends `not_exercised`), and `restricts_all` where that is every call; `outcomes` for the calls it wants to know
    the end of; `attempts` for those it wants to know of when they are asked for; `starts` for those whose start
    changes something, -1 where every start may. `every_call`: ask about every
    call, whatever its name. `always_exercised`: the rule speaks of the session as a whole. `ordinals`: it depends
    on how calls follow each other. `judges_order`: it judges where a call stands among others, so a violation names
    that place. `phrases`: patterns it asks of user messages. `reads_messages`: it reads what was said.
    """

    kind: str
    """The rule's family, the tool rule's key or `net`."""
    state_type: type[RuleState] = RuleState
    slots: tuple[Slot, ...] = ()
    phrases: tuple[str, ...] = ()
    restricts: int = 0
    restricts_all: bool = False
    every_call: bool = False
    always_exercised: bool = False
    ordinals: bool = False
    judges_order: bool = False
    reads_messages: bool = False
    outcomes: int = 0
    attempts: int = 0
    starts: int = -1

    def __init_subclass__(cls, *, judges: Any = None) -> None:
        """`judges` is the family whose rules it judges."""
        if judges is not None:
            cls.kind = str(judges.__struct_config__.tag)
            judges.machine = cls

    def fresh(self) -> Any:
        """The state of a session that has just begun."""
        return self.state_type()

    def load(self, data: Any) -> Any:
        """A state from its stored form. Raises msgspec.ValidationError."""
        return msgspec.convert(data, self.state_type, str_keys=True)

    def judging(self, mask: int) -> JudgeCall | None:
        """The judge for calls that meet exactly these slots, `judge` or less; None if none is ever refused. Where no
        call is due, only restricted calls are judged.
        """
        refuses = mask & self.restricts or self.restricts_all or type(self).due is not Machine.due
        return self.judge if refuses and not self.refuses_none else None

    def validating(self) -> JudgeCall | None:
        """The validator asked after every `judge`, if no net refuses; None if there is none."""
        return None

    def spending(self, mask: int) -> Spend | None:
        """The function that counts such a call when it starts, `started` or less; None if nothing changes."""
        none = type(self).started is Machine.started or (self.starts >= 0 and not mask & self.starts)
        return None if none else self.started

    @property
    def refuses_none(self) -> bool:
        """Whether no call ever violates the rule: only the end of a run does."""
        return type(self).judge is Machine.judge

    @property
    def outputs(self) -> tuple[OutputRef, ...]:
        """The earlier outputs that the rule needs the session to remember."""
        return tuple(ref for slot in self.slots for ref in slot.outputs)

    def judge(self, state: Any, call: JudgedCall, mask: int, now: int) -> Finding | None:
        """Whether the call may come next, `now` counted calls having come before it. Changes nothing."""
        return None

    def requested(self, state: Any, call: JudgedCall, mask: int) -> None:
        """The call was requested (once per id)."""

    def started(self, state: Any, call: JudgedCall, mask: int, now: int) -> None:
        """The call runs: spend what it spends. `now` calls came before it."""

    def completed(self, state: Any, call: JudgedCall, mask: int, output: ToolReturn) -> None:
        """A started call succeeded."""

    def failed(self, state: Any, call: JudgedCall, mask: int) -> Finding | None:
        """A started call failed."""

    def denied(self, state: Any, call: JudgedCall, mask: int) -> Finding | None:
        """A call was refused and never ran."""

    def equivalence_key(self, state: Any, now: int) -> Hashable:
        """The part of a state that affects later calls: equal where the same calls get the same answers. `now`
        counted calls came before; growing figures are capped at the values that matter.
        """
        return tuple(_frozen(value) for value in msgspec.structs.astuple(state))

    def due(self, state: Any, now: int) -> int | None:
        """The ordinal (from 1) of the next call that this rule must be asked about whatever its name."""
        return None

    def settle(self, state: Any) -> Finding | None:
        """The obligations left if the session ended now."""
        return None

    def closed(self, state: Any, sure: int, maybe: int, now: int, ahead: UpcomingCall) -> bool:
        """Whether every call of a tool would be refused next: `sure` slots it meets whatever its input,
        `maybe` slots some input meets (sure ones included).
        """
        return False

    def describe(self, state: Any) -> str:
        """The state in words; "" where there is none."""
        fields = msgspec.structs.asdict(state)
        return ", ".join(f"{name}: {_shown(value)}" for name, value in fields.items())


def _frozen(value: Any) -> Hashable:
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, set):
        return frozenset(map(_frozen, value))
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _shown(value: Any) -> Any:
    """A value of a state in words; a collection as its size, unless it is a short list of figures."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and len(value) <= _SHORT and all(isinstance(item, int) for item in value):
        return " and ".join(map(str, value)) or "none"
    return len(value) if isinstance(value, list | dict) else value


def slots_of(scope: NameScope, *selectors: tuple[Any, bool]) -> tuple[Slot, ...]:
    """Slots for (selector, permits) pairs, in order."""
    return tuple(Slot(selector, scope, permits=permits) for selector, permits in selectors)


def listed(names: Sequence[str]) -> str:
    """Names as a text shows them."""
    return ", ".join(f"`{name}`" for name in names)
