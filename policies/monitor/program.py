"""A policy compiled: its rules as machines, indexed by the tools they name. Immutable, shared by runs.

The index is built when a tool's name is first seen, so that an event visits only the rules that name its tool.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec

from ..errors import PolicyError
from ..events.run_context import RunContext, Tool
from ..language.conditions import OutputRef
from ..language.facts import NO_TOOLS, CallNames, NamingKind, NoCall, ToolTable
from ..language.predicates import Predicate, compile_when
from ..language.selectors import Subject
from ..policy import Approval, OnViolation, Policy, members_of, virtual_tools_of
from ..rules.machine import EvaluatedCall, Machine
from ..rules.net_shorthand import NetLine, net_of
from ..rules.per_key import without_key
from ..rules.petri_net import Net, NetMachine
from ..rules.python_check import TOOL, CheckMachine
from ..stack.clauses import Clause, clauses_of, scope_of
from ..stack.merge import effective_action, price_tables
from ..values.globs import matcher
from ..values.paths import compile_path
from ..values.regexes import Regex
from .limit_checker import BudgetChecker, LimitChecker
from .usage import PriceBook

PLANS_KEPT = 256
"""How many different plans are kept for the calls of one tool."""


class CompiledRule(msgspec.Struct, frozen=True):
    """A clause of the stack, by its number, with the machine that evaluates it; `when` tests a run's context."""

    number: int
    clause: Clause
    machine: Machine
    when: Predicate | None = None

    @property
    def id(self) -> str:
        return self.clause.id

    @property
    def policy(self) -> str:
        """The policy that it came from."""
        return self.clause.policy

    @property
    def kind(self) -> str:
        return self.machine.kind

    @property
    def action(self) -> OnViolation:
        return self.clause.action


def compiled_rule(number: int, clause: Clause, machine: Machine) -> CompiledRule:
    when = clause.record.when
    return CompiledRule(number, clause, machine, compile_when(when) if when else None)


class Probe(msgspec.Struct, frozen=True):
    """The slots of a rule that calls of a tool match: by name alone, or depending on the call."""

    rule: CompiledRule
    mask: int
    tests: tuple[tuple[int, Callable[[Subject], bool]], ...]
    maybe: int

    def forecast(self, ahead: EvaluatedCall) -> tuple[int, int]:
        """The slots that every future call matches in this state, and those that some call may match."""
        sure, maybe = self.mask, self.maybe
        for n, slot in enumerate(self.rule.machine.slots):
            if slot.outputs and maybe & 1 << n:
                every, some = slot.forecast(ahead.names, ahead)
                sure, maybe = sure | every << n, maybe if some else maybe & ~(1 << n)
        return sure, maybe

    def mask_of(self, call: Subject) -> int:
        """The slots that a call matches."""
        mask = self.mask
        for bit, matches in self.tests:
            if matches(call):
                mask |= bit
        return mask


def probe_of(rule: CompiledRule, names: CallNames) -> Probe:
    """The probe of a rule for calls that have these names."""
    sure, maybe = 0, 0
    tests = []
    for n, slot in enumerate(rule.machine.slots):
        bound = slot.bind(names)
        if bound is False:
            continue
        maybe |= 1 << n
        if bound is True:
            sure |= 1 << n
        else:
            tests.append((1 << n, bound))
    return Probe(rule, sure, tuple(tests), maybe)


MatchedRule: TypeAlias = tuple[CompiledRule, int]
"""A rule that a call concerns, with the slots that the call matches."""

Remembers: TypeAlias = Sequence[tuple[OutputRef, Callable[[Any], list[Any]]]]
"""The references that a tool's outputs are remembered for, and how to read them."""


