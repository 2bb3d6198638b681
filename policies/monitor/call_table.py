"""The calls of a session, each from its request to its end, and the session's counters, all of it plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec

from ..events import ToolCallDenied, ToolCallRequested, ToolCallStarted, ToolEvent, ToolOutcome
from ..events.calls import UNREADABLE, mark, matches_digest
from ..rules.machine import STARTED, Evaluate, EvaluatedCall, Finding, Spend
from ..rules.memory import EMPTY, SessionFacts, UserText
from .limit_checker import BudgetState, LimitState
from .program import CallPlan, CompiledRule
from .usage import TokenMeter

AskedRule: TypeAlias = tuple[Evaluate, Any, int, CompiledRule]
"""What evaluates a call: a rule's function, the rule's state, and the slots that the call matches."""


class States(dict[int, Any]):
    """The state of each rule by its number, created on first use."""

    __slots__ = ("rules",)

    def __init__(self, rules: Mapping[int, CompiledRule]) -> None:
        self.rules = rules

    def __missing__(self, number: int) -> Any:
        state = self[number] = self.rules[number].machine.initial_state()
        return state


class BoundPlan:
    """A plan for one kind of call, bound to the states of its rules in one session.

    Rules that have left the session do not see how a call ended. `new`: the session has not yet marked the rules as
    exercised.
    """

    __slots__ = ("attempts", "new", "outcomes", "plan", "remembers", "rounds", "spends")

    def __init__(
        self,
        plan: CallPlan,
        states: Mapping[int, Any],
        rules: Mapping[int, CompiledRule],
        failed_rules: Mapping[str, str],
    ) -> None:
        self.plan = plan
        self.new = True
        evaluations: list[AskedRule] = []
        for rule, mask, evaluate in plan.evaluations:
            if rule.id in failed_rules:
                evaluate = _denying(failed_rules[rule.id])
            if evaluate is not None:
                evaluations.append((evaluate, states[rule.number], mask, rule))
        validators: list[AskedRule] = [
            (validate, states[r.number], mask, r) for r, mask, validate in plan.validators if r.id not in failed_rules
        ]
        self.rounds = (evaluations, validators) if validators else (evaluations,)
        self.spends: list[tuple[Spend, Any, int, CompiledRule]] = [
            (spend, states[rule.number], mask, rule) for rule, mask, spend in plan.spends if spend is not None
        ]
        self.attempts = [(states[rule.number], mask, rule) for rule, mask in plan.attempts]
        self.outcomes = [
            (r.machine.completed, states[r.number], mask, r) for r, mask in plan.outcomes if r.number in rules
        ]
        self.remembers = plan.remembers


def _denying(why: str) -> Evaluate:
    def evaluate(state: Any, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        raise RuntimeError(why)

    return evaluate


NOTHING_TO_DO = BoundPlan(CallPlan(()), {}, {}, {})
FINISHED_KEPT = 65_536
"""How many finished calls of a run are remembered by id; a call with an older id counts as new."""

DENIED_KEPT = 1_024
"""How many denied calls are remembered, whose reported outcomes are ignored."""

REQUESTED, HELD, LAPSED = "requested", "held", "lapsed"
DECIDED, ALLOWED = "decided", "allowed"
SPENT = (STARTED, ALLOWED)
"""States of a call that was allowed and counted; its outcome is to come."""

RUNNING = (*SPENT, DECIDED)
"""States of a call that was allowed and has not ended; a `decided` one is counted when it starts."""

UNDECIDED = (REQUESTED, HELD, LAPSED)
"""States of a call that was requested and not allowed; `lapsed`: its approval was declined, or has expired."""

DENIED = b"!"
"""The prefix of a denied call's mark."""

RuleName: TypeAlias = tuple[str, str]
"""A rule by its policy and its id."""


class Grant(msgspec.Struct, frozen=True, gc=False):
    """A person's approval of one call: this tool with this input, for these rules; None: for any rule."""

    tool: str
    digest: str
    rules: tuple[RuleName, ...] | None = None
    approval: str = ""

    def covers(self, policy: str, rule: str) -> bool:
        """Whether this rule was shown to the person."""
        return self.rules is None or (policy, rule) in self.rules


