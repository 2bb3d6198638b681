"""One rule as a finite machine over whole sessions: what each call does to it, and what its state comes to.

A component asks the rule's own machine and remembers the answers. States that no later call can tell apart have one
number. A state is a representative with its own ordinal and turn, as machines look only at differences of them.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable
from copy import copy, deepcopy
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar

import msgspec

from ..language.facts import NamingKind
from ..monitor.call_table import CallState
from ..monitor.program import CompiledRule, Probe, probe_of
from ..monitor.violations import DENIES_LATER
from ..rules.machine import LOOSE, Finding, Machine, ToolReturn
from ..rules.memory import SessionFacts
from ..rules.per_key import KeyedState, without_key
from ..rules.petri_net import NetMachine
from ..stack.merge import LimitEntry
from ..values.regexes import Regex

NOTHING, WARN, ASK, DENY = range(4)
"""A rule's findings against a call, by strictness; `cancel` denies the call as `deny` does."""
LEVELS = {"allow": NOTHING, "warn": WARN, "request_approval": ASK, "deny": DENY, "cancel": DENY}
ANY_OTHER = "anyother"
"""The value of a key that stands for all values which are not followed one by one."""
NEVER_SEEN = "neverseen"
"""Another of them."""
IN_FLIGHT = 1
"""How many calls may run on while others start and end."""
RUNS_ON, AT_ONCE = 0, 1
"""The slot of that call, and of one that ends before another starts."""
MOST_TOKENS = 12
"""How many tokens of one place are followed."""
ASKING = 30
"""The steps that asking a rule's machine takes; looking up its earlier answer takes one."""

P = ParamSpec("P")
T = TypeVar("T")
Reaction: TypeAlias = tuple[int, int]
"""The finding against an event, and the component's state after it."""


