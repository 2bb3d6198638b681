"""`Machine`: a compiled rule, as the monitor uses it.

A rule's selectors are its *slots*. The slots that a call matches are its *mask*: bit n is slot n. The monitor
computes the mask, and a machine evaluates only calls that it names or that are due, or every call if it says so.

A machine is immutable and shared. Its state in one session is a small struct of plain data that can be stored, copied
and compared.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from ..errors import Action, RefusalCause
from ..events.calls import ToolCall, copied, fingerprint
from ..events.run_context import RunContext, Usage
from ..language.conditions import OutputRef
from ..language.facts import BOUND as BOUND
from ..language.facts import CallNames, Directories, NamingKind, SeenValues
from ..language.selectors import NameScope, Slot, VirtualName
from ..values.json_values import is_number, parsed_output, text_of
from ..values.regexes import VIEW, Regex
from .memory import SessionFacts

_SHORT = 5


class Finding(msgspec.Struct, frozen=True):
    """A rule's reason to deny: what it expected and what happened, in words and figures.

    `action`, `reason` and `tell_model` override the rule's, as for a net's manual transition or a check's answer.
    `cause` is the part of the call that is denied.
    """

    expected: str
    actual: str
    details: dict[str, Any] = {}
    suggestion: str = ""
    action: Action | None = None
    reason: str | None = None
    tell_model: str | None = None
    cause: RefusalCause = "tool"


_UNPARSED: Any = object()


class ToolReturn(msgspec.Struct, gc=False):
    """A tool's output, parsed when a rule first reads it."""

    raw: Any
    unfinished: bool = False  # what the call has started goes on
    _parsed: Any = _UNPARSED

    @property
    def value(self) -> Any:
        """The output as JSON, which paths are applied to."""
        if self._parsed is _UNPARSED:
            self._parsed = parsed_output(self.raw)
        return self._parsed

    @property
    def text(self) -> str:
        return self.raw if isinstance(self.raw, str) else fingerprint(self.value).decode()


def captured(regex: Regex, output: ToolReturn) -> Iterator[str]:
    """The values that a pattern captures in an output, at most as many as a rule remembers.

    Values beyond that, or beyond the work bound for one text, are not found.
    """
    text = output.text
    with suppress(ValueError):
        yield from filter(None, islice(regex.values([text], VIEW), BOUND))


STARTED = "started"
LOOSE: Final = object()
"""The key of the loose fingerprint in a call's memo."""
COMPARABLE: Final = object()
"""The same for its input without secrets."""

NO_ANSWERS: Mapping[str, Any] = MappingProxyType({})
"""For a call without asynchronous checks."""