class CallState(EvaluatedCall, gc=False):
    """One call in the table.

    `bound` is the plan of the rules that it concerns. `approval` is the id of the approval it waits for, `shown` are
    the rules that request it; `kept` is the digest of an input that a snapshot could not hold; `key` is its proposal,
    0 without one.
    """

    bound: BoundPlan = NOTHING_TO_DO
    approval: str = ""
    shown: tuple[RuleName, ...] = ()
    grant: Grant | None = None
    kept: bytes = b""
    key: int = 0

    @property
    def runs(self) -> bool:
        """Whether it was allowed."""
        return self.status in RUNNING

    def is_again(self, name: str, input: Any) -> bool:
        """Whether the call has this tool and this input; False if the input cannot be read."""
        if self.name != name:
            return False
        try:
            return self.given is input or matches_digest(self.kept or mark(name, self.given), name, input)
        except UNREADABLE:
            return False


@dataclass(kw_only=True, slots=True)
class Session:
    """A session's counters and call digests.

    `count` is the number of started calls; `turn` the current turn, `turn_base` its number when the run began, and
    `turn_offset` what is added to the numbers of a run that counts from 1 again; `begun` is the last turn that the
    stream reported as begun. `finished` has the digests of finished calls, `earlier` those of earlier turns, `denied`
    the ids whose latest call was denied. `conflicting` are the ids of calls under which another call was denied,
    until that is recorded.
    """

    # A dataclass: each event reads this several times, and a Struct's attributes take twice as long.
    run_id: str = ""
    runs: int = 0
    ended: str = ""
    count: int = 0
    turn: int = 0
    turn_base: int = 0
    turn_offset: int | None = None
    any_requested: bool = False
    begun: int = 0
    finished: dict[str, bytes] = field(default_factory=dict)
    earlier: dict[str, bytes] = field(default_factory=dict)
    denied: dict[str, None] = field(default_factory=dict)
    conflicting: frozenset[str] = frozenset()
    granted: dict[str, Grant] = field(default_factory=dict)
    exercised: frozenset[str] = frozenset()
    violated: frozenset[str] = frozenset()
    failed_rules: dict[str, str] = field(default_factory=dict)
    meter: TokenMeter = field(default_factory=TokenMeter)
    limits: LimitState = field(default_factory=LimitState)
    budgets: BudgetState = field(default_factory=BudgetState)
    user_text: UserText = field(default_factory=UserText)

    def session_turn(self, turn: int) -> int:
        """The session's number of a turn that a run numbers `turn`; 0 is the current one."""
        if turn > 0 and self.turn_offset is None:
            self.turn_offset = self._offset(turn)
        return self.turn_ahead(turn)

    def turn_ahead(self, turn: int) -> int:
        """The same, without changing the state."""
        if turn <= 0:
            return max(self.turn, self.turn_base + 1)
        return turn + (self._offset(turn) if self.turn_offset is None else self.turn_offset)

    def _offset(self, turn: int) -> int:
        """What to add to a run's turn numbers, if its client counts from 1 again."""
        return self.turn_base if turn <= self.turn_base else 0

    def new_run(self, run_id: str, model: str) -> None:
        """Begin a run: call ids, turns within the run and approvals start anew."""
        self.run_id = run_id
        self.runs += 1
        self.ended = ""
        self.turn_base = self.turn
        self.turn_offset = None if self.runs > 1 else 0
        self.begun = 0
        self.finished, self.earlier, self.denied, self.granted = {}, {}, {}, {}
        self.conflicting = EMPTY
        self.meter.new_run(model)
        if self.budgets.granted or self.budgets.exhausted:
            self.budgets = BudgetState()

    def begin_turn(self, turn: int) -> None:
        """Begin a turn: calls that have ended belong to an earlier one."""
        if turn <= self.begun:
            return
        self.begun = turn
        if self.finished:
            self.earlier |= self.finished
            self.finished = {}
            if len(self.earlier) > FINISHED_KEPT:
                self.forget(self.earlier)

    def deny(self, id: str) -> None:
        """Note that the latest call of that id was denied."""
        self.denied[id] = None
        if len(self.denied) > DENIED_KEPT:
            del self.denied[next(iter(self.denied))]

    def forget(self, calls: dict[str, bytes]) -> None:
        """Drop the oldest calls beyond the bound."""
        # Many at a time: finding the first key of a dict steps over all that were deleted before it.
        oldest = list(islice(calls, FINISHED_KEPT // 8))
        for id in oldest:
            del calls[id]


Relation: TypeAlias = Literal["new", "repeat", "changed", "running", "ended", "denied", "conflict"]
"""The relation of a call to the calls of its run: a `repeat` of an undecided request, `changed` if that has another
input; the same call `running`, `ended` or `denied`; `conflict` if the id belongs to another call that is not over.
"""


def check_id(id: object) -> None:
    """Raises TypeError for a call's id that is not text."""
    if type(id) is not str:
        raise TypeError(f"a call's id is text, not a value of type `{type(id).__name__}`")


class CallTable(dict[str, CallState]):
    """The open calls of a run, by id; the session keeps the digests of the others. A replayed call has the input of
    its event, without secrets.
    """

    __slots__ = ("memory", "session")

    session: Session
    memory: SessionFacts

    def relate(self, id: str, name: str, input: Any, turn: int) -> Relation:
        """The relation of the call with that id, tool and input, in `turn` (numbered by the session; 0: unknown).

        Once a call is over, its id names a new one; but the same call again, in a turn that the stream did not report
        as a later one, may be that call reported again. Raises one of UNREADABLE.
        """
        call = self.get(id)
        if call is not None:
            same = self.is_same(call, name, input)
            if call.status in RUNNING:
                return "running" if same else "conflict"
            if call.name != name:
                return "conflict"
            return "repeat" if same else "changed"
        session = self.session
        ended = session.finished.get(id)
        if ended is None:
            ended = session.earlier.get(id)
            if ended is None or turn >= session.begun:
                return "new"
        kept, redact = ended.removeprefix(DENIED), self.memory.redact
        if not matches_digest(kept, name, input) and not (
            redact is not None and matches_digest(kept, name, redact(input))
        ):
            return "new"
        return "denied" if ended.startswith(DENIED) else "ended"

    def is_same(self, call: CallState, name: str, input: Any) -> bool:
        """Whether the call has this tool and input; the order of keys is ignored, 7.0 is 7, and true is not 1."""
        redact = self.memory.redact
        return call.is_again(name, input) or (
            redact is not None and call.name == name and call.is_again(name, redact(input))
        )

    def apply(self, event: ToolEvent | ToolOutcome) -> None:
        """Update the table without evaluating rules, for use after the monitor has raised."""
        call = self.get(event.tool_call_id)
        if isinstance(event, ToolCallRequested | ToolCallStarted):
            if call is None or isinstance(event, ToolCallStarted):
                status = STARTED if isinstance(event, ToolCallStarted) else REQUESTED
                id, name, input = event.tool_call_id, event.tool_name, event.tool_input
                self[id] = CallState(id, name, input, event.turn, self.memory, status, given=input)
                self.session.denied.pop(id, None)
            return
        denied = isinstance(event, ToolCallDenied)
        if call is not None and (denied or call.status in RUNNING):
            self.finish(call, denied=denied)

    def finish(self, call: CallState, *, denied: bool = False) -> None:
        """End a call, of which the id and the digest are kept."""
        del self[call.id]
        finished = self.session.finished
        try:
            call_mark = call.kept or mark(call.name, call.given)
        except UNREADABLE:
            call_mark = b""  # the same as no call
        if denied:
            call_mark = DENIED + call_mark
            self.session.deny(call.id)
        finished[call.id] = call_mark
        if len(finished) > FINISHED_KEPT:
            self.session.forget(finished)
