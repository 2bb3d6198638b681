"""Whether a stack implies one rule: the search uses only the rules of the stack that it needs.

The search begins without any rule of the stack, so that every session is allowed. A session that it finds is
replayed on the whole stack: if it gets through, it is the answer, and a shortest one, as fewer rules let more
through. If not, a rule that denied it joins the search. A proof with some rules of the stack holds for all; its
certificate is an inductive invariant: a set of states with the first one, which no step leaves, and in none of which
the property is broken.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from ..monitor.program import Program
from ..monitor.usage import TokenMeter
from ..policy import Policy
from ..rules.memory import SessionFacts, UserText
from ..rules.python_check import Check
from ..stack.merge import BudgetEntry, LimitEntry, price_tables
from ..values.globs import matcher
from ..values.work_budget import OutOfWork
from .alphabet import Alphabet
from .components import (
    ASK,
    DENY,
    IN_FLIGHT,
    LEVELS,
    BudgetComponent,
    Component,
    LimitComponent,
    RuleComponent,
    Standard,
    overlaps,
)
from .explorer import Explored, SearchEndedError
from .played_rule import PlayedRule, PropertyPart, Setting, Side
from .replaying import Replayed, ShortSessions, replay, replay_amount
from .session_search import SessionProduct, SessionStep, State, ending_alike, explore

FOLLOWED = 2
"""How many values of a key are followed one by one at most, beside all others together."""
MOST_FOLLOWED = 4
"""How many where there are no others: then a session may be found, and nothing is proved."""


class Implication(NamedTuple):
    """The result for one rule of a property: the `verdict`, and the fields of an answer; `ended` for want of work."""

    verdict: str
    reason: str
    replayed: Replayed | None = None
    certificate: Certificate | None = None
    classes: int = 0
    states: int = 0
    depth: int = 0
    bounded: tuple[str, ...] = ()
    ended: bool = False

    @property
    def length(self) -> int:
        """How many calls the session has."""
        return sum(1 for call in self.replayed.session if call["tool"]) if self.replayed is not None else 0


def implied(setting: Setting, rule: PropertyPart, deepest: int | None = None) -> Implication:
    """Whether every session that the stack allows keeps one part of a property."""
    if isinstance(rule, BudgetEntry):
        stack, property = setting.stack.program, setting.property
        for entry in stack.budgets.entries:
            made = BudgetCertificate(entry, rule, setting.standard, stack.policy, property.policy)
            if made.holds():
                return Implication("proved", "", certificate=made)
        return _Refinement(setting, rule, 1, deepest).run()
    if isinstance(rule, LimitEntry):
        if not rule.kind.projected:
            return _implied_amount(setting, rule)
        return _Refinement(setting, rule, 1, deepest).run()
    if (same := _same(setting, rule)) is not None:
        return Implication("proved", "", certificate=same)
    if rule.unsupported:
        found = Implication("unknown", f"rule `{rule.clause.id}`: {rule.unsupported}")
    else:
        found = _Refinement(setting, rule, max(1, len(rule.bound_paths)), deepest).run()
    if found.verdict == "unknown" and not isinstance(rule.clause.record, Check):
        return _tried_shortly(setting, rule, found, deepest)
    return found


def _tried_shortly(setting: Setting, rule: PlayedRule, found: Implication, deepest: int | None) -> Implication:
    """What is found of a rule by trying short sessions, where nothing else is known."""
    played = [each for each in (*setting.stack.rules.values(), rule) if not isinstance(each.clause.record, Check)]
    got = ShortSessions(played, setting).broken(deepest)
    return found if got is None else found._replace(verdict="refuted", reason="", replayed=got)


def _same(setting: Setting, rule: PlayedRule) -> SameRuleCertificate | None:
    """The rule of the stack that is this one, at least as strict; None if there is none."""
    made = (SameRuleCertificate(each, rule, setting.standard) for each in setting.stack.rules.values())
    return next((each for each in made if each.holds()), None)


def _implied_amount(setting: Setting, limit: LimitEntry) -> Implication:
    """A limit of tokens, cost or time, of which a run may use any amount."""
    stack = setting.stack
    ways: list[Sequence[LimitEntry | None]] = [[entry] for entry in stack.limits if entry.name == limit.name]
    ways += [[_bounding(stack, name, limit) for name in names] for names in BOUNDED_BY.get(limit.name, ())]
    for entries in ways:
        given = tuple(entry for entry in entries if entry is not None)
        made = AmountCertificate(given, limit, setting.standard, stack.program.policy, setting.property.policy)
        if made.holds():
            return Implication("proved", "", certificate=made)
    if not (limit.kind.clock or limit.kind.of_usage):
        return Implication("unknown", f"nothing here says when `{limit.name}` is used")
    got = replay_amount(limit, setting)
    if got.broken:
        return Implication("refuted", "", replayed=got)
    return Implication("unknown", f"`{limit.name}` against other limits of tokens, cost or time, or by other prices")


def _bounding(stack: Side, name: str, limit: LimitEntry) -> LimitEntry | None:
    """The lowest limit of a name that ends a run before another limit of the same scope is exceeded."""
    ending = (e for e in stack.limits if e.name == name and e.action == "cancel")
    wide = (e for e in ending if e.limit.scope == "session" or limit.limit.scope == "run")
    return min(wide, key=lambda entry: entry.limit.max, default=None)


def _alike(stack: Side, rule: PropertyPart) -> Iterator[tuple[str, PlayedRule | LimitEntry]]:
    """The rule or limit that the search begins with: one that says the same, or else is about the same tools."""
    if isinstance(rule, LimitEntry):
        yield from ((id, e) for id, e in _limits_by_id(stack) if e.name == rule.name)
    if not isinstance(rule, PlayedRule):
        return
    wanted, names, family = rule.sentence, _names(rule), type(rule.clause.record)
    usable = [(id, r) for id, r in stack.rules.items() if type(r.clause.record) is family and not r.unsupported]
    same = [(id, each) for id, each in usable if each.sentence == wanted]
    kind = [(id, each) for id, each in usable if _names(each) == names and not each.bound_paths]
    yield from itertools.islice(same or kind, 1)


def _limits_by_id(stack: Side) -> Iterator[tuple[str, LimitEntry]]:
    """The limits of a stack; there may be several of one name."""
    return ((f"limit {n}", entry) for n, entry in enumerate(stack.limits))


def _of_type(stack: Side, rule: PropertyPart) -> Program | None:
    """The rules of the stack that have the type of a rule of the property, by themselves; None without any."""
    if not isinstance(rule, PlayedRule):
        return None
    kinds = (each for each in stack.program.rules if each.id in stack.rules)
    wanted = type(rule.clause.record)
    alike = tuple(each for each in kinds if type(stack.rules[each.id].clause.record) is wanted)
    return stack.program.with_rules(alike) if alike else None


def _names(rule: PlayedRule) -> tuple[type, frozenset[str]]:
    """A rule's type and the tools that it names."""
    return type(rule.clause.record), frozenset(rule.clause.names)