class EvaluatedCall(msgspec.Struct, gc=False):
    """One call that has not ended, and the facts that rules can read of it.

    `turn` is numbered by the session; `memory` is what the session remembers, `given` the input as it came.
    `parent` is the call that started the subagent that makes it; `approved`: a person approved this tool with this
    input; `answers` are those of asynchronous checks, by rule id.
    """

    # gc=False: nothing a call leads to leads back to it; the answers of checks are let go once it is decided on.
    id: str
    name: str
    input: Any
    turn: int
    memory: SessionFacts
    status: str = "requested"
    kind: NamingKind = ""
    given: Any = None
    parent: str | None = None
    approved: bool = False
    answers: Mapping[str, Any] = NO_ANSWERS
    found: dict[Any, Any] | None = None

    @property
    def own(self) -> ToolCall:
        """The call for code of others, with an input of its own: what that changes of it changes nothing here."""
        return ToolCall(
            id=self.id,
            name=self.name,
            input=copied(dict(self.input or {})),
            turn=self.turn,
            parent_tool_call_id=self.parent,
        )

    @property
    def memo(self) -> dict[Any, Any]:
        """Values already computed for the call: by a `key` its values, by a net the names from its mapper."""
        if self.found is None:
            self.found = {}
        return self.found

    @property
    def observed(self) -> bool:
        """Whether only its start is known, without a request."""
        return self.status == STARTED

    def goes_by(self, virtual: VirtualName) -> bool | None:
        """Whether the input gives the call this name; None if that is unknown."""
        if virtual not in self.memo:
            self.memo[virtual] = virtual.fits(self.input)
        fits: bool | None = self.memo[virtual]
        return fits

    @property
    def names(self) -> CallNames:
        return self.memory.tools.names(self.kind)

    @property
    def usage(self) -> Usage:
        """The run's usage so far."""
        return self.memory.meter.run

    @property
    def context(self) -> RunContext:
        return self.memory.context

    @property
    def directories(self) -> Directories:
        """The run's directories and shell."""
        return self.memory.directories

    @property
    def comparable(self) -> Any:
        """The input to compare with other calls', as a replay has it: of the event, which has no secrets."""
        redact = self.memory.redact
        if redact is None:
            return self.input
        if COMPARABLE not in self.memo:
            given = redact(self.given)
            self.memo[COMPARABLE] = self.input if given is self.given else self.memory.tools.input(self.name, given)
        return self.memo[COMPARABLE]

    def outputs(self, ref: OutputRef) -> SeenValues:
        """The outputs of earlier successful calls."""
        return self.memory.returned[ref]

    def user_wrote(self, text: str) -> bool:
        """Whether a user message contains the text, not inside a longer word or number."""
        return self.memory.user_text.contain(text)

    def user_said(self, pattern: str, latest: bool) -> bool:
        """Whether a pattern was found in a user message, or in the last."""
        text = self.memory.user_text
        return pattern in (text.last if latest else text.ever)

    def normalized_digest(self) -> str:
        """A digest of the tool and input that ignores the JSON types of values."""
        loose: str | None = self.memo.get(LOOSE)
        if loose is None:
            text = self.name.casefold() + "\0" + fingerprint(_loosened(self.comparable)).decode()
            loose = self.memo[LOOSE] = hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()
        return loose


def _loosened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _loosened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_loosened(item) for item in value]
    return text_of(value) if is_number(value) else value


class RuleState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One session's state for one rule; this one is empty, for rules that need none."""


Evaluate: TypeAlias = Callable[[Any, EvaluatedCall, int, int], Finding | None]
"""Called with a state, a call, its mask and the number of calls before it."""
Spend: TypeAlias = Callable[[Any, EvaluatedCall, int, int], None]
"""Called with the same."""

EVERY_SLOT = -1
"""The mask that has every bit."""