class CallPlan:
    """The rules that a call concerns, in the stack's order, and what each does at which step of the call.

    `async_checks` are answered before the others evaluate the call, `validators` after them. `evaluations` and
    `spends` are the functions that evaluate and spend (None: nothing to do); `attempts` observe that the call is
    requested, `outcomes` how it ends. `order_dependent` are the numbers of rules that depend on the order of calls,
    `exercised` the ids of those that restrict the call. `by_name`: every call of its kind has this plan.
    """

    __slots__ = (
        "async_checks",
        "attempts",
        "by_name",
        "evaluations",
        "exercised",
        "order_dependent",
        "outcomes",
        "remembers",
        "rules",
        "spends",
        "validators",
    )

    def __init__(self, rules: Sequence[MatchedRule], remembers: Remembers = (), *, by_name: bool = False) -> None:
        self.rules = rules
        self.remembers = remembers
        self.by_name = by_name
        self.evaluations = [(rule, mask, rule.machine.compile_evaluate(mask)) for rule, mask in rules]
        validating = ((rule, mask, rule.machine.validating()) for rule, mask in rules)
        self.validators = [(rule, mask, validate) for rule, mask, validate in validating if validate is not None]
        self.spends = [(rule, mask, rule.machine.compile_spend(mask)) for rule, mask in rules]
        self.attempts = [met for met in rules if met[1] & met[0].machine.attempts]
        self.outcomes = [met for met in rules if met[1] & met[0].machine.outcomes]
        checks = ((rule, rule.machine) for rule, mask in rules if mask & TOOL)
        self.async_checks = [
            (rule, check) for rule, check in checks if isinstance(check, CheckMachine) and check.is_async
        ]
        self.order_dependent = [rule.number for rule, _ in rules if rule.machine.order_dependent]
        self.exercised = frozenset(rule.id for rule, mask in rules if mask & rule.machine.restricts)

    def with_due(self, due: Iterable[int], by_number: Mapping[int, CompiledRule]) -> CallPlan:
        """This plan and the rules that are due whatever the call's tool."""
        named = {rule.number for rule, _ in self.rules}
        more = [(by_number[number], 0) for number in due if number not in named and number in by_number]
        return CallPlan(sorted([*self.rules, *more], key=lambda met: met[0].number), self.remembers)


class _Kind(NamedTuple):
    """The calls of one kind: the probes of their rules, those that depend on the call, and the plans found so far."""

    probes: tuple[Probe, ...]
    conditional: tuple[Probe, ...]
    remembers: Remembers
    plans: dict[tuple[int, ...], CallPlan]


TOOLS_REMEMBERED = 4_096
"""How many tool names the index keeps; a model may invent any number."""


AGENTS_REMEMBERED = 64
"""How many agents' tool sets a policy is kept compiled for."""