def _denials_matter(product: SessionProduct) -> bool:
    """Whether a call that the stack denies may break the property, or be one that a rule of the stack asks for."""
    return any(
        product.rule.watches_denial(call)
        or any(part.has_obligation and part.watches_denial(call) for part in product.stack)
        for call in product.calls
    )


def _is_over(product: SessionProduct, at: Sequence[int]) -> bool:
    """Whether it makes no difference how many calls fail that run on where the stack denies all others."""
    *stack, (rule, now) = zip(product.parts, at, strict=True)
    if isinstance(rule, RuleComponent) and rule.may_have_tripped(now):
        return True
    denies_all = any(part.denies_later and part.may_have_tripped(n) for part, n in stack)
    return not denies_all or not any(rule.watches_end(call) for call in product.calls)


class _Refinement:
    def __init__(self, setting: Setting, rule: PropertyPart, followed: int, deepest: int | None) -> None:
        self.setting, self.rule, self.followed, self.deepest = setting, rule, followed, deepest
        self.included: dict[str, PlayedRule | LimitEntry] = dict(_alike(setting.stack, rule))
        self._alike = _of_type(setting.stack, rule)
        self.others, self.unasked = True, ""
        self.classes = self.states = self.depth = 0

    def run(self) -> Implication:
        """Search, replay and refine until there is an answer."""
        try:
            answer = None
            while answer is None:
                product, alphabet = self._product()
                if _denials_matter(product) and self._include_all():
                    continue
                found = explore(product, self.setting.work, self.deepest)
                self._count(found)
                answer = self._tried(product, found) if found.steps else self._all_seen(product, alphabet, found)
        except OutOfWork as ended:
            if isinstance(ended, SearchEndedError):
                self._count(ended.explored)
            return self._answer("unknown", "the search was ended before it had seen every state", ended=True)
        else:
            return answer

    def _include_all(self) -> bool:
        """Let every rule of the stack join, where what they deny counts for the property; whether any did."""
        before = len(self.included)
        for id, rule in self.setting.stack.rules.items():
            if rule.unsupported:
                self.unasked = f"what rule `{id}` denies: {rule.unsupported}"
            else:
                self.included.setdefault(id, rule)
        for id, entry in _limits_by_id(self.setting.stack):
            if entry.kind.projected:
                self.included.setdefault(id, entry)
            else:
                self.unasked = f"what `{entry.name}` denies"
        for budget in self.setting.stack.program.budgets.entries:
            self.unasked = f"what the budget `{budget.id}` denies"
        return len(self.included) > before

    def _count(self, found: Explored[Any, Any]) -> None:
        self.states += len(found.states)
        self.depth = max(self.depth, found.depth)

    def _product(self) -> tuple[SessionProduct, Alphabet]:
        setting = self.setting
        facts = SessionFacts({}, UserText(), TokenMeter(), setting.context, setting.stack.program.tools)
        played: list[PlayedRule] = []
        parts: list[Any] = []

        def component(rule: PropertyPart, *, asked_of: bool) -> Component:
            if not isinstance(rule, PlayedRule):
                return LimitComponent(rule) if isinstance(rule, LimitEntry) else BudgetComponent(rule.action)
            made = rule.component(len(parts), facts, asked_of=asked_of)
            played.append(rule)
            parts.append(made)
            return made

        stack = [component(rule, asked_of=True) for rule in self.included.values()]
        property = component(self.rule, asked_of=False)
        alphabet = Alphabet(played, parts, setting, self.followed, others=self.others)
        self.classes = max(self.classes, len(alphabet.calls))
        alike = ending_alike([*stack, property], alphabet.calls)
        made = SessionProduct(stack, property, alphabet.calls, alphabet.texts, setting.standard, alike=alike)
        return made, alphabet

    def _all_seen(self, product: SessionProduct, alphabet: Alphabet, found: Explored[Any, Any]) -> Implication | None:
        """Every state was seen, and none breaks the rule; None where another search is worth it."""
        if self.deepest is not None:
            return self._answer("bounded", "no shorter session breaks it")
        if not self.others:
            if self.followed < MOST_FOLLOWED:
                self.followed += 1
                return None
            return self._answer("unknown", "more than a few values of a key at once would have to be followed")
        if self.unasked:
            product = product._replace(any_denied=True)
            found = explore(product, self.setting.work)
            self._count(found)
        if doubt := self._doubt(product, alphabet, found):
            return self._answer("unknown", f"no session was found, but {doubt}")
        return self._answer("proved", "", certificate=ProofCertificate(product, found.states))

    def _doubt(self, product: SessionProduct, alphabet: Alphabet, found: Explored[Any, Any]) -> str:
        """Why there may be a session that breaks the rule, though none was found; "" if there is none."""
        if found.steps:
            return f"not every denial was looked at: {self.unasked}"
        if alphabet.gaps:
            return f"not all inputs were looked at: {alphabet.gaps[0]}"
        if any(part.beyond for part in product.parts):
            return "a net may hold more tokens than were followed"
        if not all(_is_over(product, at) for at, _ in found.states):
            return "more calls may fail at once than were followed"
        looked_at = [each for each in (*self.included.values(), self.rule) if isinstance(each, PlayedRule)]
        if any(overlaps(each.rule.machine) for each in looked_at):
            return "more calls may hold a net's tokens at once"
        return ""

    def _tried(self, product: SessionProduct, found: Explored[Any, Any]) -> Implication | None:
        """Replay a session; None where another search is worth it."""
        setting, steps = self.setting, found.steps
        assert steps is not None
        if product.phantoms and (imagined := {step.call.name for step in steps if step.call and step.call.phantom}):
            return self._without_phantoms(product._replace(phantoms=False), imagined)
        if isinstance(self.rule, BudgetEntry):
            steps = [*steps[:-1], SessionStep("budget", budget=self.rule), *steps[-1:]]
        got = replay(steps, setting)
        if got.broken:
            return self._answer("refuted", "", replayed=got)
        if self._alike is not None:  # rules of the property's type are tried first: they mostly decide it
            by_alike = replay(steps, setting, self._alike)
            if not by_alike.broken and self._join(by_alike.denying):
                return None
        return self._refine(got)

    def _without_phantoms(self, product: SessionProduct, imagined: set[str]) -> Implication | None:
        """Search among calls with examples; if there is nothing, let a rule join that names what was imagined."""
        found = explore(product, self.setting.work, self.deepest)
        self._count(found)
        if found.steps is not None:
            return self._tried(product, found)
        for id, rule in self.setting.stack.rules.items():
            names = matcher(rule.clause.names)
            if id not in self.included and not rule.unsupported and any(map(names, imagined)):
                self.included[id] = rule
                return None
        return self._answer(
            "unknown", "some set of conditions was neither met by an input nor shown to be impossible"
        )

    def _refine(self, got: Replayed) -> Implication | None:
        """Let a rule that denied the session join; None if one does."""
        for name in got.denying:
            rule = self.setting.stack.rules.get(name)
            if rule is not None and rule.unsupported and name not in self.included:
                return self._answer("unknown", f"rule `{name}` of the stack: {rule.unsupported}")
            if self._join([name]):
                return None
        if self.followed < (FOLLOWED if self.others else MOST_FOLLOWED):
            self.followed += 1
            return None
        if self.others and self._binds():
            self.others, self.followed = False, 2
            return None
        return self._answer("unknown", "replay: the session that the search found does not get through the stack")

    def _join(self, names: Iterable[str]) -> bool:
        """Let the first of these rules and limits join that has not; whether one did."""
        limits = [(id, entry) for id, entry in _limits_by_id(self.setting.stack) if entry.kind.projected]
        for name in names:
            rule = self.setting.stack.rules.get(name)
            joining: dict[str, PlayedRule | LimitEntry] = {id: entry for id, entry in limits if entry.name == name}
            joining |= {name: rule} if rule is not None and not rule.unsupported else {}
            if joining.keys() - self.included.keys():
                self.included |= joining
                return True
        return False

    def _binds(self) -> bool:
        """Whether some rule looks at the values of keys."""
        rules = (self.rule, *self.included.values())
        return any(isinstance(each, PlayedRule) and bool(each.bound_paths) for each in rules)

    def _answer(self, verdict: str, reason: str, **more: Any) -> Implication:
        bounded = [f"calls in flight at once: {IN_FLIGHT}", "every call is in the current turn"]
        if self._binds():
            bounded.append("a call names at most two values of a key")
        return Implication(
            verdict,
            reason,
            classes=self.classes,
            states=self.states,
            depth=self.depth,
            bounded=tuple(bounded),
            **more,
        )