def remembered(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method that computes its result once for the same positional arguments; `_memo` of its object has them."""
    name = method.__name__

    @wraps(method)
    def answer(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        memo: dict[Any, T] = self._memo[name]
        try:
            return memo[args]
        except KeyError:
            pass
        memo[args] = found = method(self, *args, **kwargs)
        return found

    return answer


class Standard(NamedTuple):
    """The findings of a property that a stack must not leave to it.

    `strict`: what the property only warns of breaks it too, as does all that it finds and no person agreed to;
    otherwise what it finds must be stricter than the stack's answer. `widened` says how one approval reaches further
    under the stack: then what both ask about breaks it as well.
    """

    strict: bool
    widened: str = ""

    def breaks(self, found: int, level: int, *, of_call: bool = False) -> bool:
        """Whether a finding (`of_call`: against a call) breaks the property where the stack answers `level`."""
        if self.strict:
            return found in (WARN, DENY) or (found == ASK and level < ASK)
        return found > max(level, WARN) or (of_call and bool(self.widened) and found == ASK == level)

    def breaks_at_end(self, owed: int) -> bool:
        """Whether an obligation of this level, left at the end, breaks the property."""
        return owed > (NOTHING if self.strict else WARN)


class InputClass(msgspec.Struct, eq=False):
    """Calls that the rules looked at do not tell apart: a name, an example of the input, and outputs to tell apart.

    `number` tells it from others of its search; `wild` are the key paths whose value is ANY_OTHER. `masks` are the
    slots that its calls meet, by rule, where no example was found (`phantom`); `bound` are the values at key paths.
    `fresh`: its input was never used.
    """

    number: int
    name: str
    input: dict[str, Any]
    outputs: tuple[Any, ...] = ("done",)
    wild: tuple[str, ...] = ()
    variants: tuple[dict[str, Any], ...] = ()
    fresh: bool = False
    phantom: bool = False
    bound: tuple[Any, ...] = ()
    masks: dict[int, int] = {}

    @property
    def ways(self) -> int:
        """How many inputs stand for it: its own, and each variant with another value in some open places."""
        return 1 + len(self.variants)


class RuleMoment(NamedTuple):
    """A state with what else a rule may look at: what users wrote, the calls before, and the turn."""

    state: Any
    facts: SessionFacts
    now: int = 0
    turn: int = 1

    def copied(self) -> Self:
        """A copy whose state can change while this one's stays."""
        return self._replace(state=copied(self.state))


def overlaps(machine: Machine) -> bool:
    """Whether more running calls than are followed may matter to it: a net whose tokens several of them hold."""
    if not isinstance(machine, NetMachine):
        return False
    net = machine.net
    holds = any(each.deferred and each.inputs for each in net.transitions)
    grows = any(len(each.outputs) > len(each.inputs) for each in net.transitions)
    return holds and (grows or sum(net.initial_marking.values()) > IN_FLIGHT)


class Component:
    """A rule, a limit or a budget, as a search asks it; states are numbers, `start` is the first.

    `beyond` are the states that are not expanded, as a net holds too many tokens there. `turns`: a turn makes a
    difference to it. `runs`: where it stands depends on the run. `denies_later`: a run may go on where it denies
    what has happened already. `has_obligation`: in a session without calls something is left undone. As it is,
    nothing makes a difference to it, and it finds nothing.
    """

    beyond: frozenset[int] | set[int] = frozenset()
    start = 0
    turns = runs = denies_later = has_obligation = False

    @property
    def spent(self) -> int:
        """The steps that were taken for it."""
        return 0

    def watches_end(self, call: InputClass) -> bool:
        """Whether it makes a difference to it how such a call ends."""
        return bool(self.ends_as(call))

    def ends_as(self, call: InputClass) -> Hashable:
        """The part of such a call that matters to it when the call ends; false-like if nothing does."""
        return 0

    def watches_denial(self, call: InputClass) -> bool:
        """Whether a denied call of these makes a difference to it."""
        return False

    def may_have_tripped(self, at: int) -> bool:
        """Whether a breaker may have tripped, so that nothing changes any more."""
        return False

    def requested(self, at: int, call: InputClass) -> int:
        """A call was requested."""
        return at

    def level(self, at: int, call: InputClass) -> int:
        """The strictness found against a requested call."""
        return NOTHING

    def started(self, at: int, call: InputClass, slot: int) -> int:
        """A call runs in one of the slots."""
        return at

    def denied(self, at: int, call: InputClass) -> Reaction:
        """A requested call was denied."""
        return NOTHING, at

    def ended(self, at: int, call: InputClass, slot: int, output: int | None) -> Reaction:
        """A call that ran in a slot completed with one of its outputs, or failed."""
        return NOTHING, at

    def turned(self, at: int) -> Reaction:
        """The next turn began: what it finds against that, and where it stands."""
        return NOTHING, at

    def resumed(self, at: int) -> Reaction:
        """The session continues in another run."""
        return self.turned(at)

    def wrote(self, at: int, text: str) -> int:
        """A user wrote a message."""
        return at

    def obligation(self, at: int) -> int:
        """The strictness found when the session ends."""
        return NOTHING


class BudgetComponent(Component):
    """A budget that other runs may have used up at any call."""

    def __init__(self, action: str) -> None:
        self._action = LEVELS[action]

    def level(self, at: int, call: InputClass) -> int:
        return self._action


class RuleComponent(Component):
    """A rule whose machine is followed as it is. `keeps` says which keys of it are followed; None: all."""

    at_once = IN_FLIGHT
    """How many calls may run on beside another."""
    spent = 0

    def __init__(
        self, index: int, rule: CompiledRule, facts: SessionFacts, keeps: Callable[[str], bool] | None = None
    ) -> None:
        self.index, self.rule, self.machine, self._keeps = index, rule, rule.machine, keeps
        self._numbers: dict[Hashable, int] = {}
        self.moments: list[RuleMoment] = []
        self.beyond: set[int] = set()
        self._memo: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self.turns = self.machine.watches_turns
        self._listens = bool(self.machine.phrases) or self.machine.from_user
        self.denies_later = self.machine.kind in DENIES_LATER and rule.action == "deny"
        instance = without_key(self.machine)
        self.has_obligation = instance.finding_at_end(instance.initial_state()) is not None
        self.start = self.number(RuleMoment(self.machine.initial_state(), facts))

    def number(self, moment: RuleMoment) -> int:
        """The number of a state; those that no session can tell apart have one."""
        self.spent += ASKING
        if self._keeps is not None:
            moment = moment._replace(state=self.machine.restricted(moment.state, self._keeps))
        heard: Hashable = None
        if self._listens:
            phrases, words = frozenset(self.machine.phrases), moment.facts.user_text
            heard = (words.ever & phrases, words.last & phrases, frozenset(words.texts))
        key = self.machine.equivalence_key(moment.state, moment.now, moment.turn, self.at_once), heard
        if key not in self._numbers:
            self._numbers[key] = len(self.moments)
            self.moments.append(moment)
            if isinstance(self.machine, NetMachine) and max(moment.state.marking.values(), default=0) > MOST_TOKENS:
                self.beyond.add(self._numbers[key])
        return self._numbers[key]

    def in_flight(self, call: InputClass, at: RuleMoment, slot: int = 0, variant: int = 0) -> CallState:
        """A call of the class, as the machine sees it."""
        input: Any = call.variants[variant - 1] if variant else call.input
        kind: Any = call.name
        if tools := at.facts.tools:
            kind, input = tools.kind(call.name, input), tools.input(call.name, input)
        made = CallState(f"in flight {slot}", call.name, input, at.turn, at.facts, kind=kind)
        if call.fresh:
            made.memo[LOOSE] = "an input that no other call has"
        return made

    @remembered
    def mask(self, call: InputClass) -> int:
        """The slots of the rule that its calls meet."""
        if self.index in call.masks:
            return call.masks[self.index]
        made = self.in_flight(call, self.moments[0])
        return self._probe(made.kind).mask_of(made)

    @remembered
    def _probe(self, kind: NamingKind) -> Probe:
        return probe_of(self.rule, self.moments[0].facts.tools.names(kind))

    @remembered
    def level(self, at: int, call: InputClass) -> int:
        self.spent += ASKING
        return self.evaluated(self.moments[at], call)

    def evaluated(self, moment: RuleMoment, call: InputClass) -> int:
        """The strictness found against a call of the class that is requested at a moment."""
        machine, mask = self.machine, self.mask(call)
        evaluate = machine.compile_evaluate(mask) if machine.concerned(moment.state, mask, moment.now) else None
        if evaluate is None:
            return NOTHING
        return self._level_of(evaluate(moment.state, self.in_flight(call, moment), mask, moment.now))

    def _level_of(self, finding: Finding | None) -> int:
        return NOTHING if finding is None else LEVELS[finding.action or self.rule.action]

    @remembered
    def started(self, at: int, call: InputClass, slot: int, variant: int = 0) -> int:
        return self.number(self.begun(self.moments[at], call, slot, variant))

    def begun(self, moment: RuleMoment, call: InputClass, slot: int = 0, variant: int = 0) -> RuleMoment:
        """What a moment becomes when a call of the class starts."""
        machine, mask = self.machine, self.mask(call)
        spend = machine.compile_spend(mask) if machine.concerned(moment.state, mask, moment.now) else None
        state = moment.state
        if spend is not None:
            state, unlike = copied(state), call.fresh and machine.compares_inputs
            spend(state, self.in_flight(call, moment, slot, variant), 0 if unlike else mask, moment.now)
        return moment._replace(state=state, now=moment.now + 1)

    def ends_as(self, call: InputClass) -> Hashable:
        return self.mask(call) & self.machine.outcomes

    def watches_denial(self, call: InputClass) -> bool:
        denials = type(without_key(self.machine)).denied is not Machine.denied
        return bool(self.mask(call) & (self.machine.attempts | (self.machine.outcomes if denials else 0)))

    def requested(self, at: int, call: InputClass, variant: int = 0) -> int:
        watches = self.mask(call) & self.machine.attempts
        return self._after(self.machine.requested, at, call, variant)[1] if watches else at

    def denied(self, at: int, call: InputClass, variant: int = 0) -> Reaction:
        watches = self.mask(call) & self.machine.outcomes
        return self._after(self.machine.denied, at, call, variant) if watches else (NOTHING, at)

    @remembered
    def _after(self, act: Callable[..., Finding | None], at: int, call: InputClass, variant: int) -> Reaction:
        """The machine's finding and its state after a call that is not running."""
        moment = self.moments[at].copied()
        found = act(moment.state, self.in_flight(call, moment, 0, variant), self.mask(call))
        return self._level_of(found), self.number(moment)

    @remembered
    def ended(
        self, at: int, call: InputClass, slot: int, output: int | None, variant: int = 0, other: bool = False
    ) -> Reaction:
        mask = self.mask(call)
        if not mask & self.machine.outcomes:
            return NOTHING, at
        moment, returned = self.moments[at].copied(), None
        if output is not None:
            raw = call.outputs[output]
            returned = ToolReturn(filled(raw, NEVER_SEEN) if other else raw)
        found = self.over(moment, self.in_flight(call, moment, slot, variant), mask, returned)
        return self._level_of(found), self.number(moment)

    def over(self, moment: RuleMoment, made: CallState, mask: int, returned: ToolReturn | None) -> Finding | None:
        """The finding against the end of a call that is in flight at a moment, which observes it; None: it failed."""
        if returned is not None:
            self.machine.completed(moment.state, made, mask, returned)
            return None
        found = self.machine.failed(moment.state, made, mask)
        _raise_to_zero(moment.state)
        return found

    @remembered
    def turned(self, at: int) -> Reaction:
        moment = self.moments[at]
        return NOTHING, self.number(moment._replace(turn=moment.turn + 1)) if self.turns else at

    @remembered
    def wrote(self, at: int, text: str) -> int:
        if not self._listens:
            return at
        moment = self.moments[at]
        words = deepcopy(moment.facts.user_text)
        phrases = {phrase: Regex(phrase) for phrase in self.machine.phrases}
        words.add(text, phrases, keep=self.machine.from_user)
        words.texts = sorted(set(words.texts))
        return self.number(moment._replace(facts=replace(moment.facts, user_text=words)))

    def may_have_tripped(self, at: int) -> bool:
        return self.machine.has_tripped(self.moments[at].state)

    def obligation(self, at: int) -> int:
        return self._level_of(self.machine.finding_at_end(self.moments[at].state))


_FIXED = (str, int, float, tuple, frozenset, type(None))


def copied(value: Any) -> Any:
    """A copy of a machine's state that can change while the original stays."""
    if isinstance(value, _FIXED):
        return value
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    if isinstance(value, set):
        return set(value)
    if not isinstance(value, msgspec.Struct) or value.__struct_config__.frozen:
        return deepcopy(value)
    made = copy(value)
    for name in value.__struct_fields__:
        setattr(made, name, copied(getattr(value, name)))
    return made


def _raise_to_zero(state: Any) -> None:
    """Set figures below zero to zero: of values that are not followed, a call may fail that never started."""
    for row in state.rows.values() if isinstance(state, KeyedState) else (state,):
        for name in ("standing", "total"):
            if getattr(row, name, 0) < 0:
                setattr(row, name, 0)


def filled(value: Any, other: str) -> Any:
    """A value with another in the place of ANY_OTHER."""
    if isinstance(value, dict):
        return {key: filled(item, other) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, other) for item in value]
    return value.replace(ANY_OTHER, other) if isinstance(value, str) else value


class LimitComponent(Component):
    """A limit of calls or of turns; its states are what is used, no further than one too many."""

    def __init__(self, entry: LimitEntry) -> None:
        self._action = LEVELS[entry.action]
        self._most = int(entry.limit.max)
        self._calls = entry.kind.projected == "call"
        self.turns = not self._calls
        self.runs = entry.limit.scope == "run"
        self.denies_later = entry.action == "deny"
        self.start = 0 if self._calls else 1

    def level(self, at: int, call: InputClass) -> int:
        reported = at > self._most and self._action == WARN
        return self._action if at + self._calls > self._most and not reported else NOTHING

    def started(self, at: int, call: InputClass, slot: int) -> int:
        return min(at + 1, self._most + 1) if self._calls else at

    def turned(self, at: int) -> Reaction:
        if self._calls:
            return NOTHING, at
        after = min(at + 1, self._most + 1)
        return (self._action if after > max(at, self._most) else NOTHING), after  # it is reported once

    def resumed(self, at: int) -> Reaction:
        after = self.start if self.runs else self.turned(at)[1]
        return self._action if after > self._most else NOTHING, after