class Program:
    """A policy's rules as machines, indexed by the tools they name; shared by sessions, from any thread."""

    def __init__(
        self,
        policy: Policy,
        rules: tuple[CompiledRule, ...],
        limits: LimitChecker,
        budgets: BudgetChecker,
        tools: ToolTable = NO_TOOLS,
    ) -> None:
        self.policy = policy
        self.name = policy.name
        self.rules = rules
        self.by_number = {rule.number: rule for rule in rules}
        alone = {(rule.policy, rule.id.removeprefix(f"{rule.policy}/")): rule for rule in rules}
        self._named = {**alone, **{(rule.policy, rule.id): rule for rule in rules}}
        self.limits = limits
        self.budgets = budgets
        self.tools = tools
        self.approval = policy.approval or Approval()
        tables = price_tables(policy)
        self.prices = PriceBook(tables) if limits.needs_prices or budgets.needs_prices or tables else None
        self.phrases = {p: Regex(p) for rule in rules for p in rule.machine.phrases}
        self.keeps_words = any(rule.machine.from_user for rule in rules)
        self.keeps_messages = any(without_key(rule.machine).reads_messages for rule in rules)
        refs = dict.fromkeys(ref for rule in rules for ref in rule.machine.outputs)
        self.references = {ref: (matcher(ref.tools), compile_path(ref.path)) for ref in refs}
        self.is_conditional = any(rule.when is not None for rule in rules)
        self.has_order_dependent = any(rule.machine.order_dependent for rule in rules)
        self._kinds: dict[NamingKind, _Kind] = {}
        self._variants: dict[frozenset[int], Self] = {}
        self._for_tools: dict[int, tuple[tuple[Tool, ...], Self]] = {}

    def named(self, policy: str, id: str) -> CompiledRule | None:
        """The rule of that policy with that id, in this stack or as it is called in another, or alone."""
        return self._named.get((policy, id)) or self._named.get((policy, id.removeprefix(f"{policy}/")))

    def rules_digest(self, rules: Iterable[tuple[str, str]]) -> str:
        """The SHA-256 digest of what these rules, by policy and id, say, and of the names that their policies give.

        What is no clause is a net that joined, which has a number of its own, or a limit.
        """
        wanted = set(rules)
        contents: list[object] = [statement for name, statement in self._statements.items() if name in wanted]
        for policy, id in sorted(wanted - self._statements.keys()):
            rule = self.named(policy, id)
            limits = self.policy.limits, self.policy.budgets
            contents.append((policy, id, limits if rule is None else rule.number))
        return sha256(msgspec.json.encode(contents, enc_hook=_function_name, order="deterministic")).hexdigest()

    @cached_property
    def _statements(self) -> dict[tuple[str, str], tuple[object, ...]]:
        """What each clause says, by its policy and id."""
        found: dict[tuple[str, str], tuple[object, ...]] = {}
        members = members_of(self.policy)
        for clause in clauses_of(self.policy):
            names = (members[clause.member].aliases, [*virtual_tools_of(members[clause.member])])
            statement = (clause.policy, clause.id, clause.record, clause.action, names)
            found.setdefault((clause.policy, clause.id), statement)
        return found

    def plan(self, kind: NamingKind, call: Subject) -> CallPlan:
        """The plan for a call of this kind."""
        entry = self._kinds.get(kind) or self._index_kind(kind)
        masks = tuple([probe.mask_of(call) for probe in entry.conditional])
        plan = entry.plans.get(masks)
        if plan is None:
            if len(entry.plans) >= PLANS_KEPT:
                entry.plans.clear()
            by_rule = {probe.rule.number: mask for probe, mask in zip(entry.conditional, masks, strict=True)}
            rules = [(probe.rule, by_rule.get(probe.rule.number, probe.mask)) for probe in entry.probes]
            rules = [(rule, mask) for rule, mask in rules if mask or rule.machine.every_call]
            plan = entry.plans[masks] = CallPlan(rules, entry.remembers, by_name=not entry.conditional)
        return plan

    def probes(self, kind: NamingKind) -> tuple[Probe, ...]:
        """The probes of the rules that calls of this kind may concern."""
        return (self._kinds.get(kind) or self._index_kind(kind)).probes

    def remembers(self, kind: NamingKind) -> Remembers:
        """The outputs of such calls that conditions refer to."""
        return (self._kinds.get(kind) or self._index_kind(kind)).remembers

    def _index_kind(self, kind: NamingKind) -> _Kind:
        """Add a kind that was not seen before."""
        if not isinstance(kind, str | tuple):
            raise TypeError(f"a tool's name is text, not a value of type `{type(kind).__name__}`")
        if len(self._kinds) >= TOOLS_REMEMBERED:
            self._kinds.clear()
        names = self.tools.names(kind)
        looked = (probe_of(rule, names) for rule in self.rules)
        probes = tuple(probe for probe in looked if probe.maybe or probe.rule.machine.every_call)
        remembers = [(ref, path) for ref, (matches, path) in self.references.items() if names.any(matches)]
        conditional = tuple(probe for probe in probes if probe.tests)
        entry = self._kinds[kind] = _Kind(probes, conditional, remembers, {})
        return entry

    def for_context(self, context: RunContext) -> Self:
        """This policy without the rules whose `when` does not hold."""
        if not self.is_conditional:
            return self
        document, facts = msgspec.to_builtins(context), NoCall(context)
        absent = frozenset(
            rule.number for rule in self.rules if rule.when is not None and not rule.when(document, facts)
        )
        if not absent:
            return self
        if absent not in self._variants:
            self._variants[absent] = self.with_rules(rule for rule in self.rules if rule.number not in absent)
        return self._variants[absent]

    def with_net(self, net: str | NetLine | Net, number: int, **attached: Any) -> Self:
        """This policy with one more net, as the last rule; no other has its number.

        It may use every member's names, but no `map` lines.
        """
        made = net_of(net)
        if not isinstance(made, Net):
            raise ValueError("a `map` line names tools and is not a net: add it to the policy")
        scope, profile = scope_of(members_of(self.policy)), made.profile()
        action = effective_action(self.policy, made.action, self.policy)
        clause = Clause(made.name, self.policy.name, 0, made, action, scope, ("nets", 0), profile, made is not net)
        rule = compiled_rule(number, clause, NetMachine(made, scope, **attached))
        return self.with_rules((*self.rules, rule))

    def with_rule(self, rule: CompiledRule) -> Self:
        """This policy with a rule put back in its place."""
        return self.with_rules(sorted((*self.rules, rule), key=lambda each: each.number))

    def without(self, number: int) -> Self:
        return self.with_rules(r for r in self.rules if r.number != number)

    def with_rules(self, rules: Iterable[CompiledRule]) -> Self:
        return type(self)(self.policy, tuple(rules), self.limits, self.budgets, self.tools)

    def for_tools(self, tools: tuple[Tool, ...]) -> Self:
        """This policy for an agent with these tools; the same object for the same tools."""
        if not tools:
            return self
        cached = self._for_tools.get(id(tools))
        if cached is None:
            if len(self._for_tools) >= AGENTS_REMEMBERED:
                self._for_tools.clear()
            made = type(self)(self.policy, self.rules, self.limits, self.budgets, ToolTable(tools))
            cached = self._for_tools[id(tools)] = (tools, made)
        return cached[1]


def _function_name(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def check_hooks(attached: Sequence[tuple[str, object]]) -> None:
    """Raises PolicyError for a validator, result hook or mapper, given with its net's name, that cannot be called."""
    for name, hook in attached:
        if not callable(hook) or inspect.iscoroutinefunction(hook):
            kind = "an `async` function" if callable(hook) else f"a value of type `{type(hook).__name__}`"
            raise PolicyError(f"the validator, result hook or mapper of `{name}` is {kind}, not a plain function")