class ProofCertificate(NamedTuple):
    """The rules, the calls and the states of one proof: that a stack's rules imply one rule of a property."""

    product: SessionProduct
    states: frozenset[State]


class SameRuleCertificate(NamedTuple):
    """A rule of the stack that is, word by word, one of the property, and their actions."""

    mine: PlayedRule
    rule: PlayedRule
    standard: Standard

    def holds(self) -> bool:
        mine, rule, standard = self
        as_strict = not standard.widened and _as_strict(mine.rule.action, rule.rule.action, standard)
        names = mine.clause.scope.same_names(rule.clause.scope)
        only_warns = standard.strict and isinstance(rule.clause.record, Check)  # it may answer a `Refuse` that warns
        return as_strict and names and not only_warns and mine.sentence == rule.sentence


class AmountCertificate(NamedTuple):
    """Limits of the stack that together end a run before it exceeds one of the property, or the very same limit; by
    the prices of both policies.
    """

    mine: tuple[LimitEntry, ...]
    limit: LimitEntry
    standard: Standard
    stack: Policy
    property: Policy

    def holds(self) -> bool:
        mine, limit, standard, stack, property = self
        money, bounding = limit.kind.is_money, [(limit.name,), *BOUNDED_BY.get(limit.name, [])]
        if tuple(entry.name for entry in mine) not in bounding or (money and not _costs_no_less(stack, property)):
            return False
        if all(entry.action == "cancel" for entry in mine):  # a run that ends uses no more
            wide = all(entry.limit.scope == "session" or limit.limit.scope == "run" for entry in mine)
            return wide and sum(entry.limit.max for entry in mine) <= limit.limit.max
        alike = [(e.name, e.limit.max, e.limit.scope) for e in (*mine, limit)]
        agreed = mine[0].action == limit.action == "request_approval" and not standard.widened
        same = len(mine) == len(set(alike)) == 1 and (not money or _costs_no_less(property, stack))
        return same and (mine[0].action == "deny" or agreed)