class Machine:
    """One compiled rule. The defaults are those of a rule that depends on the call alone.

    Masks over `slots`: `restricts` for the calls the rule restricts (if none is requested, the rule ends
    `not_exercised`); `outcomes` for calls whose end it observes; `attempts` for calls whose request it observes;
    `starts` for calls whose start changes its state, -1 if any start may.

    Flags: `restricts_all`: it restricts every call. `every_call`: it evaluates every call, whatever its name.
    `always_exercised`: it is about the session as a whole. `order_dependent`: it depends on the order of calls.
    `evaluates_order`: it evaluates a call's position, which its violations name. `compares_inputs`: it compares whole
    inputs with one another. `phrases` are the patterns it looks up in user messages; `from_user`: it looks values up
    in them; `reads_messages`: it reads all messages. `watches_turns`: a new turn makes a difference.
    `hears_unfinished`: it observes also the success of a call whose work goes on; for the others, that is no success.
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
    order_dependent: bool = False
    evaluates_order: bool = False
    compares_inputs: bool = False
    from_user: bool = False
    reads_messages: bool = False
    watches_turns: bool = False
    hears_unfinished: bool = False
    outcomes: int = 0
    attempts: int = 0
    starts: int = -1

    def __init_subclass__(cls, *, evaluates: Any = ()) -> None:
        """`evaluates` is the family whose clauses it evaluates, or several."""
        for family in evaluates if isinstance(evaluates, tuple) else (evaluates,):
            family.machine = cls

    def initial_state(self) -> Any:
        """The state of a session that has just begun."""
        return self.state_type()

    def decode_state(self, data: Any) -> Any:
        """A state from its stored form. Raises msgspec.ValidationError."""
        return msgspec.convert(data, self.state_type, str_keys=True)

    def compile_evaluate(self, mask: int) -> Evaluate | None:
        """The function that evaluates calls that match exactly these slots: `evaluate`, or a shortcut; None if it
        never denies. If no call is due, only restricted calls are evaluated.
        """
        denies = mask & self.restricts or self.restricts_all or type(self).due is not Machine.due
        return self.evaluate if denies and not self.denies_none else None

    def validating(self) -> Evaluate | None:
        """The validator, called after every `evaluate` if no net denies; None without one."""
        return None

    def compile_spend(self, mask: int) -> Spend | None:
        """The function for the start of such a call: `started`, or a shortcut; None if nothing changes."""
        none = type(self).started is Machine.started or (self.starts >= 0 and not mask & self.starts)
        return None if none else self.started

    @property
    def denies_none(self) -> bool:
        """Whether no call violates the rule, but at most the end of a run."""
        return type(self).evaluate is Machine.evaluate

    @property
    def outputs(self) -> tuple[OutputRef, ...]:
        """The earlier outputs that the rule needs the session to remember."""
        return tuple(ref for slot in self.slots for ref in slot.outputs)

    def evaluate(self, state: Any, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        """Evaluate a call that comes after `now` counted calls, without changing the state; None allows it."""
        return None

    def requested(self, state: Any, call: EvaluatedCall, mask: int) -> None:
        """Observe the request of a call, once per id."""

    def started(self, state: Any, call: EvaluatedCall, mask: int, now: int) -> None:
        """Observe the start of a call after `now` others, which spends."""

    def completed(self, state: Any, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        """Observe the success of a started call."""

    def failed(self, state: Any, call: EvaluatedCall, mask: int) -> Finding | None:
        """Observe the failure of a started call."""

    def denied(self, state: Any, call: EvaluatedCall, mask: int) -> Finding | None:
        """Observe that a call was denied and never ran."""

    def restricted(self, state: Any, keeps: Callable[[str], bool]) -> Any:
        """The state without what it remembers of values that are not kept; itself if it remembers none."""
        return state

    def has_tripped(self, state: Any) -> bool:
        """Whether it denies every call from now on, whatever happens."""
        return False

    def equivalence_key(self, state: Any, now: int, turn: int = 1, in_flight: int = 0) -> Hashable:
        """The part of a state that affects later calls: states with equal keys give the same answers. Growing figures
        are capped at the values that matter, with at most `in_flight` calls running beside the next; `now` counted
        calls came before, and `turn` is the session's.
        """
        return tuple(_frozen(value) for value in msgspec.structs.astuple(state))

    def due(self, state: Any, now: int) -> int | None:
        """The ordinal (from 1) of the next call that this rule must evaluate whatever its name."""
        return None

    def concerned(self, state: Any, mask: int, now: int) -> bool:
        """Whether it looks at a call of that mask after `now` others: one that it names, or that is due."""
        return bool(mask) or self.every_call or (self.order_dependent and self.due(state, now) == now + 1)

    def finding_at_end(self, state: Any) -> Finding | None:
        """The finding if the session ended now, for unmet obligations."""
        return None

    def denies_all(self, state: Any, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        """Whether the next call of a tool is denied whatever its input: `sure` slots match every input, `maybe` slots
        some input (sure ones included); `ahead` is a call of it in the next turn, without an input.

        As it is: whether `evaluate` denies the call that meets what it restricts for certain only, and all else.
        """
        mask = (sure & self.restricts) | (maybe & ~self.restricts)
        evaluate = self.compile_evaluate(mask)
        finding = evaluate(state, ahead, mask, now) if evaluate is not None else None
        return finding is not None and finding.action in (None, "deny", "cancel")

    def describe(self, state: Any) -> str:
        """The state in words; "" without one."""
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
    """Slots for (selector, allows) pairs, in order; what allows is evidence that something was called."""
    return tuple(
        Slot(selector, scope, allows=allows, evidence="call" if allows else None) for selector, allows in selectors
    )


def listed(names: Iterable[str]) -> str:
    """Names as a text shows them."""
    return ", ".join(f"`{name}`" for name in names)
