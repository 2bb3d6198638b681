"""A rule in a search, as written and as compiled, the component of one that binds calls by values, and what all
searches of one question share.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..events.run_context import RunContext, Tool
from ..language.conditions import Condition, has_references
from ..language.facts import CallNames
from ..language.selectors import VirtualName
from ..monitor.program import CompiledRule, Program
from ..rules.memory import SessionFacts
from ..rules.precondition import Precondition
from ..rules.python_check import Check
from ..rules.rule import ComparedPath, PriorOutput
from ..stack.clauses import Clause
from ..stack.merge import BudgetEntry, LimitEntry
from ..values.globs import matcher
from ..values.work_budget import Work
from .components import (
    ANY_OTHER,
    DENY,
    LEVELS,
    NEVER_SEEN,
    NOTHING,
    Component,
    InputClass,
    Reaction,
    RuleComponent,
    Standard,
    filled,
    remembered,
)


class SplitComponent(Component):
    """A rule that binds calls by values: some values are followed one by one, all others together.

    Of the other values it keeps every state in which any one of them may be. A call with such a value counts as
    allowed where one of these allows it, and as leading some value on and others not. So nothing that a session can
    do is left out, however many values it has; what is found this way is replayed. A property is only
    asked about followed values: rules know values by being equal, so a session that breaks it on another value
    breaks it, with the two exchanged, on a followed one.
    """

    def __init__(
        self, index: int, rule: CompiledRule, facts: SessionFacts, paths: frozenset[str], *, asked_of: bool
    ) -> None:
        self.rule, self.index = rule, index
        self._paths, self._evaluates_others = paths, asked_of
        self.followed = RuleComponent(index, rule, facts, lambda key: ANY_OTHER not in key and NEVER_SEEN not in key)
        self.others = RuleComponent(index, rule, facts, lambda key: ANY_OTHER in key and NEVER_SEEN not in key)
        self.turns, self.denies_later, self.has_obligation = (
            self.followed.turns,
            self.followed.denies_later,
            self.followed.has_obligation,
        )
        self._numbers: dict[tuple[int, frozenset[int]], int] = {}
        self._memo: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self._moves = 0
        self.states: list[tuple[int, frozenset[int]]] = []
        self.start = self._number(self.followed.start, frozenset([self.others.start] if asked_of else ()))

    @property
    def spent(self) -> int:
        return self.followed.spent + self.others.spent + self._moves

    def _number(self, followed: int, others: frozenset[int]) -> int:
        state = (followed, others)
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
        return self._numbers[state]

    def _moved(self, at: int, move: Callable[[RuleComponent, int, int], int], ways: int) -> int:
        """The state after a move of each part; the others make each of its variants."""
        followed, others = self.states[at]
        self._moves += ways * len(others)
        reached = {move(self.others, other, n) for other in others for n in range(ways)}
        return self._number(move(self.followed, followed, 0), frozenset(reached))

    def mask(self, call: InputClass) -> int:
        return self.followed.mask(call)

    def _of_other(self, call: InputClass) -> bool:
        return not self._paths.isdisjoint(call.wild)

    @remembered
    def requested(self, at: int, call: InputClass) -> int:
        return self._moved(at, lambda part, n, variant: part.requested(n, call, variant), call.ways)

    def level(self, at: int, call: InputClass) -> int:
        followed, others = self.states[at]
        if not self._of_other(call):
            return self.followed.level(followed, call)
        if not self._evaluates_others:
            return NOTHING
        return min(self.others.level(other, call) for other in others)

    @remembered
    def started(self, at: int, call: InputClass, slot: int) -> int:
        followed, others = self.states[at]
        if not self._of_other(call) or not self._evaluates_others:
            return self._moved(at, lambda part, n, variant: part.started(n, call, slot, variant), call.ways)
        self._moves += call.ways * len(others)
        let_through = [other for other in others if self.others.level(other, call) < DENY] or others
        led = {self.others.started(other, call, slot, 0) for other in let_through}
        left = {
            self.others.started(other, call, slot, variant) for other in others for variant in range(1, call.ways)
        }
        return self._number(self.followed.started(followed, call, slot, 0), frozenset(led | left))

    @remembered
    def denied(self, at: int, call: InputClass) -> Reaction:
        return self._outcome(at, call, lambda part, n, variant: part.denied(n, call, variant), call.ways)

    @remembered
    def ended(self, at: int, call: InputClass, slot: int, output: int | None) -> Reaction:
        returns = 1 if output is None or ANY_OTHER not in str(call.outputs[output]) else 2

        def move(part: RuleComponent, n: int, variant: int) -> Reaction:
            return part.ended(n, call, slot, output, variant % call.ways, variant >= call.ways)

        return self._outcome(at, call, move, call.ways * returns)

    def _outcome(
        self, at: int, call: InputClass, move: Callable[[RuleComponent, int, int], Reaction], ways: int
    ) -> Reaction:
        """The finding against a call that has ended, as `level` gives it, and the state after it."""
        followed, others = self.states[at]
        after = self._moved(at, lambda part, n, variant: move(part, n, variant)[1], ways)
        if not self._of_other(call):
            return move(self.followed, followed, 0)[0], after
        return min((move(self.others, other, 0)[0] for other in others), default=NOTHING), after

    def ends_as(self, call: InputClass) -> Hashable:
        return (self.followed.mask(call), call.bound) if self.followed.watches_end(call) else 0

    def watches_denial(self, call: InputClass) -> bool:
        return self.followed.watches_denial(call)

    @remembered
    def turned(self, at: int) -> Reaction:
        return NOTHING, self._moved(at, lambda part, n, variant: part.turned(n)[1], 1)

    @remembered
    def wrote(self, at: int, text: str) -> int:
        texts = (text, filled(text, NEVER_SEEN)) if ANY_OTHER in text else (text,)
        return self._moved(at, lambda part, n, variant: part.wrote(n, texts[variant]), len(texts))

    def may_have_tripped(self, at: int) -> bool:
        return True

    def obligation(self, at: int) -> int:
        return self.followed.obligation(self.states[at][0])


class PlayedRule(NamedTuple):
    """A rule in a search, as written and as compiled."""

    rule: CompiledRule

    @property
    def clause(self) -> Clause:
        return self.rule.clause

    @property
    def sentence(self) -> tuple[Any, ...]:
        """Its meaning: what is written, without its id, where it holds, and what becomes of a violation."""
        silent = {"id", "action", "reason", "tell_model", "description", "when", "unpreventable"}
        record = self.clause.record
        written = {name: value for name, value in msgspec.structs.asdict(record).items() if name not in silent}
        return type(record), written, repr(written)  # without their text, 1 is True

    def virtual_names(self, names: CallNames) -> list[VirtualName]:
        """The virtual names that calls with these names may have."""
        return [each for each in self.clause.scope.virtual_names if names.any(each.of_tool)]

    def means(self, patterns: Iterable[str], names: CallNames) -> bool:
        """Whether patterns match calls with these names, by one of them or by a virtual name."""
        matches = matcher(patterns)
        return names.any(matches) or any(matches(each.name) for each in self.virtual_names(names))

    @property
    def conditions(self) -> list[Condition]:
        """What it asks of inputs, and of the outputs of earlier calls."""
        evidence = (c for each in self.evidence for c in each.output)
        return [*(c for where in self.clause.wheres for c in where.where), *evidence]

    @property
    def unsupported(self) -> str:
        """Why no component can stand for it; "" if one can."""
        record = self.clause.record
        if isinstance(record, Check):
            return "a Python check may answer anything"
        if has_references(self.conditions):
            return "conditions that refer to the evaluated call (`arg`) or to earlier outputs (`output_of`)"
        if isinstance(record, Precondition) and record.key is not None and self.clause.profile.follows:
            return "`same` under a `key`"
        return ""

    @property
    def follows(self) -> Iterator[ComparedPath]:
        """The input paths whose values it compares with those of other calls, where it evaluates them."""
        return self.clause.record.follows()

    @property
    def evidence(self) -> tuple[PriorOutput, ...]:
        """The earlier calls whose outputs it looks at."""
        return self.clause.profile.outputs

    @property
    def bound_paths(self) -> frozenset[str]:
        """The paths that it follows."""
        return frozenset(each.path for each in self.follows)

    def component(self, index: int, facts: SessionFacts, *, asked_of: bool) -> Component:
        """What represents the rule in a search; `asked_of`: as a rule of the stack, not of the property."""
        if self.bound_paths:
            return SplitComponent(index, self.rule, facts, self.bound_paths, asked_of=asked_of)
        return RuleComponent(index, self.rule, facts)


PropertyPart: TypeAlias = PlayedRule | LimitEntry | BudgetEntry
"""A part of a property."""


class Side(NamedTuple):
    """A policy as the search sees it: its rules by id, its limits, and its program without checks in Python."""

    program: Program
    rules: dict[str, PlayedRule]
    limits: tuple[LimitEntry, ...]

    def parts(self, standard: Standard) -> Iterator[PropertyPart]:
        """Its parts that something can break: its rules, whose findings may have other actions than theirs, as an
        approval has, and the limits and budgets that matter by this standard.
        """
        yield from self.rules.values()
        figures: tuple[LimitEntry | BudgetEntry, ...] = (*self.limits, *self.program.budgets.entries)
        yield from (entry for entry in figures if standard.breaks(LEVELS[entry.action], NOTHING))


class Setting(NamedTuple):
    """The settings that all searches of one question share; `stated` is what the question says of the context."""

    stack: Side
    property: Program
    context: RunContext
    stated: RunContext
    given: Sequence[str | Tool] | None
    work: Work
    standard: Standard