class BudgetCertificate(NamedTuple):
    """A budget of the stack that is one of the property, with no more in it, by the prices of both policies."""

    mine: BudgetEntry
    budget: BudgetEntry
    standard: Standard
    stack: Policy
    property: Policy

    def holds(self) -> bool:
        mine, budget, standard, stack, property = self
        if mine.budget.kind.is_money and not _costs_no_less(stack, property):
            return False
        name = mine.budget.limit
        alike = replace(mine.budget, action=budget.budget.action, **{name: getattr(budget.budget, name)})
        same = mine.id == budget.id and alike == budget.budget and mine.budget.max <= budget.budget.max
        return same and _as_strict(mine.action, budget.action, standard)


class NothingCertificate(NamedTuple):
    """A property that nothing can break, by the standard of the question."""

    property: Side
    standard: Standard

    def holds(self) -> bool:
        return next(self.property.parts(self.standard), None) is None


Certificate: TypeAlias = (
    ProofCertificate | SameRuleCertificate | AmountCertificate | BudgetCertificate | NothingCertificate
)
BOUNDED_BY: dict[str, list[tuple[str, ...]]] = {
    "max_total_tokens": [("max_input_tokens", "max_output_tokens")],
    "max_input_tokens": [("max_total_tokens",)],
    "max_output_tokens": [("max_total_tokens",)],
    "max_idle_ms": [("max_duration_ms",)],
}
"""For an amount other limits that together bound it, in each way."""


def _as_strict(mine: str, other: str, standard: Standard) -> bool:
    """Whether one action is as strict as another, wherever both are given."""
    stack, property = LEVELS[mine], LEVELS[other]
    agreed = not standard.widened and (stack == property == ASK or (not standard.strict and stack >= property))
    return stack == DENY or agreed


def _costs_no_less(stack: Policy, property: Policy) -> bool:
    """Whether each use costs at least as much by the stack's prices, and what has no price is no less denied."""
    denied = stack.unpriced == "reject" or property.unpriced != "reject"
    return denied and price_tables(stack).at_least(price_tables(property))
